"""
Native numerical loops. Policies, names and checks are implemented in Python.
"""

from collections.abc import Sequence
from typing import Annotated, Any, overload

import numpy
from numpy.typing import NDArray


def simd_level() -> str:
    """Returns the name of the SIMD level in use."""

def simd_levels() -> list[str]:
    """Returns the SIMD levels that this processor supports, slowest first."""

def use_simd_level(name: str) -> None:
    """Switches the whole process to a SIMD level; for tests and benchmarks."""

@overload
def largest_magnitude(values: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu', writable=False)], n_threads: int = 1) -> float: ...

@overload
def largest_magnitude(values: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], n_threads: int = 1) -> float:
    """Returns the largest absolute value, or NaN if any value is NaN."""

QUANTIZER_ROWS: int = 256

WEIGHT_FRACTION_BITS: int = 20

LARGEST_VALUE: float = 1e+300

class ExactSums:
    """Class-wise sums of products in exact integer arithmetic."""

    def __init__(self, n_features: int) -> None: ...

    @overload
    def add(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, n_threads: int = 1) -> None: ...

    @overload
    def add(self, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, n_threads: int = 1) -> None:
        """
        Adds rows. Raises ValueError, without changes, if a value is not finite.
        """

    @overload
    def remove(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, n_threads: int = 1) -> tuple[int, int, float, float]: ...

    @overload
    def remove(self, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, n_threads: int = 1) -> tuple[int, int, float, float]:
        """
        Removes rows, all or none. Returns (0, ...) on success, (1, slot, wanted, present) for too many rows of a class, and (2, slot, ...) for rows that were never added.
        """

    @overload
    def add_sparse(self, values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> None: ...

    @overload
    def add_sparse(self, values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> None: ...

    @overload
    def remove_sparse(self, values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> tuple[int, int, float, float]: ...

    @overload
    def remove_sparse(self, values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> tuple[int, int, float, float]: ...

    def copy(self) -> ExactSums:
        """
        Returns an independent copy; unchanged matrices are shared (copy-on-write).
        """

    def merge(self, other: ExactSums, places: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], sign: int, checked: bool, n_threads: int = 1) -> tuple[int, int, float, float]: ...

    def regrouped(self, places: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_slots: int, n_threads: int = 1) -> ExactSums: ...

    def permute_features(self, sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> ExactSums:
        """
        Returns sums whose feature j is feature sources[j] of these sums, or zero if sources[j] is negative.
        """

    def decay(self, factor: float, n_threads: int = 1) -> None: ...

    def drop(self, slot: int) -> None: ...

    def freeze_quantizer(self, n_threads: int = 1) -> None:
        """Fits the quantizer to the current rows. Later rows do not change it."""

    def fold_all(self, n_threads: int = 1) -> None:
        """Adds all pending rows to the sums."""

    def set_quantizer(self, exponent: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], origin: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rounds: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], mixed: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def quantizer(self) -> tuple[bool, Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')]]: ...

    @property
    def n_features(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def weight_exponent(self) -> int: ...

    def has_rows(self, n_slots: int) -> list[bool]: ...

    def has_sums(self, slot: int) -> bool:
        """Returns whether a class has sums, in addition to stored rows."""

    def count(self, slot: int) -> float: ...

    @property
    def n_bytes(self) -> int: ...

    def get_early(self) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], bool]: ...

    def get_slot(self, slot: int) -> object: ...

    def set_early(self, arg0: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: bool, /) -> None: ...

    def set_slot(self, slot: int, sums: bytes | None, each: int, rows: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def set_weight_exponent(self, arg: int, /) -> None: ...

class ExactView:
    """
    Sums of some classes as correctly rounded doubles, relative to an origin near the mean of their rows.
    """

    def __init__(self, sums: ExactSums, classes: Sequence[Sequence[int]], n_threads: int = 1) -> None:
        """`classes` lists the slots of each class, one or several."""

    @property
    def origin(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]: ...

    @property
    def units(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]: ...

    @property
    def variance(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]: ...

    def count(self, k: int) -> float: ...

    def sums(self, k: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]: ...

    def matrix(self, k: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]: ...

    def factor(self, k: int, scale: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
        """
        Returns the pivoted Cholesky factor of the matrix of a class, row by row.
        """

    def is_semidefinite(self, k: int, slack: float) -> bool:
        """
        Returns whether the correlation matrix of a class has no eigenvalue below -slack.
        """

    def total(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]: ...

    def canonical(self, k: int) -> bytes: ...

@overload
def row_hashes(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

@overload
def row_hashes(X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]:
    """Returns a hash of each row that depends only on its values."""

@overload
def sparse_row_hashes(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

@overload
def sparse_row_hashes(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

@overload
def sparse_row_hashes(values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

@overload
def sparse_row_hashes(values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]:
    """
    Returns the same hashes for a sparse matrix in CSR format without duplicates.
    """

def read_number_lines(lines: bytes, delimiter: str, places: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_wanted: int) -> NDArray[numpy.float64] | None:
    """
    Parse complete CSV lines of numbers. Cell c of a line becomes column places[c] of the result. Returns None if a line contains anything else.
    """

@overload
def linear_scores(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], coef: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], intercept: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], scores: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> bool: ...

@overload
def linear_scores(X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], coef: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], intercept: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], scores: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> bool:
    """
    Writes X @ coef.T + intercept to `scores` and returns whether all scores are finite.
    """

@overload
def linear_labels(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], coef: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], intercept: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], labels_of: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], labels: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> bool: ...

@overload
def linear_labels(X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], coef: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], intercept: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], labels_of: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], labels: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> bool:
    """
    Writes the label of the plane with the highest score to `labels`. With one plane, writes labels_of[1] if the score is positive, else labels_of[0]. Returns whether all scores are finite. Labels are items of 8 bytes.
    """

