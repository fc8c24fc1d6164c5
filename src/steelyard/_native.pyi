"""Loops over numbers. Policy, names and checks live in Python."""

from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


def simd_level() -> str:
    """Name of the instruction level in use."""

def simd_levels() -> list[str]:
    """Instruction levels that this processor can run, slowest first."""

def use_simd_level(name: str) -> None:
    """
    Switch the whole process to an instruction level; meant for tests and benchmarks.
    """

@overload
def class_grams(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, origin: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_classes: int, n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C')]: ...

@overload
def class_grams(X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, origin: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_classes: int, n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C')]:
    """
    Sums of weight * e e' with e = [x - origin, -1], one matrix a class; only lower triangles are filled, and rows with a negative code are passed over.
    """

@overload
def sparse_gram(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, code: int, n_features: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]: ...

@overload
def sparse_gram(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, code: int, n_features: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """
    The Gram matrix of one class of a sparse table (compressed rows), relative to origin 0; lower triangle.
    """

@overload
def row_hashes(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

@overload
def row_hashes(X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]:
    """A hash of each row that depends on its values alone."""

@overload
def sparse_row_hashes(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

@overload
def sparse_row_hashes(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

@overload
def sparse_row_hashes(values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

@overload
def sparse_row_hashes(values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]:
    """
    The same hashes for a sparse table in compressed rows without duplicates.
    """

class KernelSpec:
    """Which kernel function is meant; what every native learner takes."""

    def __init__(self, kind: str, gamma: float = 1.0, coef0: float = 0.0, degree: int = 3) -> None: ...

    @property
    def kind(self) -> str: ...

    @property
    def gamma(self) -> float: ...

    @property
    def coef0(self) -> float: ...

    @property
    def degree(self) -> int: ...

@overload
def kernel_block(spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], Z: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None: ...

@overload
def kernel_block(spec: KernelSpec, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], Z: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """Fill out[i, j] with k(X[i], Z[j])."""

@overload
def kernel_matrix(spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None: ...

@overload
def kernel_matrix(spec: KernelSpec, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """Fill out[i, j] with k(X[i], X[j]), symmetric to the last bit."""

@overload
def kernel_diagonal(spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

@overload
def kernel_diagonal(spec: KernelSpec, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Fill out[i] with k(X[i], X[i])."""

@overload
def kernel_from_products(spec: KernelSpec, products: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], x_norms: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, z_norms: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, n_threads: int = 1) -> None: ...

@overload
def kernel_from_products(spec: KernelSpec, products: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], x_norms: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, z_norms: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, n_threads: int = 1) -> None:
    """
    Turn products[i, j] = X[i]'Z[j] into kernel values in place; rbf takes squared norms.
    """

class PackedRows64:
    """
    Vectors kept in the layout in which kernel values are fastest; sums are in float64.
    """

    def __init__(self, n_features: int, capacity: int = 0) -> None: ...

    def __len__(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def append(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None: ...

    def replace(self, i: int, row: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def swap_remove(self, i: int) -> None:
        """Take row i away; the last row moves into its place."""

    def to_rows(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]: ...

    def kernel_rows(self, spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
        """Fill out[i, j] with k(X[i], z_j)."""

    def kernel_sums(self, spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
        """
        Fill out[i] with the sum over j of weights[j] k(X[i], z_j), row by row, without the matrix.
        """

class PackedRows32:
    """
    Vectors kept in the layout in which kernel values are fastest; sums are in float64.
    """

    def __init__(self, n_features: int, capacity: int = 0) -> None: ...

    def __len__(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def append(self, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None: ...

    def replace(self, i: int, row: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def swap_remove(self, i: int) -> None:
        """Take row i away; the last row moves into its place."""

    def to_rows(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')]: ...

    def kernel_rows(self, spec: KernelSpec, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
        """Fill out[i, j] with k(X[i], z_j)."""

    def kernel_sums(self, spec: KernelSpec, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
        """
        Fill out[i] with the sum over j of weights[j] k(X[i], z_j), row by row, without the matrix.
        """

def log_alignment_block(gamma: float, band: int, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Z: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], Z_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[i, j] with the logarithm of the global alignment kernel of sequences i and j.
    """

def log_alignment_matrix(gamma: float, band: int, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """The block of a collection with itself, symmetric to the last bit."""

def log_alignment_diagonal(gamma: float, band: int, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
    """Fill out[i] with the value of sequence i with itself."""

def log_edit_block(substitution: float, gap: float, X: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Z: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Z_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[i, j] with the logarithm of the edit kernel of strings i and j.
    """

def log_edit_matrix(substitution: float, gap: float, X: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """The block of a collection with itself, symmetric to the last bit."""

def log_edit_diagonal(substitution: float, gap: float, X: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
    """Fill out[i] with the value of string i with itself."""

def scaled_part(K: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[r, c] with factor[rows[r]] * factor[rows[c]] * K[rows[r], rows[c]]; rows ascend.
    """

def largest_exponents(K: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], row_factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], reference_factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], self: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rare: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], other: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], beta: float, lengths: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], widths: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[x] with the largest -squared distance / width from row x to a boundary point.
    """

def point_distances(K: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rare: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], other: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], beta: float, lengths: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], begin: int, out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[b, c] with the squared distance between boundary points begin + b and c.
    """

class AucWindow:
    """The last `window` scored rows and the pairwise orderings among them."""

    def __init__(self, window: int, n_columns: int = 1) -> None: ...

    def push(self, codes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], scores: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None:
        """Append rows; the oldest leave."""

    def clear(self) -> None:
        """Forget all rows."""

    def counts(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
        """Rows of each class in the window."""

    def doubled_wins(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C')]:
        """
        At [i, j]: twice the number of pairs in which a row of class i scores higher in column i than one of class j, ties as half; with one column, class 1 over class 0 at [0, 0].
        """

    def content(self) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]]:
        """Codes and scores in the window, oldest first."""

    def __len__(self) -> int: ...
