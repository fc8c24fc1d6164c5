"""Validation of rows, and blocks of kernel values for sparse rows, callables and precomputed kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from steelyard import _native
from steelyard._validation import canonical_csr, first_nonfinite
from steelyard.exceptions import DataError, DataTypeError

Floats = NDArray[Any]  # float32 or float64
KernelFunction = Callable[[Any, Any], Any]
DENSE_BLOCK = 2**22  # number of matrix entries that are converted from sparse to dense at a time


def function_name(function: KernelFunction) -> str:
    """Return the name of a kernel function for error messages."""
    return str(getattr(function, "__qualname__", None) or repr(function))


# -- validation of rows ------------------------------------------------------------------------------


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


def single_rows(X: Any) -> list[Any]:
    """Split a collection of samples into collections of one sample each."""
    if sparse.issparse(X):
        X = X.tocsr()
    return [X[i : i + 1] for i in range(count(X))]


# -- blocks of kernel values -------------------------------------------------------------------------


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
    if spec.kind == "rbf":
        return _sparse_rbf(spec, left, right, n_threads)
    out = _product(left, right)
    _native.kernel_from_products(spec, out, None, None, n_threads)
    return out


def _sparse_rbf(spec: _native.KernelSpec, left: Any, right: Any, n_threads: int) -> Floats:
    # The distance is a small difference of large products, for which float32 is not precise enough.
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    out = _product(wide_left, wide_right)
    if left is right:
        left_norms = right_norms = out.diagonal().copy()
    else:
        left_norms, right_norms = squared_norms(wide_left), squared_norms(wide_right)
    _native.kernel_from_products(spec, out, left_norms, right_norms, n_threads)
    return out.astype(left.dtype, copy=False)


def _product(left: Any, right: Any) -> Floats:
    product = left @ right.T
    return np.ascontiguousarray(product.toarray() if sparse.issparse(product) else product)


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
