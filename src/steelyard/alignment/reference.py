"""Reference rows of a trained model: a dense or sparse matrix, a list of samples, or column indices.

Column indices are used with precomputed kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, InputDistances


def input_distances(X: Any, reference: Any, norm: str = "l2") -> InputDistances:
    """Return a function that computes distances between rows of ``X`` and reference rows, as ACT needs them.

    Distances are squared Euclidean for "l2" and sums of absolute differences for "l1".
    """

    def distances(rows: slice | Indices, positions: Indices) -> FloatArray:
        if norm == "l1":
            return np.asarray(manhattan_distances(X[rows], reference[positions]))
        return np.asarray(euclidean_distances(X[rows], reference[positions], squared=True))

    return distances


def pack_rows(X: Any) -> Any:
    """Return rows as a tree of arrays for a model file."""
    if sp.issparse(X):
        return {"data": X.data, "indices": X.indices, "indptr": X.indptr, "n_columns": int(X.shape[1])}
    return X


def unpack_rows(tree: Any) -> Any:
    """Restore rows from the result of :func:`pack_rows`. Raise ValueError if the tree is not valid."""
    if not isinstance(tree, dict):
        return tree
    indptr = tree["indptr"]
    rows = sp.csr_matrix(
        (tree["data"], tree["indices"], indptr), shape=(len(indptr) - 1, int(tree["n_columns"]))
    )
    rows.check_format()
    return rows
