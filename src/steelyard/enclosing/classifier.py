"""EnclosingClassifier: the smallest enclosing sphere or ellipsoid of each class."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from steelyard import _native
from steelyard._concurrency import lock_of, snapshot_read, snapshot_view
from steelyard._labels import check_sortable, restored_labels
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard._validation import (
    MAX_FEATURE,
    check_magnitude,
    check_started,
    is_plain,
    largest_magnitude,
    validate_rows,
)
from steelyard.base import Batch, Label, Learner, MergingMixin, Traits, sorted_classes, transactional
from steelyard.enclosing.bodies import (
    Ball,
    Body,
    BodySettings,
    ClassRows,
    build_body,
    distance_ratios,
    nearest_bodies,
)
from steelyard.exceptions import DataError, DataTypeError, NotFittedError, ParameterError
from steelyard.explanation.neighbors import RememberedRows
from steelyard.kernels.kernel import GAMMA
from steelyard.kernels.sequences import SequenceKernel, is_sequence_kernel, restored_items, sequence_key, take
from steelyard.params import (
    AnyOf,
    Finite,
    Fraction,
    Instance,
    Integer,
    NonNegative,
    OneOf,
    Positive,
    parameter,
    parametrized,
)
from steelyard.persistence import storable

# Rows that are outside by at most this fraction of the radius count as rows on the surface.
_SURFACE_TOLERANCE = 1e-6


@storable("EnclosingClassifier")
@parametrized(kw_only=True)
class EnclosingClassifier(MergingMixin, Learner):
    r"""Minimum enclosing sphere or ellipsoid per class, with open-set prediction.

    The sphere or ellipsoid that encloses the rows of a class is called the body of the class. Each class is
    learned from its own rows alone. Adding a class never changes the bodies of the other classes, and a class
    can be removed as if it had never been learned. ``predict`` can return a given label, such as "unknown",
    for rows outside every body.

    Parameters
    ----------
    shape : {"ellipsoid", "sphere"}, default="ellipsoid"
        A sphere has a center and a radius. An ellipsoid follows the covariance of the class: it is the
        smallest ball in whitened coordinates.
    kernel : {"linear", "polynomial", "rbf", "laplacian"} or sequence kernel, default="linear"
        Kernel whose feature space contains the bodies; "poly" is short for "polynomial". With a sequence
        kernel, such as :class:`~steelyard.kernels.GlobalAlignmentKernel`, ``X`` is a list of sequences.
    gamma : float or {"scale", "auto", "median"}, default="scale"
        Coefficient of the polynomial, rbf and laplacian kernels. "scale" is 1 / (n_features * variance) and
        "median" uses the median distance, both computed separately for each class. "auto" is 1 / n_features.
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Constant term of the polynomial kernel.
    C : float, optional
        Penalty of a row outside the body. If C is below 1, about 1 / C rows are on or outside the surface.
        Otherwise every row is inside. A class of fewer than 1 / C rows is treated as if it had 1 / C rows.
    outliers : float, default=0.0
        Fraction of the rows of each class that may be outside its body, from 0 to 1. C is then
        1 / (outliers * number of rows of the class), so ``C`` must not be set.
    ridge : float or "auto", default=0.01
        Number that is added to every eigenvalue of the covariance of an ellipsoid, in squared units of the
        features. It is needed if rows are few or do not vary in some direction. "auto" interpolates between
        ellipsoid and sphere, by leave-one-out distances within each class. With 0 the pseudo-inverse of the
        covariance is used: directions without variance do not count, so a row can be inside although it
        differs in such a direction.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes.
    radius_ : ndarray of shape (n_classes,)
        Radius of each body. The radius of an ellipsoid is in standard deviations.
    support_vectors_ : dict of label to ndarray or list of sequences
        Rows on or outside the surface of each body. They determine the body.
    center_ : dict of label to ndarray of shape (n_features,)
        Centers of the bodies. Available only with the linear kernel.
    class_count_ : ndarray of shape (n_classes,)
        Sum of the row weights of each class.
    n_features_in_, feature_names_in_
        As in all learners.

    See Also
    --------
    sklearn.svm.OneClassSVM : With the rbf kernel, its solution is the sphere around all rows.

    Notes
    -----
    For a class with rows :math:`x_1 \dots x_l`, its covariance :math:`S` and the feature map :math:`\phi` of
    the kernel, the body has the center :math:`a = \sum_i \alpha_i \phi(x_i)`, where :math:`\alpha` solves

    .. math::

        \max_\alpha\; \sum_i \alpha_i G_{ii} - \alpha^\top G \alpha, \qquad
        \sum_i \alpha_i = 1, \quad 0 \le \alpha_i \le C, \qquad
        G_{ij} = \phi(x_i)^\top (S + \mathrm{ridge} \cdot I)^{-1} \phi(x_j)

    (:math:`G_{ij} = \phi(x_i)^\top \phi(x_j)` for spheres). The radius is the root of the mean squared
    distance of the rows with :math:`0 < \alpha_i < C`. A row belongs to the class with the smallest
    ratio :math:`d_m(x) / R_m` of distance to radius. Outside the body this ratio is above 1. Scores are the
    negated ratios. With two classes the score is the ratio of the first class minus that of the second.

    The learner stores all distinct rows, because a body can only be updated from the rows. The model does not
    depend on the order of the rows or on batch boundaries. Bodies are computed on first use;
    :meth:`set_params` can change parameters at any time. A row of weight k counts as k repetitions.
    Repetitions affect the covariance, ``C`` and ``outliers``, but not a sphere that contains every row.

    If all rows of a class are equal, its body is a point of radius 0. The class is predicted at this point,
    and elsewhere only if the bodies of all classes are points and this point is the nearest.
    Directions without variance, such as a constant feature, have variance ``ridge``.

    References
    ----------
    Y. Qin, H. R. Karimi, D. Li, S. Lun, A. Zhang: A Mahalanobis hyperellipsoidal learning machine class
    incremental learning algorithm (MHE-CIL). Abstract and Applied Analysis, 2014. The paper compares
    MHE-CIL with spheres (HS-CIL) and with ellipsoids that contain every row (HE-CIL).

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

    # Bodies are computed from all distinct rows, so memory grows with the number of distinct rows.
    _traits = Traits(exact=True, bounded_memory=False)

    shape: str = parameter("ellipsoid", OneOf("ellipsoid", "sphere"))
    kernel: str | SequenceKernel = parameter(
        "linear",
        AnyOf(
            OneOf("linear", "polynomial", "poly", "rbf", "laplacian"),
            Instance(SequenceKernel, description="a sequence kernel"),
        ),
    )
    gamma: float | str = parameter("scale", GAMMA)
    degree: int = parameter(3, Integer(1))
    coef0: float = parameter(0.0, Finite())
    C: float | None = parameter(None, AnyOf(OneOf(None), Positive()))
    outliers: float = parameter(0.0, Fraction(0.0, 1.0))
    ridge: float | str = parameter(0.01, AnyOf(NonNegative(), OneOf("auto")))

    # -- learning and forgetting --------------------------------------------------------------------

    def _check_params(self) -> None:
        super()._check_params()
        if self.C is not None and self.outliers > 0.0:
            raise ParameterError(
                f"C and outliers are alternatives; got C={self.C!r} and outliers={self.outliers!r}.",
                source="EnclosingClassifier",
                hint="leave C or outliers at its default",
            )

    def _start(self, batch: Batch) -> None:  # noqa: ARG002 - an empty state does not depend on the rows
        self._classes: dict[Label, ClassState] = {}

    def _learn(self, batch: Batch) -> None:
        X = self._dense(batch.X)
        weights = np.ones(len(X)) if batch.weights is None else batch.weights
        classes = self._classes.copy()
        for code, label in enumerate(batch.labels):
            rows = np.flatnonzero((batch.codes == code) & (weights > 0.0))
            if len(rows):
                before = classes.get(label) or ClassState(ClassRows(X[:0], np.empty(0)))
                classes[label] = before.with_more(take(X, rows), weights[rows])
        self._classes = classes

    def _dense(self, X: Any) -> Any:
        """Return rows as float64, or sequences unchanged. Raise an error if squares would overflow."""
        if isinstance(X, list):
            return X
        check_magnitude(X, "EnclosingClassifier")
        return np.ascontiguousarray(X, dtype=np.float64)

    @transactional
    def forget_class(self, label: Label) -> Self:
        """Remove a class as if it had never been learned. The other classes do not change.

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
                f"unknown class {label!r}; nothing was changed.",
                source="EnclosingClassifier.forget_class",
                hint=f"the classes are {self.classes_.tolist()!r}",
            )
        self._classes = {known: state for known, state in self._classes.items() if known != label}
        return self

    def merge(self, other: Self) -> Self:
        """Add the classes of another learner. The other learner is not changed.

        Parameters
        ----------
        other : EnclosingClassifier
            Learner with the same features and other classes. If its parameters are the same, its bodies are
            copied. Otherwise the bodies are computed again with the parameters of this learner.

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
        self._check_same_features(other, "merge")
        shared = [label for label in other._classes if label in self._classes]
        if shared:
            raise DataError(
                f"only learners of different classes can be merged; both contain {sorted(shared)[:5]!r}.",
                source="EnclosingClassifier.merge",
                hint="forget the class in one learner, or pass its rows to partial_fit() of the other",
            )
        check_sortable([*self._classes, *other._classes], "EnclosingClassifier.merge")
        self._classes = self._classes | other._classes
        return self

    # -- prediction ---------------------------------------------------------------------------------

    @snapshot_read
    def distance_ratio(self, X: ArrayLike) -> FloatArray:
        """Return the distance to the center of each class in units of its radius.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The distance is below 1 inside the body and above 1 outside. Columns are in the order of
            ``classes_``.
        """
        return distance_ratios(*self._bodies_and_rows(X, "distance_ratio"))

    @snapshot_read
    def membership(self, X: ArrayLike) -> FloatArray:
        r"""Return the membership of each row in each class, as defined in the MHE-CIL paper.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Let :math:`R_m` be the radius of a body and :math:`d_m` the distance to its center. For a row
            outside all bodies, the membership is :math:`R_m / d_m`, between 0 and 1 (equation 9 of the
            paper). For a row inside some body, it is :math:`1 - d_m / R_m`, which is positive for the bodies
            that contain the row (equation 11). The largest entry belongs to the class that :meth:`predict`
            returns.

        Examples
        --------
        >>> import numpy as np
        >>> from steelyard import EnclosingClassifier
        >>> X, y = np.array([[-1.0], [1.0], [9.0], [11.0]]), [0, 0, 1, 1]
        >>> EnclosingClassifier(shape="sphere").fit(X, y).membership([[0.5], [4.0]]).round(3)
        array([[ 0.5  , -8.5  ],
               [ 0.25 ,  0.167]])
        """
        ratios = distance_ratios(*self._bodies_and_rows(X, "membership"))
        outside = (ratios > 1.0).all(axis=1)
        result = 1.0 - ratios
        result[outside] = 1.0 / ratios[outside]
        return result

    @snapshot_read
    def novelty_score(self, X: ArrayLike) -> FloatArray:
        """Return the smallest ratio of distance to radius over all classes, minus 1.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Positive outside every body.
        """
        return nearest_bodies(*self._bodies_and_rows(X, "novelty_score"))[1] - 1.0

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        ratios = distance_ratios(*self._bodies_and_rows(X, method))
        return ratios[:, :1] - ratios[:, 1:] if ratios.shape[1] == 2 else -ratios, self.classes_

    def _remembered_rows(self) -> RememberedRows:
        rows = [self._classes[label].rows.X for label in sorted(self._classes)]
        return RememberedRows(np.concatenate(rows), np.repeat(self.classes_, [len(part) for part in rows]))

    @snapshot_read
    def predict(self, X: ArrayLike, unknown: Label | None = None) -> NDArray[Any]:
        """Return the label of the class with the smallest ratio of distance to radius.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows to classify.
        unknown : label, optional
            Label for rows outside every body. None assigns them to the nearest class.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        nearest, ratio = nearest_bodies(*self._bodies_and_rows(X, "predict"))
        labels = np.asarray(self.classes_[nearest])
        return labels if unknown is None else _replaced(labels, ratio > 1.0 + _SURFACE_TOLERANCE, unknown)

    def _bodies_and_rows(self, X: Any, method: str) -> tuple[list[Body], Any]:
        """Return the bodies and the validated rows."""
        if is_plain(self, X) and X.dtype == np.float64 and _native.all_within(X, MAX_FEATURE, num_threads()):
            return self._bodies(method), X  # fast path: native code validates and scores the rows in one pass
        rows = self._dense(validate_rows(self, X, method))
        return self._bodies(method), rows

    def _bodies(self, method: str) -> list[Body]:
        """Return the bodies in the order of ``classes_``. Bodies that are not cached are computed."""
        check_started(self, method)
        if not self._classes:
            raise NotFittedError(
                "all classes have been forgotten.",
                source=f"EnclosingClassifier.{method}",
                hint="call partial_fit() first",
            )
        self._check_params()
        settings, states = self._settings(), [self._classes[label] for label in sorted(self._classes)]
        cached = [body for state in states if (body := state.cached_body(settings)) is not None]
        if len(cached) == len(states):
            return cached
        with lock_of(self):  # prevents concurrent readers from computing the same bodies
            return [state.body(settings) for state in states]

    def _settings(self) -> BodySettings:
        kernel: Any = "polynomial" if self.kernel == "poly" else self.kernel
        if isinstance(kernel, SequenceKernel):
            described = repr(kernel)  # the same copy is used until the parameters of the kernel change
            if self.__dict__.get("_kernel_copy", ("", None))[0] != described:
                self._kernel_copy = described, clone(kernel)
            kernel = self._kernel_copy[1]
        return BodySettings(
            self.shape, kernel, self.gamma, self.degree, self.coef0, self.C, self.outliers, self.ridge
        )

    # -- fitted attributes --------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes, sorted."""
        check_started(self, "classes_")
        return sorted_classes(list(self._classes))

    @property
    def class_count_(self) -> FloatArray:
        """Sum of the row weights of each class."""
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
        """Rows on or outside the surface of each body."""
        return {label: take(X, alpha > 0.0) for label, X, alpha in self._weighted_rows("support_vectors_")}

    @property
    @snapshot_read
    def center_(self) -> dict[Label, FloatArray]:
        """Centers of the bodies."""
        weighted = self._weighted_rows("center_")
        if self.kernel != "linear":
            raise AttributeError(
                f"EnclosingClassifier.center_: with kernel={self.kernel!r} the centers are in the feature "
                "space of the kernel and have no coordinates."
            )
        return {label: alpha @ X for label, X, alpha in weighted}

    def _weighted_rows(self, method: str) -> list[tuple[Label, Any, FloatArray]]:
        """Return the label and the rows of each class, and the weights of these rows in its center."""
        labelled = zip(sorted(self._classes), self._bodies(method), strict=True)
        return [(label, self._classes[label].rows.X, body.ball.alpha) for label, body in labelled]

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        settings, labels = self._settings(), sorted(self._classes)
        classes = [self._classes[label].describe(settings) for label in labels]
        return {**self._features(), "labels": labels, "classes": classes}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._set_features(state)
        labels, settings = restored_labels(state["labels"]), self._settings()
        if sorted(set(labels)) != labels or len(labels) != len(state["classes"]):
            raise ValueError("the labels do not match the classes")
        classes = [ClassState.restore(tree, settings, self.n_features_in_) for tree in state["classes"]]
        self._classes = dict(zip(labels, classes, strict=True))


