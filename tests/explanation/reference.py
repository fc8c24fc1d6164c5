"""Shapley values from their definition: the average over all orders of the columns."""

from __future__ import annotations

from itertools import permutations

import numpy as np


def shapley_values(value, n_columns):
    """Return the Shapley values of a game. ``value`` maps a frozenset of columns to an array of scores."""
    total, orders = 0.0, list(permutations(range(n_columns)))
    for order in orders:
        present = frozenset()
        before = value(present)
        parts = [None] * n_columns
        for column in order:
            present |= {column}
            now = value(present)
            parts[column] = now - before
            before = now
        total = total + np.array(parts)
    return total / len(orders)


def one_reference(scores, row, reference):
    """Return the value function of the game in which absent columns have the values of ``reference``."""

    def value(present):
        mixed = np.array([row[c] if c in present else reference[c] for c in range(len(row))])
        return np.asarray(scores(mixed[None]))[0]

    return value


def independent_columns(scores, row, background):
    """Return the value function of the game that draws absent columns independently from ``background``."""

    def value(present):
        absent = [c for c in range(len(row)) if c not in present]
        grids = np.meshgrid(*(background[:, c] for c in absent), indexing="ij")
        mixed = np.repeat(np.asarray(row)[None], max(grids[0].size if grids else 1, 1), axis=0)
        for column, grid in zip(absent, grids, strict=True):
            mixed[:, column] = grid.ravel()
        return np.asarray(scores(mixed)).mean(axis=0)

    return value
