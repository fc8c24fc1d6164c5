"""Kernel functions (named, callable or precomputed), their parameter gamma, and blocks of kernel values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import pdist

from steelyard import _native
from steelyard._threads import check_threads
from steelyard._types import FloatArray
from steelyard._validation import MAX_KERNEL_VALUE, canonical_csr, first_nonfinite, largest_magnitude
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.kernels.sequences import SequenceKernel, StoredKernel
from steelyard.params import (
    MAX_COUNT,
    AnyOf,
    Finite,
    Function,
    Integer,
    OneOf,
    Positive,
    check_params,
    constraints_of,
    parameter,
    parametrized,
)
from steelyard.persistence import storable

Floats = NDArray[Any]  # float32 or float64
KernelFunction = Callable[[Any, Any], Any]
DENSE_BLOCK = 2**22  # number of matrix entries that are converted from sparse to dense at a time

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
# Constraints of the parameters kernel and gamma.
KERNEL = AnyOf(OneOf(*_PARAMETERS, "poly"), Function("a function of two collections of samples"))
GAMMA = AnyOf(Positive(), OneOf("scale", "auto", "median"))
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

    kernel: str | KernelFunction = parameter("rbf", KERNEL)
    _: KW_ONLY
    gamma: float | str = parameter(1.0, GAMMA)
    degree: int = parameter(3, Integer(0, MAX_COUNT))
    coef0: float = parameter(0.0, Finite())

    def __post_init__(self) -> None:
        check_params(self, constraints_of(Kernel))
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
        return replace(self, gamma=1.0 / scale if scale > 0 and isfinite(1.0 / scale) else 1.0)

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
            samples = X.tocsr() if sparse.issparse(X) else X
            rows = [samples[i : i + 1] for i in range(count(X))]
            return np.array([called_block(self.kernel, x, x)[0, 0] for x in rows], dtype=np.float64)
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
        return self.kernel if isinstance(self.kernel, StoredKernel) else self.to_dict()

    @classmethod
    def from_tree(cls, tree: Any) -> Kernel:
        """Restore the kernel from :meth:`to_tree`."""
        return cls(tree) if isinstance(tree, StoredKernel) else cls.from_dict(tree)

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


@storable("PrecomputedKernel")
@parametrized()
class PrecomputedKernel(StoredKernel):
    """Kernel given by a matrix of values. A sample is the index of its row in the matrix.

    :class:`sklearn.svm.SVC` takes ``kernel="precomputed"`` and a square matrix instead of rows. An
    incremental learner must know which row of the matrix belongs to a sample. With this kernel, ``X``
    therefore has one column, which contains the index of each sample.

    Parameters
    ----------
    matrix : array-like of shape (n_samples, n_samples)
        Kernel values of all samples that will be learned or predicted. Finite, symmetric, and for support
        vector machines positive semi-definite.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import IncrementalSVC
    >>> from steelyard.kernels import PrecomputedKernel
    >>> rows = np.array([[0.0, 1.0], [1.0, 0.5], [3.0, 2.0], [2.5, 2.5], [0.2, 0.4]])
    >>> samples = np.arange(5)[:, None]
    >>> model = IncrementalSVC(kernel=PrecomputedKernel(rows @ rows.T))
    >>> model.fit(samples[:4], [0, 0, 1, 1]).predict(samples[4:])
    array([0])
    >>> model.forget(samples[:1], [0]).class_count_
    array([1, 2])
    """

    matrix: Any

    def __call__(self, X: Any, Z: Any) -> FloatArray:
        """Return the kernel values of every sample of ``X`` with every sample of ``Z``."""
        matrix = self._validated_matrix()
        values: FloatArray = matrix[np.ix_(_indices(X, len(matrix)), _indices(Z, len(matrix)))]
        return values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrecomputedKernel) and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash(np.shape(self.matrix))

    def _validated_matrix(self) -> FloatArray:
        """Return the matrix, which is validated once and then cached."""
        cached = self.__dict__.get("_cached")
        if cached is not None and cached[0] is self.matrix:
            return cached[1]
        matrix = np.asarray(self.matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise DataError(
                f"expected a square matrix; got shape {matrix.shape}.", source="PrecomputedKernel"
            )
        if not np.isfinite(matrix).all():
            raise DataError("the matrix contains values that are not finite.", source="PrecomputedKernel")
        if not np.array_equal(matrix, matrix.T):
            raise DataError(
                "the matrix is not symmetric.",
                source="PrecomputedKernel",
                hint="(K + K.T) / 2 removes rounding errors",
            )
        self._cached = (self.matrix, matrix)
        return matrix

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_cached"}


def _indices(samples: Any, n_rows: int) -> NDArray[np.intp]:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != 1:
        raise DataError(
            f"samples must be row indices of the matrix in one column; got shape {values.shape}.",
            source="PrecomputedKernel",
            hint="pass np.arange(n)[:, None] as X, not the matrix",
        )
    indices = values[:, 0].astype(np.intp)
    if not (np.array_equal(indices, values[:, 0]) and ((indices >= 0) & (indices < n_rows)).all()):
        raise DataError(f"samples must be integers from 0 to {n_rows - 1}.", source="PrecomputedKernel")
    return indices


# -- check of the range of values -------------------------------------------------------------------


def check_kernel_range(kernels: list[Kernel], X: Any, source: str) -> None:
    """Raise DataError for rows whose kernel values could overflow."""
    # If a distance overflows, the value of a kernel of distances is 0.
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


# -- validation of rows, and blocks of kernel values -------------------------------------------------


def function_name(function: KernelFunction) -> str:
    """Return the name of a kernel function for error messages."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def check_rows(X: Any, source: str) -> Any:
    """Return `X` as a finite C-contiguous array or canonical CSR matrix of float32 or float64."""
    if sparse.issparse(X):
        rows = X.tocsr()
        rows = canonical_csr(rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64))
    else:
        rows = _dense(X, source)
    if rows.ndim != 2:
        raise DataError(
            f"expected a table of rows and columns; got an array of {rows.ndim} dimension(s).",
            source=source,
            hint="one sample is X.reshape(1, -1)" if rows.ndim == 1 else None,
        )
    values = rows.data if sparse.issparse(rows) else rows
    if not np.isfinite(values).all():
        raise DataError(_first_nonfinite(rows), source=source)
    return rows