def _replaced(labels: NDArray[Any], mask: NDArray[np.bool_], label: Label) -> NDArray[Any]:
    """Return ``labels`` with the entries in ``mask`` replaced by ``label``, which may have another type."""
    given = np.asarray(label)
    common = np.result_type(labels, given) if labels.dtype.kind == given.dtype.kind else np.dtype(object)
    if labels.dtype.kind in "iuf" and given.dtype.kind in "iuf":
        common = np.promote_types(labels.dtype, given.dtype)
    result = labels.astype(common)
    result[mask] = label
    return result


class ClassState:
    """Rows of one class and a cache of its body. Instances are immutable, except that the cache is filled.

    New batches are stored in a linked list until the rows are needed. An entry is a tuple of the earlier
    entries, rows and weights, so successive states share entries.
    """

    def __init__(self, rows: ClassRows, batches: tuple[Any, ...] = ()) -> None:
        self._content = rows, batches
        self._cached: tuple[BodySettings, Ball, Body | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A body may contain native objects, which cannot be pickled, so it is rebuilt from the ball.
        rows, cached = self.rows, self._cached
        return {"_content": (rows, ()), "_cached": None if cached is None else (*cached[:2], None)}

    def with_more(self, X: Any, weights: FloatArray) -> ClassState:
        """Return the state with more rows added."""
        rows, batches = self._content
        return ClassState(rows, (batches, X, weights))

    @property
    def rows(self) -> ClassRows:
        """All rows of the class."""
        rows, batches = self._content
        if batches:
            newest_first = []
            while batches:
                batches, X, weights = batches
                newest_first.append((X, weights))
            rows = rows.with_more(newest_first[::-1])
            self._content = rows, ()
        return rows

    def cached_body(self, settings: BodySettings) -> Body | None:
        """Return the body for these settings, or None if it is not cached."""
        cached = self._cached
        return None if cached is None or cached[0] != settings else cached[2]

    def body(self, settings: BodySettings) -> Body:
        """Return the body for these settings, computed if it is not cached."""
        body = self.cached_body(settings)
        if body is None:
            cached = self._cached
            ball = None if cached is None or cached[0] != settings else cached[1]
            body = build_body(self.rows, settings, ball)
            self._cached = settings, body.ball, body
        return body

    def describe(self, settings: BodySettings) -> dict[str, Any]:
        """Return rows and ball as a dict, from which the body can be rebuilt without the solver."""
        ball, rows = self.body(settings).ball, self.rows
        return {"X": rows.X, "weights": rows.weights, "alpha": ball.alpha, "radius": ball.radius}

    @classmethod
    def restore(cls, described: dict[str, Any], settings: BodySettings, n_features: int) -> ClassState:
        """Restore the state from the result of ``describe``."""
        X: Any
        weights, alpha = arrays = [np.ascontiguousarray(described[name]) for name in ("weights", "alpha")]
        radius = float(described["radius"])
        if is_sequence_kernel(settings.kernel):
            X = restored_items(settings.kernel, described["X"])
        else:
            X = np.ascontiguousarray(described["X"])
            arrays.append(X)
            if X.ndim != 2 or X.shape[1] != n_features:
                raise ValueError("the rows of a class do not match the number of features")
        # The comparison is also false for NaN.
        if not all(array.dtype == np.float64 and largest_magnitude(array) <= MAX_FEATURE for array in arrays):
            raise ValueError(f"a class contains values that are not float64 numbers up to {MAX_FEATURE:.0e}")
        if not len(X) or not weights.shape == alpha.shape == (len(X),):
            raise ValueError("the arrays of a class do not match in shape")
        if not ((weights > 0).all() and (alpha >= 0).all() and (alpha > 0).any() and 0 <= radius < np.inf):
            raise ValueError("a class has weights or a radius out of range")
        rows = ClassRows.gather(X, weights)
        if isinstance(X, list):
            is_sorted = list(map(sequence_key, rows.X)) == list(map(sequence_key, X))
        else:
            is_sorted = np.array_equal(rows.X, X)
        if not is_sorted:
            raise ValueError("the rows of a class are not distinct or not sorted")
        state = cls(rows)
        state._cached = settings, Ball(alpha, radius), None
        return state
