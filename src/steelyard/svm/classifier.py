"""IncrementalSVC: the kernel SVM that learns and forgets rows exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from steelyard import _native
from steelyard._concurrency import lock_of
from steelyard._labels import all_forgotten_error
from steelyard._shared_text import expand_shared_text
from steelyard._types import FloatArray
from steelyard._validation import check_finite, check_started, validate_rows
from steelyard.base import Batch, ForgettingMixin, Label, Traits, sorted_classes
from steelyard.exceptions import DataError
from steelyard.kernels.kernel import GAMMA, Kernel
from steelyard.params import ClassWeight, Constraint, Integer, OneOf, Positive
from steelyard.persistence import storable
from steelyard.svm.expansion import KernelExpansion
from steelyard.svm.state import SupportState

__all__ = ["IncrementalSVC"]


_MEGABYTE = 1 << 20
_LARGEST_CACHE = 1 << 40  # megabytes; more than any machine has


class _KernelChoice:
    """A positive semi-definite kernel by name, or a function."""

    names = ("linear", "poly", "polynomial", "rbf", "laplacian")
    description = (
        f"one of {', '.join(map(repr, names))} or a function of two tables "
        "(PrecomputedKernel(K) where the values are known beforehand)"
    )

    def accepts(self, value: object) -> bool:
        return callable(value) or (isinstance(value, str) and value in self.names)


@expand_shared_text
@storable("IncrementalSVC")
class IncrementalSVC(ForgettingMixin):
    r"""Kernel support vector machine that learns and forgets rows exactly.

    After every call the decision function is that of the soft-margin SVM trained on the current rows alone,
    as :class:`sklearn.svm.SVC` would find it with a very small tolerance; only the way there is shorter. Rows
    that come and go move the solution a little, and the solver follows it from where it was.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the errors. It may be changed between calls; the next call that learns or forgets follows.
    kernel : {"rbf", "linear", "poly", "laplacian"} or callable, default="rbf"
        The kernel. With a sequence kernel, such as :class:`~steelyard.kernels.GlobalAlignmentKernel`, ``X``
        is a list of sequences everywhere. Any other function takes two tables of shapes (n, n_features) and
        (m, n_features) and returns the (n, m) matrix of their kernel values, which must be symmetric and
        positive semi-definite.
    gamma : float or {"scale", "auto", "median"}, default="scale"
        Width of the kernel. A word is settled by the rows of the first call and then stays.
    degree : int, default=3
        Power of the polynomial kernel.
    coef0 : float, default=0.0
        Constant of the polynomial kernel.
    class_weight : "balanced", None or dict, default=None
        Factors of C. "balanced" gives both sides of a plane the same total weight and follows the counts as
        they change; a dict gives each label a factor of its own (1 where it has none).
    threshold : {"zero", "gmean"}, default="zero"
        Where scores are cut: at zero, or where the geometric mean of both hit rates over the current rows is
        largest, each row scored without its own term. The cut is part of ``intercept_``; it is worked out
        when first asked for after a change, and costs the kernel values of all rows with all support vectors.
    tol : float, default=1e-8
        The largest violation of the optimality conditions that is accepted. Where rounding alone is larger
        (huge coefficients times huge kernel values), rounding is the limit.
    cache_size : float, default=200
        Megabytes that kept rows of the kernel matrix may take. Rows beyond it are evaluated again when they
        are needed; the answers do not change.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that have rows now.
    class_count_ : ndarray of shape (n_classes,)
        Number of rows of each class now.
    support_vectors_ : ndarray of shape (n_vectors, n_features), or list of sequences
        Rows with a coefficient other than zero in any plane.
    support_ : ndarray of shape (n_vectors,)
        Their numbers. After ``fit(X, y)`` these are positions in ``X`` (rows of weight 0 are not counted).
        Rows that are learned later are numbered on; when a row is forgotten, the last one gets its number.
    n_support_ : ndarray of shape (n_classes,)
        How many of them each class has.
    coef_ : ndarray of shape (n_planes, n_features)
        Normals of the planes; with the linear kernel only.
    dual_coef_ : ndarray of shape (n_planes, n_vectors)
        Coefficients :math:`y_i \alpha_i`; one plane for two classes, otherwise one a class.
    intercept_ : ndarray of shape (n_planes,)
        Constants of the decision functions.
    margin_size_ : int
        Rows whose coefficients lie strictly between their bounds and pin the solution, over all planes.
    n_features_in_, feature_names_in_
        As in all learners.

    See Also
    --------
    steelyard.ProximalSVC : Exact as well, and far faster, for planes fitted by least squares.

    Notes
    -----
    With :math:`z_i = y_i \alpha_i` the solver keeps the optimum of

    .. math::

        \min_z \tfrac12 z^\top K z - y^\top z \quad\text{subject to}\quad \sum_i z_i = 0,
        \quad 0 \le y_i z_i \le C_i .

    Samples that leave, and samples whose bound changes, move to where they must be while the margin set
    responds so that :math:`y_i f(x_i) = 1` keeps holding on it (the adiabatic steps of Cauwenberghs and
    Poggio, 2000, for any number of samples at once). Then each sample that violates its condition is moved
    in the same way until it violates no more, the worst first. Every such move lowers the objective, so no
    set of margin samples can come twice. A change too large for this, such as the first fit, starts with
    sequential minimal optimisation, which is also the repair if the number of steps should run out. If even
    that does not reach `tol`, the call raises :class:`~steelyard.exceptions.SolverError` and nothing changes.

    Kept kernel rows are 16-bit numbers for the rbf and laplacian kernels and 32-bit numbers for the others,
    as long as that can be made up for: sums over them come with a bound of the error, and a row that is
    nearer to violating a condition than the bound is summed again in 64 bits.

    There is no ``predict_proba``: a score says on which side of the plane a row lies, not how often such rows
    are of a class. ``sklearn.calibration.CalibratedClassifierCV`` learns that from rows left out. There is no
    ``decision_function_shape`` either: planes are one against the rest, so there are no scores of pairs of
    classes. In place of ``kernel="precomputed"`` there is :class:`~steelyard.kernels.PrecomputedKernel`: its
    samples are numbers of rows of a matrix, so that they can come and go.

    Where no row lies strictly between its bounds the intercept is not unique; it is then the middle of its
    interval. More than two classes are learned one against the rest, on shared kernel rows. Rows are kept
    dense. Those to forget are found by value, in a time that does not grow with the number of rows.

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

    _constraints: ClassVar[dict[str, Constraint]] = {
        "C": Positive(),
        "kernel": _KernelChoice(),
        "gamma": GAMMA,
        "degree": Integer(0),
        "class_weight": ClassWeight(),
        "threshold": OneOf("zero", "gmean"),
        "tol": Positive(),
        "cache_size": Positive(),
    }
    _accepts_sparse = True
    _finds_nonfinite = True
    _in_place = ("_state",)

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        class_weight: str | dict[Label, float] | None = None,
        threshold: str = "zero",
        tol: float = 1e-8,
        cache_size: float = 200,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.class_weight = class_weight
        self.threshold = threshold
        self.tol = tol
        self.cache_size = cache_size

    @property
    def _traits(self) -> Traits:  # type: ignore[override]
        exempt = {}
        if isinstance(self.gamma, str):
            reason = f"gamma={self.gamma!r} is settled by the rows of the first call"
            exempt = {"chunk_borders_do_not_matter": reason}
        return Traits(exact=True, bounded_memory=False, exempt=exempt)

    # -- learning and forgetting --------------------------------------------------------------------

    def _start(self, batch: Batch) -> None:
        self._need_finite(batch.X, "fit")
        kernel = Kernel(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)
        n_columns = 1 if isinstance(batch.X, list) else batch.X.shape[1]
        self._state = SupportState(
            _settled(kernel, batch), n_columns, int(min(float(self.cache_size), _LARGEST_CACHE) * _MEGABYTE)
        )

    def _learn(self, batch: Batch) -> None:
        self._apply(batch, None, "partial_fit")

    def _apply(self, add: Batch | None, forget: Batch | None, method: str) -> None:
        for batch in (add, forget):
            if batch is not None:
                self._need_finite(batch.X, method)
        self._state.update(
            add,
            forget,
            C=float(self.C),
            class_weight=self.class_weight,
            tol=float(self.tol),
            source=f"IncrementalSVC.{method}",
        )

    def _change(self, add: Any, forget: Any, method: str) -> Self:
        with lock_of(self):
            return self if self._slide(add, forget) else super()._change(add, forget, method)

    def _slide(self, add: object, forget: object) -> bool:
        """Take the short way of a sliding window, or return False and change nothing.

        It is for one plain row in and one out; a stream of them pays for everything that is done in a call.
        """
        attributes = self.__dict__
        state: SupportState | None = attributes.get("_state")
        if state is None or attributes["class_weight"] is not None or "feature_names_in_" in attributes:
            return False
        return state.book.settled == (attributes["C"], attributes["tol"]) and state.slide(add, forget)

    # -- what was learned ---------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that have rows now."""
        return sorted_classes(self._learned("classes_").book.classes)

    @property
    def class_count_(self) -> NDArray[np.int64]:
        """Number of rows of each class now."""
        book = self._learned("class_count_").book
        return np.array([book.counts[book.codes[label]] for label in book.classes], dtype=np.int64)

    @property
    def support_vectors_(self) -> Any:
        """Rows with a coefficient other than zero in any plane."""
        return self._expansion("support_vectors_").vectors

    @property
    def support_(self) -> NDArray[np.int64]:
        """Numbers of the support vectors among the rows."""
        with lock_of(self):
            return self._learned("support_").support()[0]

    @property
    def n_support_(self) -> NDArray[np.int64]:
        """Support vectors of each class."""
        with lock_of(self):
            state = self._learned("n_support_")
            codes, book = state.support()[1], state.book
            return np.array([np.sum(codes == book.codes[label]) for label in book.classes], dtype=np.int64)

    @property
    def coef_(self) -> FloatArray:
        """Normals of the planes; with the linear kernel only."""
        expansion = self._expansion("coef_")
        if self.kernel != "linear":
            raise AttributeError(
                f"IncrementalSVC.coef_: with kernel={self.kernel!r} planes lie in the space of the kernel "
                "and have no normals; only the linear kernel has."
            )
        normals = np.asarray(expansion.coef @ expansion.vectors)
        normals.flags.writeable = False  # what is written here would have no effect
        return normals

    @property
    def dual_coef_(self) -> FloatArray:
        """Coefficients of the support vectors, one row a plane."""
        return self._expansion("dual_coef_").coef

    @property
    def intercept_(self) -> FloatArray:
        """Constants of the decision functions."""
        return self._expansion("intercept_").intercept

    @property
    def margin_size_(self) -> int:
        """Rows in the margin set, over all planes."""
        with lock_of(self):
            return self._learned("margin_size_").margin_size

    def kkt_violation(self) -> float:
        """The largest violation of the optimality conditions, computed anew from all rows.

        It is in units of the decision function: by so much a margin of 1 is missed somewhere.

        Returns
        -------
        float
        """
        check_started(self, "kkt_violation")
        with lock_of(self):
            return self._state.violation()

    def _learned(self, attribute: str) -> SupportState:
        self._need(attribute)
        return self._state

    def _expansion(self, attribute: str) -> KernelExpansion:
        return self._learned(attribute).answer(lock_of(self), self.threshold).expansion

    # -- answering ----------------------------------------------------------------------------------

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        # As all learners do; a single row by one native call, as long as nobody learns.
        attributes = self.__dict__
        state: SupportState | None = attributes.get("_state")
        if state is not None and attributes["threshold"] == "zero":
            label = None if "feature_names_in_" in attributes else state.label(X)
            if label is not None:
                return label
        return super().predict(X)

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        X, answer = validate_rows(self, X, method), self._state.answer(lock_of(self), self.threshold)
        if not len(answer.classes):
            raise all_forgotten_error(f"IncrementalSVC.{method}")
        self._need_finite(X, method)
        return answer.expansion.scores(X.toarray() if sp.issparse(X) else X), answer.classes

    def _need_finite(self, X: Any, method: str) -> None:
        if isinstance(X, list):  # sequences, which their kernel has checked
            return
        # A stream of single rows pays for every call: this one costs less than NumPy's sum.
        if type(X) is not np.ndarray or X.dtype != np.float64 or not _native.all_finite(X):
            check_finite(self, X, method)

    # -- files --------------------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        return {
            **self._features(),
            "kernel": self._state.kernel.to_tree(),
            "solution": self._state.to_tree(),
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        if not state:
            return
        self._state = SupportState.from_tree(Kernel.from_tree(state["kernel"]), state["solution"])
        self._state.check_optimal(float(self.tol))
        self._set_features(state)
        if self._state.catalogue is None and self.n_features_in_ != self._state.n_features:
            raise ValueError("the number of features is not that of the rows")


def _settled(kernel: Kernel, batch: Batch) -> Kernel:
    """The kernel with gamma settled by the rows; a weight counts as so many rows."""
    X, weights = batch.X, batch.weights
    if isinstance(X, list):
        return kernel.resolve(X)
    if weights is None or kernel.gamma != "scale":
        return kernel.resolve(X if weights is None else X[weights > 0.0])
    table = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if not weights.any():
        raise DataError(
            "all rows of the first call have weight 0, so there is nothing to learn.", source="IncrementalSVC"
        )
    shares = weights / (weights.sum() * table.shape[1])
    mean = float((shares @ table).sum())
    variance = float((shares @ (table - mean) ** 2).sum())
    gamma = 1.0 / (table.shape[1] * variance) if variance > 0.0 else 1.0
    return Kernel(kernel.kernel, gamma=gamma, degree=kernel.degree, coef0=kernel.coef0)