def map_rows(kind: str, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], shift: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], scale: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], amplitude: float, step: float, ceiling: float, n_threads: int = 1) -> None:
    """
    Writes the mapped rows to `out`. `kind` is cosine, rectified, sigmoid, halving or halving_2.
    """

def map_sparse_rows(kind: str, values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], shift: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], scale: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], amplitude: float, step: float, ceiling: float, n_threads: int = 1) -> None:
    """
    Maps the rows of a CSR matrix with sorted columns as map_rows() does. halving and halving_2 are not supported.
    """

def round_to_step(values: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], factor: float, step: float, n_threads: int = 1) -> None:
    """
    Replaces values by step * round(factor * values), where factor is a power of two.
    """

def solve_planes(sums: ExactSums, slots: Sequence[int], coef: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], intercept: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], C: float, balanced: bool, standardize: bool, pairs: bool, penalize_intercept: bool, gmean: bool, factors: Sequence[float], n_threads: int = 1) -> float:
    """
    Writes the planes of the classes in these slots. Returns the slope of the log-odds, or a negative number if a matrix is not positive definite.
    """

def normal_gmean_thresholds(negative: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], positive: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], thresholds: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """
    Writes the threshold with the largest G-mean of each pair of normal distributions, given by mean and variance.
    """

class SingleRowModel:
    """Model that predicts and learns one row at a time."""

    def __init__(self, sums: ExactSums, version: int, slots: Sequence[int], labels: list[Any], codes: dict[Any, int], parameters: dict[str, Any], forbidden: str, C: float, balanced: bool, standardize: bool, pairs: bool, penalize_intercept: bool, gmean: bool, factors: Sequence[float]) -> None: ...

    def learn(self, learner: object, attributes: dict[str, Any], X: object | None, y: object | None) -> bool:
        """
        Learns one row. Returns False, without changes, if the general path is needed.
        """

    def label(self, attributes: dict[str, Any], X: object | None) -> object:
        """
        Returns the label of one row in a new array, or None if the general path is needed.
        """

