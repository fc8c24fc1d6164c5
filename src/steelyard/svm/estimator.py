"""IncrementalSVC: the kernel SVM that learns and forgets rows exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from steelyard._concurrency import lock_of
from steelyard._labels import all_forgotten_error
from steelyard._types import FloatArray
from steelyard._validation import check_started, validate_rows
from steelyard.base import Batch, ForgettingMixin, Label, Traits, fitted_property, sorted_classes
from steelyard.exceptions import DataError
from steelyard.explanation.attribution import Attribution, explain_kernel_sum
from steelyard.explanation.neighbors import RememberedRows
from steelyard.kernels.kernel import GAMMA, Kernel
from steelyard.params import (
    AnyOf,
    ClassWeight,
    Function,
    Integer,
    OneOf,
    Positive,
    parameter,
    parametrized,
)
from steelyard.persistence import storable
from steelyard.svm.state import Predictor, SupportState

_MEGABYTE = 1 << 20
_MAX_CACHE_MEGABYTES = 1 << 40  # far more memory than any machine has


@storable("IncrementalSVC")
@parametrized()
class IncrementalSVC(ForgettingMixin):
    r"""Kernel support vector machine that learns and forgets rows exactly.

    After every call the decision function is that of the soft-margin SVM trained on the current rows only, as
    :class:`sklearn.svm.SVC` would find it with a very small tolerance. Added and forgotten rows change the
    solution only a little, so the solver starts from the previous solution. In the literature this is the
    incremental SVM (IncSVM) of Cauwenberghs and Poggio [1]_.

    Parameters
    ----------
    C : float, default=1.0
        Regularization parameter: weight of the errors. A change takes effect at the next call that learns or
        forgets.
    kernel : {"rbf", "linear", "poly", "laplacian"} or callable, default="rbf"
        The kernel. With a sequence kernel, such as :class:`~steelyard.kernels.GlobalAlignmentKernel`, ``X``
        is a list of sequences in all methods. Any other function takes two arrays of shapes (n, n_features)
        and (m, n_features) and returns the (n, m) matrix of their kernel values, which must be symmetric and
        positive semi-definite.
    gamma : float or {"scale", "auto", "median"}, default="scale"
        Coefficient of the kernel. For a name, gamma is computed from the rows of the first call.
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=0.0
        Constant of the polynomial kernel.
    class_weight : "balanced", None or dict, default=None
        Factors of C. With "balanced", the positive and the negative rows of a plane have the same total
        weight, computed from the current counts. A dict has a factor for each label, and 1 for labels that it
        does not contain.
    threshold : {"zero", "gmean"}, default="zero"
        Threshold of the scores: zero, or the threshold with the largest G-mean on the current rows. The score
        of a row then omits the kernel value of the row with itself. The threshold is included in
        ``intercept_``. It is computed at the first prediction after a change, from the kernel values of all
        rows with all support vectors.
    tol : float, default=1e-8
        Largest accepted violation of the optimality (KKT) conditions. Larger violations remain only if
        rounding errors are larger (huge coefficients times huge kernel values).
    cache_size : float, default=200
        Size of the cache of kernel rows in megabytes. Rows that are not cached are computed when they are
        needed. The size does not change any result.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that have rows now.
    class_count_ : ndarray of shape (n_classes,)
        Number of rows of each class now.
    support_vectors_ : ndarray of shape (n_vectors, n_features), or list of sequences
        Rows with a nonzero coefficient in any plane.
    support_ : ndarray of shape (n_vectors,)
        Row numbers of the support vectors. After ``fit(X, y)`` these are positions in ``X`` (rows of weight 0
        are not counted). Later rows get the next numbers; when a row is forgotten, the last row gets that
        number.
    n_support_ : ndarray of shape (n_classes,)
        Number of support vectors of each class.
    coef_ : ndarray of shape (n_planes, n_features)
        Normals of the planes; only with the linear kernel.
    dual_coef_ : ndarray of shape (n_planes, n_vectors)
        Coefficients :math:`y_i \alpha_i`; one plane for two classes, else one per class.
    intercept_ : ndarray of shape (n_planes,)
        Intercepts of the decision functions.
    margin_size_ : int
        Number of rows with coefficients strictly between their bounds (the margin set), over all planes.
    n_features_in_, feature_names_in_
        As in all learners.

    See Also
    --------
    steelyard.ProximalSVC : Also exact, and much faster; fits planes by least squares.

    Notes
    -----
    With :math:`z_i = y_i \alpha_i` the solver maintains the optimum of

    .. math::

        \min_z \tfrac12 z^\top K z - y^\top z \quad\text{subject to}\quad \sum_i z_i = 0,
        \quad 0 \le y_i z_i \le C_i .

    Changes are the adiabatic increments of [1]_, for any number of samples at once; the documentation page
    describes the steps. A large change, such as the first fit, starts with sequential minimal optimization
    (SMO), which also takes over if the number of steps reaches its limit. If SMO does not reach `tol` either,
    the call raises :class:`~steelyard.exceptions.SolverError` and nothing changes.

    There is no ``predict_proba``, because the scores are not calibrated; use
    ``sklearn.calibration.CalibratedClassifierCV``. There is no ``decision_function_shape``, because planes
    are one against the rest. Instead of ``kernel="precomputed"`` there is
    :class:`~steelyard.kernels.PrecomputedKernel`: its samples are row numbers of a matrix, so they can be
    added and forgotten.

    If no coefficient is strictly between its bounds, the intercept is not unique, and the middle of its
    interval is used. Rows are stored dense.

    References
    ----------
    .. [1] G. Cauwenberghs and T. Poggio, "Incremental and Decremental Support Vector Machine Learning",
       Advances in Neural Information Processing Systems 13, 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.svm import SVC
    >>> from steelyard import IncrementalSVC
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(300) < 0.1).astype(int)
    >>> X = rng.normal(size=(300, 2)) + 1.5 * y[:, None]
    >>> model = IncrementalSVC(gamma=0.5).partial_fit(X[:200], y[:200])
    >>> model = model.update(add=(X[200:], y[200:]), forget=(X[:100], y[:100]))
    >>> fresh = SVC(gamma=0.5, tol=1e-10).fit(X[100:], y[100:])
    >>> bool(np.allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-6))
    True
    """

    _accepts_sparse = True
    _in_place = ("_state",)

    C: float = parameter(1.0, Positive())
    _: KW_ONLY
    kernel: str | Callable[[Any, Any], Any] = parameter(
        "rbf",
        AnyOf(
            OneOf("linear", "poly", "polynomial", "rbf", "laplacian"),  # positive semi-definite kernels
            Function("a function of two tables (PrecomputedKernel(K) for a given kernel matrix)"),
        ),
    )
    gamma: float | str = parameter("scale", GAMMA)
    degree: int = parameter(3, Integer(0))
    coef0: float = 0.0
    class_weight: str | dict[Label, float] | None = parameter(None, ClassWeight())
    threshold: str = parameter("zero", OneOf("zero", "gmean"))
    tol: float = parameter(1e-8, Positive())
    cache_size: float = parameter(200, Positive())

    @property
    def _traits(self) -> Traits:  # type: ignore[override]
        reason = f"gamma={self.gamma!r} is computed from the rows of the first call"
        exempt = {"chunk_borders_do_not_matter": reason} if isinstance(self.gamma, str) else {}
        return Traits(exact=True, bounded_memory=False, exempt=exempt)

    # -- learning and forgetting --------------------------------------------------------------------

    def _start(self, batch: Batch) -> None:
        kernel = Kernel(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)
        n_columns = 1 if isinstance(batch.X, list) else batch.X.shape[1]
        self._state = SupportState(
            _resolved(kernel, batch),
            n_columns,
            int(min(float(self.cache_size), _MAX_CACHE_MEGABYTES) * _MEGABYTE),
        )

    def _learn(self, batch: Batch) -> None:
        self._apply(batch, None, "partial_fit")

    def _apply(self, add: Batch | None, forget: Batch | None, method: str) -> None:
        self._state.update(
            add,
            forget,
            C=float(self.C),
            class_weight=self.class_weight,
            tol=float(self.tol),
            source=f"IncrementalSVC.{method}",
        )

    def _change(self, add: Any, forget: Any, method: str) -> Self:
        attributes = self.__dict__
        with lock_of(self):
            state: SupportState | None = attributes.get("_state")
            # A sliding window learns one row and forgets another by one native call, if this is possible.
            if (
                state is not None
                and attributes["class_weight"] is None
                and "feature_names_in_" not in attributes
                and state.labels.slide_key == (attributes["C"], attributes["tol"])
                and state.slide(add, forget)
            ):
                return self
            return super()._change(add, forget, method)

    # -- fitted attributes --------------------------------------------------------------------------

    @fitted_property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that currently have rows."""
        return sorted_classes(self._state.labels.classes)

    @fitted_property
    def class_count_(self) -> NDArray[np.int64]:
        """Current number of rows of each class."""
        labels = self._state.labels
        return np.array([labels.counts[labels.codes[label]] for label in labels.classes], dtype=np.int64)

    @fitted_property
    def support_vectors_(self) -> Any:
        """Rows with a nonzero coefficient in any plane."""
        return self._predictor().expansion.vectors

    @fitted_property
    def support_(self) -> NDArray[np.int64]:
        """Row numbers of the support vectors."""
        with lock_of(self):
            return self._state.support()[0]

    @fitted_property
    def n_support_(self) -> NDArray[np.int64]:
        """Number of support vectors of each class."""
        with lock_of(self):
            codes, labels = self._state.support()[1], self._state.labels
            counts = [np.sum(codes == labels.codes[label]) for label in labels.classes]
            return np.array(counts, dtype=np.int64)

    @fitted_property
    def coef_(self) -> FloatArray:
        """Normals of the planes, for the linear kernel only."""
        expansion = self._predictor().expansion
        if self.kernel != "linear":
            raise AttributeError(
                f"IncrementalSVC.coef_: only the linear kernel has coefficients of features; got "
                f"kernel={self.kernel!r}."
            )
        normals = np.asarray(expansion.coef @ expansion.vectors)
        normals.flags.writeable = False  # changing this array would have no effect on predictions
        return normals

    @fitted_property
    def dual_coef_(self) -> FloatArray:
        """Coefficients of the support vectors, one row per plane."""
        return self._predictor().expansion.coef

    @fitted_property
    def intercept_(self) -> FloatArray:
        """Intercepts of the decision functions."""
        return self._predictor().expansion.intercept

    @fitted_property
    def margin_size_(self) -> int:
        """Number of rows in the margin sets of all planes."""
        with lock_of(self):
            return self._state.margin_size

    def kkt_violation(self) -> float:
        """Return the largest violation of the optimality (KKT) conditions, computed from all rows.

        The violation has the unit of the decision function, in which the margin is 1.

        Returns
        -------
        float
        """
        check_started(self, "kkt_violation")
        with lock_of(self):
            return self._state.violation()

    def _predictor(self) -> Predictor:
        """Return classes and decision functions of the current rows."""
        return self._state.predictor(lock_of(self), self.threshold)

    # -- prediction ---------------------------------------------------------------------------------

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        # The docstring is inherited. A single row takes one native call unless another thread is learning.
        attributes = self.__dict__
        state: SupportState | None = attributes.get("_state")
        if state is not None and attributes["threshold"] == "zero":
            label = None if "feature_names_in_" in attributes else state.label(X)
            if label is not None:
                return label
        return super().predict(X)

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        X, predictor = validate_rows(self, X, method), self._predictor()
        if not len(predictor.classes):
            raise all_forgotten_error(f"IncrementalSVC.{method}")
        return predictor.expansion.scores(X.toarray() if sp.issparse(X) else X), predictor.classes

    def _remembered_rows(self) -> RememberedRows:
        with lock_of(self):
            return self._state.remembered_rows()

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        e = self._predictor().expansion
        return explain_kernel_sum(X, e.kernel, e.vectors, e.coef, e.intercept, background=background)

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        kernel, solution = self._state.kernel.to_tree(), self._state.to_tree()
        return {**self._features(), "kernel": kernel, "solution": solution}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._state = SupportState.from_tree(Kernel.from_tree(state["kernel"]), state["solution"])
        self._state.check_optimal(float(self.tol))
        self._set_features(state)
        if self._state.catalogue is None and self.n_features_in_ != self._state.n_features:
            raise ValueError("the number of features does not match the rows")


def _resolved(kernel: Kernel, batch: Batch) -> Kernel:
    """Return the kernel with gamma computed from the rows, where a row of weight w counts as w rows."""
    X, weights = batch.X, batch.weights
    if isinstance(X, list):
        return kernel.resolve(X)
    if weights is None or kernel.gamma != "scale":
        return kernel.resolve(X if weights is None else X[weights > 0.0])
    table = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if not weights.any():
        raise DataError("all rows of the first call have weight 0.", source="IncrementalSVC")
    shares = weights / (weights.sum() * table.shape[1])
    mean = float((shares @ table).sum())
    variance = float((shares @ (table - mean) ** 2).sum())
    gamma = 1.0 / (table.shape[1] * variance) if variance > 0.0 else 1.0
    return Kernel(kernel.kernel, gamma=gamma, degree=kernel.degree, coef0=kernel.coef0)
