"""Kernel functions: named, callable or precomputed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist

from steelyard import _native
from steelyard._threads import check_threads
from steelyard._validation import MAX_KERNEL_VALUE, largest_magnitude
from steelyard.exceptions import DataError, ParameterError
from steelyard.kernels.blocks import (
    DENSE_BLOCK,
    Floats,
    KernelFunction,
    called_block,
    check_rows,
    function_name,
    precomputed_block,
    single_rows,
    sparse_block,
    squared_norms,
)
from steelyard.kernels.precomputed import PrecomputedKernel
from steelyard.kernels.sequences import SequenceKernel
from steelyard.params import AnyOf, Constraint, Finite, Function, Integer, OneOf, Positive, check_params

_STORABLE = (SequenceKernel, PrecomputedKernel)  # callable kernels that model files can store


# Parameters that each kernel uses. All other parameters are ignored.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "polynomial": ("gamma", "degree", "coef0"),
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "precomputed": (),
}
_NATIVE = [name for name in _PARAMETERS if name != "precomputed"]
GAMMA = AnyOf(Positive(), OneOf("scale", "auto", "median"))  # constraint on the parameter gamma
_CONSTRAINTS: dict[str, Constraint] = {
    "kernel": AnyOf(OneOf(*_PARAMETERS, "poly"), Function("a function of two collections of samples")),
    "gamma": GAMMA,
    "degree": Integer(0, 2**31 - 1),
    "coef0": Finite(),
}
_MAX_MEDIAN_ROWS = 500  # 500 rows have 125,000 pairs, which estimate the median to a few parts in a thousand


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kernel:
    r"""A kernel function :math:`k(x, z)` and its parameters.

    ============ =============================================
    linear       :math:`x^\top z`
    polynomial   :math:`(\gamma x^\top z + c_0)^{degree}`
    rbf          :math:`\exp(-\gamma \lVert x - z \rVert^2)`
    laplacian    :math:`\exp(-\gamma \lVert x - z \rVert_1)`
    sigmoid      :math:`\tanh(\gamma x^\top z + c_0)`
    ============ =============================================

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        A name of the table ("poly" is short for "polynomial"), "precomputed", or a function that takes two
        collections of samples and returns the matrix of their kernel values, as in
        :class:`sklearn.svm.SVC`. A function receives the samples unchanged (arrays, lists of sequences,
        tables). With "precomputed", methods take kernel values instead of rows.
    gamma : float or {"scale", "auto", "median"}, default=1.0
        Positive number, or the name of a formula by which :meth:`resolve` computes gamma from data.
    degree : int, default=3
        Degree of the polynomial kernel, 0 or more.
    coef0 : float, default=0.0
        The constant :math:`c_0`.

    Notes
    -----
    Values do not depend on the number of threads, :math:`k(x, z)` and :math:`k(z, x)` are bit-identical, and
    rbf and laplacian of a row with itself are exactly 1. For dense arrays, distances are summed from
    differences, so a large common offset costs no accuracy. For sparse matrices, distances are computed from
    products.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.kernels import Kernel
    >>> X = np.array([[0.0, 0.0], [1.0, 1.0]])
    >>> Kernel("rbf", gamma=0.5).block(X).round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    >>> Kernel("poly", gamma="scale").resolve(X)
    Kernel('polynomial', gamma=2.0, degree=3, coef0=0.0)
    """

    kernel: str | KernelFunction = "rbf"
    _: KW_ONLY
    gamma: float | str = 1.0
    degree: int = 3
    coef0: float = 0.0

    def __post_init__(self) -> None:
        check_params(self, _CONSTRAINTS)
        values: dict[str, Any] = {"degree": int(self.degree), "coef0": float(self.coef0)}
        if not isinstance(self.gamma, str):
            values["gamma"] = float(self.gamma)
        if isinstance(self.kernel, str) and self.kernel == "poly":
            values["kernel"] = "polynomial"
        for name, value in values.items():
            object.__setattr__(self, name, value)  # required because the dataclass is frozen

    @property
    def is_native(self) -> bool:
        """Whether native loops implement this kernel, which is then neither a callable nor precomputed."""
        return isinstance(self.kernel, str) and self.kernel != "precomputed"

    def spec(self) -> _native.KernelSpec:
        """Return the kernel in the form that native learners use. ``gamma`` must be a number."""
        if not (isinstance(self.kernel, str) and self.is_native):
            raise ParameterError(
                f"{self!r} is not one of the native kernels {', '.join(map(repr, _NATIVE))}.",
                source="Kernel.spec",
            )
        gamma = self.gamma
        if isinstance(gamma, str):
            if "gamma" in self._parameters():
                raise ParameterError(
                    f"gamma={gamma!r} has not been computed from data.",
                    source="Kernel",
                    hint="call kernel = kernel.resolve(X) first, or pass gamma as a number",
                )
            gamma = 1.0
        return _native.KernelSpec(self.kernel, gamma, self.coef0, self.degree)

    def resolve(self, X: Any) -> Kernel:
        """Return this kernel with gamma computed from the rows of `X`.

        "scale" is 1 / (n_features * variance of all values) and "auto" is 1 / n_features, as in
        :class:`sklearn.svm.SVC`; "median" is 1 / median distance between rows, in the distance of the
        kernel's exponent (city-block for laplacian, squared Euclidean for the others), over a subsample that
        depends only on the shape of `X`. If the formula would divide by 0, gamma is 1.
        """
        if isinstance(self.kernel, SequenceKernel):
            return replace(self, kernel=self.kernel.resolve(X))
        if not isinstance(self.gamma, str) or "gamma" not in self._parameters():
            return self
        rows = check_rows(X, "Kernel.resolve")
        with np.errstate(over="ignore", invalid="ignore"):
            scale = _gamma_scale(rows, self.gamma, self.kernel)
        if not isfinite(scale):
            raise DataError(
                f"gamma={self.gamma!r} cannot be computed: distances between the rows overflow.",
                source="Kernel",
                hint="scale the columns first, or pass gamma as a number",
            )
        return replace(self, gamma=_inverse(scale))

    def block(self, X: Any, Z: Any = None, *, n_threads: int | None = None) -> Floats:
        """Evaluate the kernel for every pair of a row of `X` and a row of `Z`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_x, n_features)
            Rows. For "precomputed", the kernel values themselves; for a callable, anything that it accepts.
        Z : {array-like, sparse matrix} of shape (n_z, n_features), optional
            Rows, or None for `X` itself; the result is then exactly symmetric. For "precomputed", the square
            kernel matrix of the rows to which the columns of `X` belong.
        n_threads : int, optional
            Number of threads; all cores of this process if None. Small blocks use one thread.

        Returns
        -------
        ndarray of shape (n_x, n_z)
            float32 if all rows are float32, float64 otherwise.
        """
        threads = check_threads(n_threads, "Kernel.block")
        if not isinstance(self.kernel, str):
            return called_block(self.kernel, X, X if Z is None else Z)
        if self.kernel == "precomputed":
            return precomputed_block(X, Z)
        spec = self.spec()
        left = check_rows(X, "Kernel.block")
        right = left if Z is None else check_rows(Z, "Kernel.block")
        if left.shape[1] != right.shape[1]:
            raise DataError(
                f"X and Z must have the same number of features; got {left.shape[1]} and {right.shape[1]}.",
                source="Kernel.block",
            )
        if left.dtype != right.dtype:
            left, right = left.astype(np.float64), right.astype(np.float64)
        if sparse.issparse(left) or sparse.issparse(right):
            return sparse_block(spec, left, right, threads)
        out = np.empty((left.shape[0], right.shape[0]), left.dtype)
        if Z is None:
            _native.kernel_matrix(spec, left, out, threads)
        else:
            _native.kernel_block(spec, left, right, out, threads)
        return out

    def diagonal(self, X: Any) -> Floats:
        """Return k(x, x) for every row of `X` without forming the matrix."""
        if isinstance(self.kernel, SequenceKernel):
            return self.kernel.diagonal(X)
        if not isinstance(self.kernel, str):
            called = [called_block(self.kernel, row, row)[0, 0] for row in single_rows(X)]
            return np.array(called, dtype=np.float64)
        if self.kernel == "precomputed":
            return precomputed_block(X, None).diagonal().copy()
        spec = self.spec()
        rows = check_rows(X, "Kernel.diagonal")
        out = np.empty(rows.shape[0], rows.dtype)
        if not sparse.issparse(rows):
            _native.kernel_diagonal(spec, rows, out)
        elif self.kernel in {"rbf", "laplacian"}:
            out.fill(1.0)
        else:
            out[:] = squared_norms(rows)
            _native.kernel_from_products(spec, out[None, :], None, None)
        return out

    def to_dict(self) -> dict[str, str | float | int]:
        """Return the kernel as plain JSON values. Raise ParameterError for a callable."""
        if not isinstance(self.kernel, str):
            raise ParameterError(
                f"a kernel given as a function cannot be saved; got {self!r}.",
                source="Kernel.to_dict",
                hint="use one of the named kernels, or kernel='precomputed' and store the function elsewhere",
            )
        return {"kernel": self.kernel, **self._parameters()}

    def to_tree(self) -> Any:
        """Return a value that model files can store: the kernel object or a dict."""
        return self.kernel if isinstance(self.kernel, _STORABLE) else self.to_dict()

    @classmethod
    def from_tree(cls, tree: Any) -> Kernel:
        """Restore the kernel from :meth:`to_tree`."""
        return cls(tree) if isinstance(tree, _STORABLE) else cls.from_dict(tree)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Kernel:
        """Restore the kernel from :meth:`to_dict`."""
        known = {"kernel", "gamma", "degree", "coef0"}
        if not known.issuperset(values) or not isinstance(values.get("kernel"), str):
            raise ParameterError(
                "expected the name 'kernel' and, if the kernel has them, 'gamma', 'degree' and "
                f"'coef0'; got {dict(values)!r}.",
                source="Kernel.from_dict",
            )
        return cls(**values)

    def _parameters(self) -> dict[str, float | int | str]:
        names = _PARAMETERS[self.kernel] if isinstance(self.kernel, str) else ()
        return {name: getattr(self, name) for name in names}

    def _identity(self) -> tuple[Any, ...]:
        return (self.kernel, *self._parameters().items())

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, Kernel) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        name = repr(self.kernel) if isinstance(self.kernel, str) else function_name(self.kernel)
        return (
            f"Kernel({', '.join([name, *(f'{key}={value!r}' for key, value in self._parameters().items())])})"
        )


# -- check of the range of values -------------------------------------------------------------------


def check_kernel_range(kernels: list[Kernel], X: Any, source: str) -> None:
    """Raise DataError for rows whose kernel values could overflow.

    Kernels of distances are not checked: if a distance overflows, the kernel value is 0.
    """
    unbounded = [k for k in kernels if k.is_native and k.kernel not in {"rbf", "laplacian"}]
    if not unbounded:
        return
    largest = largest_magnitude(X)
    product = X.shape[1] * largest * largest
    for kernel in unbounded:
        bound = product
        if kernel.kernel == "polynomial":
            with np.errstate(over="ignore"):
                bound = float(np.float64(float(kernel.gamma) * product + abs(kernel.coef0)) ** kernel.degree)
        if bound > MAX_KERNEL_VALUE:
            raise DataError(
                f"X has values so large (up to {largest:g}) that {kernel!r} could overflow; "
                "nothing was changed.",
                source=source,
                hint="scale the features first",
            )


# -- computation of gamma from data -----------------------------------------------------------------


def _gamma_scale(rows: Any, rule: str, kernel: str | KernelFunction) -> float:
    """Return 1 / gamma, computed as ``rule`` ("scale", "auto" or "median") says."""
    n_rows, n_features = rows.shape
    if rule == "auto":
        return float(n_features)
    if n_rows == 0:
        raise DataError(f"gamma={rule!r} needs at least 1 row; got 0.", source="Kernel.resolve")
    if rule == "scale":
        return float(n_features * _variance(rows))
    return _median_distance(rows, "cityblock" if kernel == "laplacian" else "sqeuclidean")


def _variance(rows: Any) -> float:
    if not sparse.issparse(rows):
        return float(rows.var(dtype=np.float64))
    values = rows.data.astype(np.float64)
    size = rows.shape[0] * rows.shape[1]
    mean = values.sum() / size
    zeros = size - values.size
    return float((((values - mean) ** 2).sum() + zeros * mean**2) / size)


def _median_distance(rows: Any, metric: str) -> float:
    n_rows, n_features = rows.shape
    n_chosen = min(n_rows, _MAX_MEDIAN_ROWS, max(2, DENSE_BLOCK // max(1, n_features)))
    if n_chosen < 2:
        return 0.0
    chosen = np.sort(np.random.default_rng(0).choice(n_rows, n_chosen, replace=False))
    sample = rows[chosen].toarray() if sparse.issparse(rows) else rows[chosen]
    return float(np.median(pdist(sample.astype(np.float64), metric)))


def _inverse(value: float) -> float:
    return 1.0 / value if value > 0 and isfinite(1.0 / value) else 1.0
