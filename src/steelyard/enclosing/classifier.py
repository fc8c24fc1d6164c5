"""EnclosingClassifier: the smallest body around each class, classes added and dropped at will."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from steelyard import _native
from steelyard._concurrency import lock_of, snapshot_read, snapshot_view
from steelyard._labels import check_sortable, restored_labels
from steelyard._shared_text import expand_shared_text
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard._validation import MAX_FEATURE, check_magnitude, check_started, is_plain, validate_rows
from steelyard.base import Batch, Label, Learner, MergingMixin, Traits, sorted_classes, transactional
from steelyard.enclosing.bodies import Body, BodySettings
from steelyard.enclosing.ratios import distance_ratios, nearest_bodies
from steelyard.enclosing.state import ClassState
from steelyard.exceptions import DataError, DataTypeError, NotFittedError, ParameterError
from steelyard.kernels.items import take
from steelyard.kernels.kernel import GAMMA, SequenceKernel
from steelyard.params import (
    AnyOf,
    Constraint,
    Finite,
    Fraction,
    Instance,
    Integer,
    NonNegative,
    OneOf,
    Positive,
)
from steelyard.persistence import storable

__all__ = ["EnclosingClassifier"]


_SURFACE = 1e-6  # of the radius: how far outside still counts as on the surface


@expand_shared_text
@storable("EnclosingClassifier")
class EnclosingClassifier(MergingMixin, Learner):
    r"""The smallest sphere or ellipsoid around each class; what lies in none of them is unknown.

    Each class is learned from its own rows alone. A class that comes later never changes the bodies of
    the others, a class can be dropped as if it had never been, and a row far from every body can be
    answered with "unknown" instead of a guess.

    Parameters
    ----------
    shape : {"ellipsoid", "sphere"}, default="ellipsoid"
        A sphere knows a centre and a radius. An ellipsoid follows the covariance of the class: it is
        the smallest ball in coordinates in which the class is as wide in every direction.
    kernel : {"linear", "polynomial", "rbf", "laplacian"} or sequence kernel, default="linear"
        The space in which bodies are sought; "poly" is short for "polynomial". With a sequence kernel, such
        as :class:`~steelyard.kernels.GlobalAlignmentKernel`, ``X`` is a list of sequences everywhere.
    gamma : float or {"scale", "auto", "median"}, default="scale"
        Of the polynomial, rbf and laplacian kernels. "scale" is 1 / (n_features * variance), taken over
        the rows of each class by itself, and so is the distance of "median"; "auto" is 1 / n_features.
    degree : int, default=3
        Of the polynomial kernel.
    coef0 : float, default=0.0
        Of the polynomial kernel.
    C : float, optional
        Price of leaving a row outside. Below 1 a row can be left outside, so that about 1 / C rows lie
        on or beyond the surface; from 1 on every row stays inside. A class of fewer than 1 / C rows is
        treated as if it had that many.
    outliers : float, default=0.0
        Share of each class that may stay outside, 0 to 1: C = 1 / (outliers * rows of the class). Give
        this or C, not both.
    ridge : float or "auto", default=0.01
        Added to every eigenvalue of an ellipsoid's covariance, in squared units of the features: bodies
        around few rows, or rows without extent in some direction, need it. "auto" goes between ellipsoid
        and sphere, for each class by how both treat rows of the class that they were not fitted to. With 0
        the covariance is inverted as a pseudo-inverse: directions in which a class has no extent do not
        count, so that a row may be strange there and still be held to be inside.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes.
    radius_ : ndarray of shape (n_classes,)
        Radius of each body; for ellipsoids in units of standard deviations.
    support_vectors_ : dict of label to ndarray or list of sequences
        The rows on or beyond the surface of each body, which decide where it lies.
    center_ : dict of label to ndarray of shape (n_features,)
        Centres of the bodies; with the linear kernel only.
    class_count_ : ndarray of shape (n_classes,)
        Rows of each class (sums of weights).
    n_features_in_, feature_names_in_
        As in all learners.

    See Also
    --------
    sklearn.svm.OneClassSVM : With the rbf kernel, its solution is the sphere around all rows.

    Notes
    -----
    For a class with rows :math:`x_1 \dots x_l`, its covariance :math:`S` and the map :math:`\phi` of the
    kernel, the body has the centre :math:`a = \sum_i \alpha_i \phi(x_i)`, where :math:`\alpha` solves

    .. math::

        \max_\alpha\; \sum_i \alpha_i G_{ii} - \alpha^\top G \alpha, \qquad
        \sum_i \alpha_i = 1, \quad 0 \le \alpha_i \le C, \qquad
        G_{ij} = \phi(x_i)^\top (S + \mathrm{ridge} \cdot I)^{-1} \phi(x_j)

    (:math:`G_{ij} = \phi(x_i)^\top \phi(x_j)` for spheres). The radius is the root of the mean squared
    distance of the rows with :math:`0 < \alpha_i < C`. A row belongs to the class with the smallest
    ratio :math:`d_m(x) / R_m` of distance and radius; a ratio above 1 is outside. Scores are minus these
    ratios, of two classes the second less the first.

    Rows are kept, since a body cannot be mended without them, so memory grows with the number of
    distinct rows. The order in which rows come, and how they are cut into batches, change nothing.
    Bodies are computed when they are first asked for; parameters may be changed at any time with
    :meth:`set_params`. A weight of k counts as k repetitions of a row; repetitions matter to the
    covariance and to ``C`` and ``outliers``, not to a sphere that holds every row.

    A class whose rows are all equal has radius 0: it is recognised at that very point, and elsewhere
    only if every other class is such a point too and farther away. A feature without variance counts
    as if it had variance ``ridge``. With fewer rows than features directions in which the class has
    no extent count likewise.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import EnclosingClassifier
    >>> rng = np.random.default_rng(0)
    >>> cats, dogs, owls = (rng.normal(size=(100, 2)) + shift for shift in ([0, 0], [6, 0], [0, 9]))
    >>> model = EnclosingClassifier().partial_fit(cats, ["cat"] * 100).partial_fit(dogs, ["dog"] * 100)
    >>> model.predict([[0, 1], [6, 1], [0, 9]], unknown="?")
    array(['cat', 'dog', '?'], dtype='<U3')
    >>> model.partial_fit(owls, ["owl"] * 100).predict([[0, 9]], unknown="?")
    array(['owl'], dtype='<U3')
    >>> model.forget_class("dog").classes_
    array(['cat', 'owl'], dtype='<U3')
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        "shape": OneOf("ellipsoid", "sphere"),
        "kernel": AnyOf(
            OneOf("linear", "polynomial", "poly", "rbf", "laplacian"),
            Instance(SequenceKernel, description="a sequence kernel"),
        ),
        "gamma": GAMMA,
        "degree": Integer(1),
        "coef0": Finite(),
        "C": AnyOf(OneOf(None), Positive()),
        "outliers": Fraction(0.0, 1.0),
        "ridge": AnyOf(NonNegative(), OneOf("auto")),
    }
    # Bodies are made of the rows themselves, so distinct rows are kept and memory grows with them.
    _traits = Traits(exact=True, bounded_memory=False)

    def __init__(
        self,
        *,
        shape: str = "ellipsoid",
        kernel: str | SequenceKernel = "linear",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        C: float | None = None,
        outliers: float = 0.0,
        ridge: float | str = 0.01,
    ) -> None:
        self.shape = shape
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.C = C
        self.outliers = outliers
        self.ridge = ridge

    # -- learning and forgetting --------------------------------------------------------------------

    def _check_params(self) -> None:
        super()._check_params()
        if self.C is not None and self.outliers > 0.0:
            raise ParameterError(
                "C and outliers both say how many rows may stay outside; got "
                f"C={self.C!r} and outliers={self.outliers!r}.",
                source="EnclosingClassifier",
                hint="leave one of them at its default",
            )

    def _start(self, batch: Batch) -> None:  # noqa: ARG002 - there is nothing to settle on the first rows
        self._classes: dict[Label, ClassState] = {}

    def _learn(self, batch: Batch) -> None:
        X = self._dense(batch.X)
        weights = np.ones(len(X)) if batch.weights is None else batch.weights
        order = np.argsort(batch.codes, kind="stable")
        order = order[weights[order] > 0.0]
        borders = np.searchsorted(batch.codes[order], np.arange(len(batch.labels) + 1))
        classes = self._classes.copy()
        for code, label in enumerate(batch.labels):
            mine = order[borders[code] : borders[code + 1]]
            if len(mine):
                before = classes.get(label) or ClassState.empty(X)
                classes[label] = before.with_more(take(X, mine), weights[mine])
        self._classes = classes

    def _dense(self, X: Any) -> Any:
        """Rows as numbers whose squares do not overflow; sequences as they are."""
        if isinstance(X, list):
            return X
        check_magnitude(X, "EnclosingClassifier")
        return np.ascontiguousarray(X, dtype=np.float64)

    @transactional
    def forget_class(self, label: Label) -> Self:
        """Drop a class as if it had never come; the others stay as they are, bit for bit.

        Parameters
        ----------
        label : label
            One of ``classes_``.

        Returns
        -------
        self
        """
        check_started(self, "forget_class")
        if label not in self._classes:
            raise DataError(
                f"there is no class {label!r}; nothing was changed.",
                source="EnclosingClassifier.forget_class",
                hint=f"the classes are {self.classes_.tolist()!r}",
            )
        self._classes = {known: state for known, state in self._classes.items() if known != label}
        return self

    def merge(self, other: Self) -> Self:
        """Take over the classes of another learner, which stays as it is.

        Parameters
        ----------
        other : EnclosingClassifier
            A learner of the same features and of other classes. Bodies are taken over as they are where
            its parameters are those of this one, and trained anew with the parameters of this one
            otherwise.

        Returns
        -------
        self
        """
        if not isinstance(other, EnclosingClassifier):
            raise DataTypeError(
                f"expected another EnclosingClassifier; got {type(other).__name__}.",
                source="EnclosingClassifier.merge",
            )
        return self._merge(snapshot_view(other)) if other._is_started() else self

    @transactional
    def _merge(self, other: Self) -> Self:
        self._check_params()
        if not self._is_started():
            self._set_features(other._features())
            self._classes = {}
        self._check_mergeable(other)
        self._classes = self._classes | other._classes
        return self

    def _check_mergeable(self, other: EnclosingClassifier) -> None:
        self._check_same_features(other, "merge")
        shared = [label for label in other._classes if label in self._classes]
        if shared:
            raise DataError(
                f"only learners of different classes can be merged; both know {sorted(shared)[:5]!r}.",
                source="EnclosingClassifier.merge",
                hint="forget the class in one of them, or teach one the rows of the other with partial_fit()",
            )
        check_sortable([*self._classes, *other._classes], "EnclosingClassifier.merge")

    # -- answers ------------------------------------------------------------------------------------

    @snapshot_read
    def distance_ratio(self, X: ArrayLike) -> FloatArray:
        """Distance to the centre of each class in units of its radius.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Below 1 inside the body, above 1 outside; columns in the order of ``classes_``.
        """
        return distance_ratios(*self._asked(X, "distance_ratio"))

    @snapshot_read
    def membership(self, X: ArrayLike) -> FloatArray:
        r"""How much each row belongs to each class, as the paper measures it.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            For a row in no body :math:`R_m / d_m`, between 0 and 1 (equation 9 of the paper); for one in some
            body :math:`1 - d_m / R_m`, above 0 for the bodies that hold it (equation 11). The largest one is
            the class that :meth:`predict` answers.

        Examples
        --------
        >>> import numpy as np
        >>> from steelyard import EnclosingClassifier
        >>> X, y = np.array([[-1.0], [1.0], [9.0], [11.0]]), [0, 0, 1, 1]
        >>> EnclosingClassifier(shape="sphere").fit(X, y).membership([[0.5], [4.0]]).round(3)
        array([[ 0.5  , -8.5  ],
               [ 0.25 ,  0.167]])
        """
        ratios = distance_ratios(*self._asked(X, "membership"))
        outside = (ratios > 1.0).all(axis=1)
        result = 1.0 - ratios
        result[outside] = 1.0 / ratios[outside]
        return result

    @snapshot_read
    def novelty_score(self, X: ArrayLike) -> FloatArray:
        """How far outside of all classes a row lies: the smallest ratio of distance and radius, less 1.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Positive outside of every body.
        """
        return nearest_bodies(*self._asked(X, "novelty_score"))[1] - 1.0

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        ratios = distance_ratios(*self._asked(X, method))
        return ratios[:, :1] - ratios[:, 1:] if ratios.shape[1] == 2 else -ratios, self.classes_

    @snapshot_read
    def predict(self, X: ArrayLike, unknown: Label | None = None) -> NDArray[Any]:
        """Label of the class with the smallest ratio of distance and radius.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows to classify.
        unknown : label, optional
            Answer for rows outside of every body; without it they get the class that is nearest.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        nearest, ratio = nearest_bodies(*self._asked(X, "predict"))
        labels = np.asarray(self.classes_[nearest])
        return labels if unknown is None else _replaced(labels, ratio > 1.0 + _SURFACE, unknown)

    def _asked(self, X: Any, method: str) -> tuple[list[Body], Any]:
        """Return the bodies, and the rows that they are asked about once these have been checked."""
        if is_plain(self, X) and X.dtype == np.float64 and _native.all_within(X, MAX_FEATURE, num_threads()):
            return self._bodies(method), X  # one pass over the rows found nothing to say
        rows = self._dense(validate_rows(self, X, method))
        return self._bodies(method), rows

    def _bodies(self, what: str) -> list[Body]:
        """Return the bodies in the order of ``classes_``, trained if they are not yet."""
        check_started(self, what)
        if not self._classes:
            raise NotFittedError(
                "no class is left, all have been forgotten.",
                source=f"EnclosingClassifier.{what}",
                hint="teach a class with partial_fit() first",
            )
        self._check_params()
        settings, states = self._settings(), [self._classes[label] for label in sorted(self._classes)]
        known = [body for state in states if (body := state.known_body(settings)) is not None]
        if len(known) == len(states):
            return known
        with lock_of(self):  # so that several that ask at once do not work it out several times
            return [state.body(settings) for state in states]

    def _settings(self) -> BodySettings:
        kernel: Any = "polynomial" if self.kernel == "poly" else self.kernel
        if isinstance(kernel, SequenceKernel):
            kernel = self._frozen_kernel(kernel)
        return BodySettings(
            self.shape, kernel, self.gamma, self.degree, self.coef0, self.C, self.outliers, self.ridge
        )

    def _frozen_kernel(self, kernel: SequenceKernel) -> SequenceKernel:
        """A copy of the kernel, the same one for as long as its parameters do not change."""
        described = repr(kernel)
        if self.__dict__.get("_kernel_copy", ("", None))[0] != described:
            self._kernel_copy = described, clone(kernel)
        return self._kernel_copy[1]

    # -- what was learned ---------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes, sorted."""
        check_started(self, "classes_")
        return sorted_classes(list(self._classes))

    @property
    def class_count_(self) -> FloatArray:
        """Rows of each class."""
        check_started(self, "class_count_")
        classes = self._classes
        return np.array([classes[label].rows.total for label in sorted(classes)])

    @property
    def radius_(self) -> FloatArray:
        """Radius of each body."""
        return np.array([body.ball.radius for body in self._bodies("radius_")])

    @property
    @snapshot_read
    def support_vectors_(self) -> dict[Label, Any]:
        """Rows on or beyond the surface of each body."""
        bodies = self._bodies("support_vectors_")
        labels = sorted(self._classes)
        return {
            label: take(self._classes[label].rows.X, body.ball.alpha > 0.0)
            for label, body in zip(labels, bodies, strict=True)
        }

    @property
    @snapshot_read
    def center_(self) -> dict[Label, FloatArray]:
        """Centres of the bodies."""
        bodies = self._bodies("center_")
        if self.kernel != "linear":
            raise AttributeError(
                f"EnclosingClassifier.center_: with kernel={self.kernel!r} the centres lie in the space of "
                "the kernel and have no coordinates."
            )
        labels = sorted(self._classes)
        return {
            label: body.ball.alpha @ self._classes[label].rows.X
            for label, body in zip(labels, bodies, strict=True)
        }

    # -- saving -------------------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        settings, labels = self._settings(), sorted(self._classes)
        return {
            **self._features(),
            "labels": labels,
            "classes": [self._classes[label].describe(settings) for label in labels],
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        self._set_features(state)
        labels, settings = restored_labels(state["labels"]), self._settings()
        if sorted(set(labels)) != labels or len(labels) != len(state["classes"]):
            raise ValueError("the labels do not fit the classes")
        self._classes = {
            label: ClassState.restore(described, settings, self.n_features_in_)
            for label, described in zip(labels, state["classes"], strict=True)
        }


def _replaced(labels: NDArray[Any], places: NDArray[np.bool_], label: Label) -> NDArray[Any]:
    """Return labels with some replaced by one that may be of another type."""
    given = np.asarray(label)
    common = np.result_type(labels, given) if labels.dtype.kind == given.dtype.kind else np.dtype(object)
    if labels.dtype.kind in "iuf" and given.dtype.kind in "iuf":
        common = np.promote_types(labels.dtype, given.dtype)
    answers = labels.astype(common)
    answers[places] = label
    return answers