class KernelTable:
    """
    Table of kernel values of stored objects, which are identified by slot numbers.
    """

    def __init__(self) -> None: ...

    def set(self, values: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None:
        """Replace the table by this array, which is not copied."""

class KernelSpec:
    """Kernel function and its parameters, as native learners use it."""

    def __init__(self, kind: str, gamma: float = 1.0, coef0: float = 0.0, degree: int = 3) -> None: ...

    @staticmethod
    def lookup(table: KernelTable) -> KernelSpec:
        """
        Return a kernel whose rows are slot numbers of the table. The table must exist as long as a learner uses it.
        """

    @property
    def kind(self) -> str: ...

    @property
    def gamma(self) -> float: ...

    @property
    def coef0(self) -> float: ...

    @property
    def degree(self) -> int: ...

def neighbor_scores(spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], vectors: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_classes: int, n_neighbors: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """
    Return the log-odds of the second of two classes, or the logarithm of the votes of each class, by a vote of the nearest vectors.
    """

@overload
def kernel_block(spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], Z: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None: ...

@overload
def kernel_block(spec: KernelSpec, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], Z: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """Fill out[i, j] with k(X[i], Z[j])."""

@overload
def kernel_matrix(spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None: ...

@overload
def kernel_matrix(spec: KernelSpec, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """Fill out[i, j] with k(X[i], X[j]), exactly symmetric."""

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
    Convert products[i, j] = X[i]'Z[j] to kernel values in place. rbf needs squared norms.
    """

class PackedRows64:
    """
    Vectors in a memory layout for fast kernel values. Sums are computed in float64.
    """

    def __init__(self, n_features: int, capacity: int = 0) -> None: ...

    def __len__(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def append(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None: ...

    def replace(self, i: int, row: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def swap_remove(self, i: int) -> None:
        """Remove row i; the last row moves to its position."""

    def to_rows(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]: ...

    def kernel_rows(self, spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
        """Fill out[i, j] with k(X[i], z_j)."""

    def kernel_sums(self, spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
        """
        Fill out[i] with the sum over j of weights[j] k(X[i], z_j), without storing the kernel matrix.
        """

class PackedRows32:
    """
    Vectors in a memory layout for fast kernel values. Sums are computed in float64.
    """

    def __init__(self, n_features: int, capacity: int = 0) -> None: ...

    def __len__(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def append(self, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None: ...

    def replace(self, i: int, row: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def swap_remove(self, i: int) -> None:
        """Remove row i; the last row moves to its position."""

    def to_rows(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')]: ...

    def kernel_rows(self, spec: KernelSpec, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
        """Fill out[i, j] with k(X[i], z_j)."""

    def kernel_sums(self, spec: KernelSpec, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
        """
        Fill out[i] with the sum over j of weights[j] k(X[i], z_j), without storing the kernel matrix.
        """

def product_shapley(factors: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], reference: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], coef: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C')]:
    """
    Return the Shapley values of the columns in sums of product kernels, shape (n_rows, n_columns, n_scores).
    """

def log_alignment_block(gamma: float, band: int, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Z: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], Z_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """Fill out[i, j] with the logarithm of the kernel of sequences i and j."""

def log_alignment_matrix(gamma: float, band: int, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[i, j] for one collection of sequences. The result is exactly symmetric.
    """

def log_alignment_diagonal(gamma: float, band: int, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[i] with the logarithm of the kernel of sequence i with itself.
    """

def log_edit_block(substitution: float, gap: float, X: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Z: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Z_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """Fill out[i, j] with the logarithm of the kernel of sequences i and j."""

def log_edit_matrix(substitution: float, gap: float, X: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[i, j] for one collection of sequences. The result is exactly symmetric.
    """

def log_edit_diagonal(substitution: float, gap: float, X: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], X_offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[i] with the logarithm of the kernel of sequence i with itself.
    """

def fit_gradient_boosting(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_classes: int, is_category: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, *, n_trees: int, max_leaves: int, learning_rate: float, l2_regularization: float, min_rows_per_leaf: int, max_columns: int, seed: int, row_fraction: float = 1.0, max_bins: int = 64, balance_classes: bool = True, start_from_prior: bool = False, category_smoothing: float = 10.0, category_l2: float = 10.0, max_categories: int = 32, min_rows_per_category: int = 10, pack_sums: bool = False, n_threads: int = 1) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]]:
    """
    Fit gradient-boosted trees with the logistic loss; return the arrays of a TreeEnsemble.
    """

class TreeEnsemble:
    """Decision trees whose scores are added up."""

    def __init__(self, feature: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], left: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], roots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], missing_left: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], category_set: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], set_begin: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], set_words: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], base_score: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_features: int) -> None: ...

    def scores(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
        """Return the sums of the trees' scores, one column per output."""

    def contributions(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C')]:
        """
        Return SHAP values with the shape (n_rows, n_outputs, n_features + 1); the last column is the expected score.
        """

def rank_rows(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], knots: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], slopes: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """
    Apply one piecewise linear function per column to rows. A function is constant below its first knot.
    """

def apply_lookups(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], knots: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """
    Apply one piecewise linear function per column to rows. The result is 0 for NaN and for functions with one knot.
    """

def weigh_lookups(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], knots: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
    """
    Return for each row the weighted sum of piecewise linear functions of its values. Functions are constant outside their knots, and NaN values contribute nothing.
    """

class RowExperts:
    """
    Binary experts that score rows in one call. The arrays must not change.
    """

    def __init__(self, n_experts: int, n_features: int, ranks: tuple[Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]] | None, map: tuple[str, Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], float, float, float] | None) -> None: ...

    def add_plane(self, expert: int, is_mapped: bool, normal: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], intercept: float) -> None: ...

    def add_machine(self, expert: int, spec: KernelSpec, packed: object, coef: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], intercept: float) -> None: ...

    def add_neighbors(self, expert: int, spec: KernelSpec, vectors: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_neighbors: int) -> None: ...

    def add_trees(self, expert: int, trees: object) -> None: ...

    def scores(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], constants: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_threads: int = 1) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]]:
        """
        Return the scores of rows and the ranks of rows. The score of an expert that was not added is its value in `constants`.
        """