def _dense(X: Any, source: str) -> Floats:
    try:
        array = np.asarray(X)
        if array.dtype != np.float32 and array.dtype.kind in "buifO":
            array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise DataTypeError(
            f"expected a table of real numbers; got {type(X).__name__}: {error}.",
            source=source,
            hint="lists of sequences need a kernel given as a function",
        ) from error
    if array.dtype.kind != "f":
        raise DataTypeError(
            f"expected a table of real numbers; got values of type {array.dtype}.", source=source
        )
    return np.ascontiguousarray(array) if array.ndim else array


def _first_nonfinite(rows: Any) -> str:
    row, column, value = first_nonfinite(rows)
    return f"all values must be finite; got {value} in row {row}, column {column}."


def count(X: Any) -> int:
    """Return the number of samples in a matrix or list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def called_block(function: KernelFunction, X: Any, Z: Any) -> Floats:
    """Return the validated kernel matrix that a function computes for two collections."""
    values = np.asarray(function(X, Z))
    if values.dtype != np.float32:
        values = values.astype(np.float64, copy=False)
    expected = (count(X), count(Z))
    source = f"Kernel({function_name(function)})"
    if values.shape != expected:
        raise DataError(
            f"for {expected[0]} and {expected[1]} samples the function must return a matrix of shape "
            f"{expected}; got shape {values.shape}.",
            source=source,
            hint="a kernel function takes two collections of samples and returns the whole block",
        )
    if not np.isfinite(values).all():
        raise DataError(_first_nonfinite(values), source=source)
    return values


def precomputed_block(X: Any, Z: Any) -> Floats:
    """Return validated precomputed kernel values."""
    values = check_rows(X.toarray() if sparse.issparse(X) else X, "Kernel('precomputed')")
    expected = values.shape[0] if Z is None else count(Z)
    if values.shape[1] != expected:
        what = "a square matrix" if Z is None else f"one column for each of the {expected} stored rows"
        raise DataError(f"Kernel('precomputed'): expected {what}; got shape {values.shape}.")
    return np.asarray(values)


def squared_norms(rows: Any) -> Floats:
    """Return ``x'x`` of every row."""
    if sparse.issparse(rows):
        # Norms are summed in the same order as the sparse product, so that equal rows have distance 0.
        row_of_value = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        return np.bincount(row_of_value, rows.data * rows.data, minlength=rows.shape[0])
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def sparse_block(spec: _native.KernelSpec, left: Any, right: Any, n_threads: int) -> Floats:
    """Return kernel values of two matrices, at least one of which is sparse."""
    if spec.kind == "laplacian":
        return _laplacian_in_blocks(spec, left, right, n_threads)
    dtype, is_symmetric = left.dtype, left is right
    norms: tuple[Any, Any] = (None, None)
    if spec.kind == "rbf":
        # The distance is a small difference of large products, for which float32 is not precise enough.
        left, right = left.astype(np.float64), right.astype(np.float64)
    product = left @ right.T
    out = np.ascontiguousarray(product.toarray() if sparse.issparse(product) else product)
    if spec.kind == "rbf":
        norms = (out.diagonal().copy(),) * 2 if is_symmetric else (squared_norms(left), squared_norms(right))
    _native.kernel_from_products(spec, out, *norms, n_threads)
    return out.astype(dtype, copy=False)


def _laplacian_in_blocks(spec: _native.KernelSpec, left: Any, right: Any, n_threads: int) -> Floats:
    out = np.empty((left.shape[0], right.shape[0]), left.dtype)
    step = max(1, DENSE_BLOCK // max(1, left.shape[1]))
    for j in range(0, right.shape[0], step):
        Z = _dense_rows(right, j, step)
        for i in range(0, left.shape[0], step):
            X = _dense_rows(left, i, step)
            block = np.empty((X.shape[0], Z.shape[0]), out.dtype)
            _native.kernel_block(spec, X, Z, block, n_threads)
            out[i : i + step, j : j + step] = block
    return out


def _dense_rows(rows: Any, begin: int, step: int) -> Floats:
    selected = rows[begin : begin + step]
    return np.ascontiguousarray(selected.toarray() if sparse.issparse(selected) else selected)
