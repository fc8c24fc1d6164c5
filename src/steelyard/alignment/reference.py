"""Rows that a trained model still needs: tables, sparse tables, collections, or columns of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, InputDistances

__all__ = ["input_distances", "pack_rows", "take_rows", "unpack_rows"]


def take_rows(X: Any, rows: Indices | slice) -> Any:
    """Return some rows of a table or some items of a collection."""
    if not isinstance(X, list):
        return X[rows]
    return X[rows] if isinstance(rows, slice) else [X[i] for i in rows]


def input_distances(X: Any, reference: Any, norm: str = "l2") -> InputDistances:
    """Distances between rows and reference rows in the exponent of ACT, computed where they are asked for.

    Squared Euclidean distances for "l2", sums of absolute differences for "l1".
    """

    def distances(rows: slice | Indices, positions: Indices) -> FloatArray:
        if norm == "l1":
            return np.asarray(manhattan_distances(X[rows], reference[positions]))
        return np.asarray(euclidean_distances(X[rows], reference[positions], squared=True))

    return distances


def pack_rows(X: Any) -> Any:
    """Rows as a tree that can be saved."""
    if sp.issparse(X):
        return {"data": X.data, "indices": X.indices, "indptr": X.indptr, "n_columns": int(X.shape[1])}
    return X


def unpack_rows(tree: Any) -> Any:
    """Rows that :func:`pack_rows` described; ValueError if they make no sense."""
    if not isinstance(tree, dict):
        return tree
    indptr = tree["indptr"]
    rows = sp.csr_matrix(
        (tree["data"], tree["indices"], indptr), shape=(len(indptr) - 1, int(tree["n_columns"]))
    )
    rows.check_format()
    return rows