def scaled_part(K: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[r, c] with factor[rows[r]] * factor[rows[c]] * K[rows[r], rows[c]]. The rows must be ascending.
    """

def largest_exponents(K: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], row_factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], reference_factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], self: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rare: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], other: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], beta: float, lengths: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], widths: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], symmetric: bool = False, n_threads: int = 1) -> None:
    """
    Fill out[x] with the largest value of -(squared distance of row x to boundary point b) / widths[b] over all b.
    """

def weighted_rows(K: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], coefficients: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
    """Fill out[x] with the sum of coefficients[r] * K[rows[r], x]."""

def solve_roughly(K: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], factors: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], bounds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], working: Annotated[NDArray[numpy.bool_], dict(shape=(None, None), order='C', device='cpu', writable=False)], z: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], scores: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], intercepts: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], tolerance: float, slack: float, n_threads: int = 1) -> None:
    """
    Fill z and scores with the solution of one SVM for each row of factors, bounds and working.
    """

def find_asymmetry(K: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], tolerance: float, n_threads: int = 1) -> tuple[int, int] | None:
    """
    Return the indices (i, j) of an entry that differs from K[j, i] by more than the tolerance or is not finite, or None.
    """

def mean_near_distances(K: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rare: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], other: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], beta: float, lengths: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], limit: float, max_count: int, out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], n_threads: int = 1) -> None:
    """
    Fill out[b] with the mean squared distance of boundary point b to its nearest other points within the limit (a squared distance).
    """

@overload
def last_rows(codes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_last: int, limits: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """
    Return the ascending indices of the last `n_last` rows and of the last limits[code] rows of each class.
    """

@overload
def last_rows(codes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_last: int, per_class: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """
    Return the ascending indices of the last `n_last` rows and of the last `per_class` rows of each class.
    """

class ExpertCalibrations:
    """
    Calibrations of the scores of experts to log-odds. An expert is calibrated if it is a candidate and has `min_rows` known scores of each class. Positive rows come first.
    """

    def __init__(self, scores: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_positive: int, is_candidate: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], min_rows: int, max_linear: float) -> None: ...

    def __len__(self) -> int: ...

    def auc(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
        """Return the AUC of each expert, NaN without calibration."""

    def weights(self, share: float, sharpness: tuple[float, float, float], least: float, priors: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
        """
        Return weights with sum 1: prior * exp(s[0] * AUC - s[1] * balanced loss - s[2] * relative observed loss), or 0 without calibration, below chance, or below `least` times the largest weight.
        """

    def totals(self, weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
        """Return the weighted sum of the log-odds of each row."""

    def table(self, expert: int) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]]:
        """
        Return knots and values of the calibration of an expert; one knot without calibration.
        """

def platt_scaling(scores: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_positive: int) -> tuple[float, float]:
    """
    Return slope and bias that convert scores to log-odds for equally frequent classes (Platt scaling). Positive rows come first.
    """

def solve_correction(log_odds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], share: float, ridge: float, n_steps: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
    """
    Return the correction of the weights by ridge logistic regression. `places` are 0 or 1, at least one of each.
    """

def learn_calibration(coefficients: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], curvature: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], losses: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], log_odds: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], is_positive: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], edges: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], half_lives: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], loss_half_life: float, prior_rows: float, max_step: float, min_slope: float, block_rows: int) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]]:
    """
    Return coefficients, second derivatives and losses after labelled rows.
    """

def calibrate(coefficients: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], losses: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], log_odds: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], edges: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
    """
    Return the log-odds of the mean probability of the calibrations, weighted by exp(-loss).
    """

def add_hits(rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], hits: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], is_hit: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], keep: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], min_rows: float, min_deviations: float, min_fall: float) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')], bool]:
    """
    Return the decayed numbers of rows and hits of each class after labelled rows, and whether the short-term hit rate has fallen below the long-term one.
    """

def conformal_p_values(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], edges: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], counts: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], uniform: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu', writable=False)]) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]]:
    """
    Return smoothed p-values of the bins of new rows and of the distances of these bins from the middle, and the new counts.
    """

def bet_on_columns(sums: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], p: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], slope: float, max_sum: float) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """
    Return the Shiryaev-Roberts sums of columns, updated with the p-values of conformal_p_values().
    """

def bet_on_shares(sums: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], counts: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], uniform: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], factors: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], max_sum: float) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]]:
    """
    Return the Shiryaev-Roberts sums of class shares and the class counts, updated with new rows.
    """

class AucWindow:
    """
    The last `window` scored rows of a stream, and counts of correctly ordered pairs among them.
    """

    def __init__(self, window: int, n_columns: int = 1) -> None: ...

    def push(self, codes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], scores: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None:
        """Append rows. The oldest rows leave the window."""

    def clear(self) -> None:
        """Forget all rows."""

    def counts(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
        """Return the number of rows of each class in the window."""

    def doubled_wins(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C')]:
        """
        Return, at [i, j], twice the number of pairs in which a row of class i scores higher in column i than a row of class j. A tie counts as half a pair. With one column, [0, 0] counts pairs of class 1 over class 0.
        """

    def content(self) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]]:
        """
        Return the codes and scores of the rows in the window, oldest row first.
        """

    def __len__(self) -> int: ...

def enclosing_ball(spec: KernelSpec, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], bounds: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], tolerance: float, cache_bytes: int, max_steps: int, n_threads: int = 1) -> dict[str, Any]:
    """
    Return the smallest ball around the rows in the feature space of the kernel. The weight of each row is between 0 and its bound. Bounds must be positive and sum to at least 1.
    """

def all_within(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], limit: float, n_threads: int = 1) -> bool:
    """Return whether all values are numbers from -limit to limit."""

def sphere_distances(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], centers: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """Return squared distances of all rows to all centers."""

def ellipsoid_distances(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], axes: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """
    Return squared distances of all rows x to ellipsoids: sums of (axis'x - offset)^2 over the axes of each ellipsoid.
    """

def nearest_sphere(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], centers: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], radii: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_threads: int = 1) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]]:
    """
    Return for each row the ball with the smallest distance / radius, and this ratio.
    """

def nearest_ellipsoid(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], axes: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], radii: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_threads: int = 1) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]]:
    """
    Return for each row the ellipsoid with the smallest distance / radius, and this ratio.
    """

class SolverFailure(RuntimeError):
    pass

class IncrementalSvc:
    """Learned rows and the optimal solutions of their binary SVM problems."""

    def __init__(self, n_features: int, spec: KernelSpec | None, function: object | None, budget_bytes: int) -> None: ...

    def update(self, add: tuple[Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Sequence[int], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None] | None, retire: tuple[Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Sequence[int], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None] | None, positives: Sequence[int], class_bounds: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], tolerance: float) -> int | None:
        """
        Learns and forgets rows and solves each problem. The update is atomic. Rows are tuples (X, numbers, label_codes, weights), where row i has the code label_codes[numbers[i]]. Returns the index of a row to forget that was never learned, or None.
        """

    def slide(self, add: object | None, retire: object | None, codes: dict[Any, int], counts: list[int], tolerance: float) -> bool:
        """
        Learns one row and forgets another, both of weight 1 and given as tuples (X, y). The problems are those of the previous call, and `counts` is updated. Returns False, without changes, if update() is needed.
        """

    def side(self, row: object | None, version: int) -> int:
        """
        Returns 1 if the score of a row is positive, 0 if not, and -1 if the general path is needed.
        """

    def __len__(self) -> int: ...

    @property
    def version(self) -> int:
        """Number of updates so far."""

    @property
    def n_wanted_rows(self) -> int: ...

    @property
    def value_bytes(self) -> int:
        """
        Bytes of a cached kernel value: 2 (fixed point), 4 (float) or 8 (double).
        """

    def kept_rows(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C')]:
        """Rows with cached kernel values, in the order of summation."""

    def order(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C')]:
        """
        Rows in an order such that a lookup finds the last of several equal rows.
        """

    @property
    def n_problems(self) -> int: ...

    def codes(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]: ...

    def weights(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]: ...

    def rows(self, which: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]: ...

    def support(self) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]]:
        """
        Returns the support vectors of all problems, their coefficients (one row per problem) and the intercepts.
        """

    def positive(self, problem: int) -> int: ...

    def coefficients(self, problem: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
        """Signed dual coefficients of all rows: y times alpha."""

    def bias(self, problem: int) -> float: ...

    def margin_size(self, problem: int) -> int: ...

    def violation(self, problem: int) -> float:
        """
        Largest violation of the optimality conditions, computed from new sums.
        """

    def report(self, problem: int) -> tuple[int, int, int]:
        """Numbers of steps, rounds and SMO steps of the last solve."""

    def dump_problem(self, problem: int) -> dict[str, Any]: ...

    def load_problem(self, values: dict[str, Any]) -> None: ...

    def load_rows(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], value_bytes: int, kept: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], order: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_wanted: int) -> None: ...

def all_finite(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> bool:
    """Returns whether all values are finite."""

class KoilEnsemble64:
    """
    KOIL models that learn one stream, one model for each target and kernel.
    """

    def __init__(self, n_features: int, kernels: Sequence[KernelSpec], budgets: Sequence[int], seed: int) -> None: ...

    @staticmethod
    def from_state(kernels: Sequence[KernelSpec], budgets: Sequence[int], seed: int, n_seen: int, vectors: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], machines: list[object]) -> KoilEnsemble64: ...

    @property
    def vectors(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]: ...

    def machines(self) -> list[object]:
        """Return the buffers of every model. Ids are row numbers of `vectors`."""

    @property
    def n_seen(self) -> int: ...

    @property
    def n_targets(self) -> int: ...

    @property
    def n_machines(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def add_target(self) -> None: ...

    def copy_target(self, target: int) -> None: ...

    def learn(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], C: float, learning_rate: float, n_neighbors: int, smooth: bool, decay: bool, policy: str, weight_rate: float, rate_decay: float = 0.0, nearest_first: bool = False, store_all: bool = False, n_threads: int = 1) -> None:
        """
        Learn rows in order; signs[target, i] is the class of row i, +1 or -1. Each thread learns some of the models.
        """

    def scores(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
        """Return the decision values of every model for every row."""

    def cache_error(self) -> float:
        """
        Return the largest difference between a cached and a recomputed score of a support vector.
        """

class KoilEnsemble32:
    """
    KOIL models that learn one stream, one model for each target and kernel.
    """

    def __init__(self, n_features: int, kernels: Sequence[KernelSpec], budgets: Sequence[int], seed: int) -> None: ...

    @staticmethod
    def from_state(kernels: Sequence[KernelSpec], budgets: Sequence[int], seed: int, n_seen: int, vectors: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], machines: list[object]) -> KoilEnsemble32: ...

    @property
    def vectors(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')]: ...

    def machines(self) -> list[object]:
        """Return the buffers of every model. Ids are row numbers of `vectors`."""

    @property
    def n_seen(self) -> int: ...

    @property
    def n_targets(self) -> int: ...

    @property
    def n_machines(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def add_target(self) -> None: ...

    def copy_target(self, target: int) -> None: ...

    def learn(self, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], C: float, learning_rate: float, n_neighbors: int, smooth: bool, decay: bool, policy: str, weight_rate: float, rate_decay: float = 0.0, nearest_first: bool = False, store_all: bool = False, n_threads: int = 1) -> None:
        """
        Learn rows in order; signs[target, i] is the class of row i, +1 or -1. Each thread learns some of the models.
        """

    def scores(self, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
        """Return the decision values of every model for every row."""

    def cache_error(self) -> float:
        """
        Return the largest difference between a cached and a recomputed score of a support vector.
        """

class KernelExpansion64:
    """
    Weighted support vectors, which one of several online learners updates.
    """

    def __init__(self, kernel: KernelSpec, n_features: int) -> None: ...

    @staticmethod
    def from_state(kernel: KernelSpec, vectors: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], coef: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], times: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], bias: float, margin: float, deviation: float, mistakes: int, seen: int) -> KernelExpansion64: ...

    @property
    def n_features(self) -> int: ...

    @property
    def vectors(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]: ...

    @property
    def coef(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]: ...

    @property
    def times(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

    @property
    def bias(self) -> float: ...

    @property
    def margin(self) -> float: ...

    @property
    def deviation(self) -> float: ...

    @property
    def mistakes(self) -> int: ...

    @property
    def seen(self) -> int: ...

    def scores(self, X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]: ...

@overload
def norma_sweep(machines: Sequence[KernelExpansion64], X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], learning_rate: float, regularization: float, nu: float, memory: int) -> None: ...

@overload
def norma_sweep(machines: Sequence[KernelExpansion32], X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], learning_rate: float, regularization: float, nu: float, memory: int) -> None:
    """
    Make one pass of NORMA over the rows and update the binary models in place.
    """

@overload
def random_budget_sweep(machines: Sequence[KernelExpansion64], X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], budget: int, seed: int) -> None: ...

@overload
def random_budget_sweep(machines: Sequence[KernelExpansion32], X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], budget: int, seed: int) -> None:
    """
    Make one pass of the randomized budget perceptron and update the binary models in place.
    """

@overload
def forgetron_sweep(machines: Sequence[KernelExpansion64], X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], budget: int) -> None: ...

@overload
def forgetron_sweep(machines: Sequence[KernelExpansion32], X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], budget: int) -> None:
    """Make one pass of the Forgetron and update the binary models in place."""

@overload
def projectron_sweep(machines: Sequence[KernelExpansion64], X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], threshold: float, margin: bool) -> None: ...

@overload
def projectron_sweep(machines: Sequence[KernelExpansion32], X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], threshold: float, margin: bool) -> None:
    """Make one pass of the Projectron and update the binary models in place."""

class KernelExpansion32:
    """
    Weighted support vectors, which one of several online learners updates.
    """

    def __init__(self, kernel: KernelSpec, n_features: int) -> None: ...

    @staticmethod
    def from_state(kernel: KernelSpec, vectors: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], coef: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], times: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], bias: float, margin: float, deviation: float, mistakes: int, seen: int) -> KernelExpansion32: ...

    @property
    def n_features(self) -> int: ...

    @property
    def vectors(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')]: ...

    @property
    def coef(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]: ...

    @property
    def times(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]: ...

    @property
    def bias(self) -> float: ...

    @property
    def margin(self) -> float: ...

    @property
    def deviation(self) -> float: ...

    @property
    def mistakes(self) -> int: ...

    @property
    def seen(self) -> int: ...

    def scores(self, X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_threads: int = 1) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]: ...

@overload
def perceptron_sweep(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], bias: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]]) -> None: ...

@overload
def perceptron_sweep(X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], bias: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]]) -> None:
    """
    Make one pass of the perceptron and update the arrays (one per target) in place.
    """

@overload
def oam_sweep(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], buffers: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu')]], stored: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]], seen: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]], C: float, seed: int) -> None: ...

@overload
def oam_sweep(X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], buffers: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu')]], stored: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]], seen: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]], C: float, seed: int) -> None:
    """
    Make one pass of sequential online AUC maximization and update the arrays (one per target) in place.
    """

@overload
def opauc_sweep(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], means: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')]], covariances: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu')]], seen: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]], learning_rate: float, regularization: float) -> None: ...

@overload
def opauc_sweep(X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], means: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')]], covariances: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu')]], seen: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]], learning_rate: float, regularization: float) -> None:
    """
    Make one pass of one-pass AUC optimization and update the arrays (one per target) in place.
    """

def arow_sweep(X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], variances: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], bias: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], seen: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], regularization: float) -> None:
    """
    Make one pass of AROW over dense rows and update the arrays (one per target) in place.
    """

def sparse_arow_sweep(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], variances: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], bias: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], seen: Sequence[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]], regularization: float) -> None:
    """
    Make one pass of AROW over a sparse matrix in CSR format without duplicates and update the arrays (one per target) in place.
    """

def sparse_linear_svm(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], costs: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_features: int, n_passes: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """
    Fit linear SVMs to a sparse matrix in CSR format. Return weights and intercept, one row per target.
    """
