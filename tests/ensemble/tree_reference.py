"""Boosted trees written plainly: no histograms, no differences of sums, one row after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

_BINS = 64
_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & _MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def _uniform(seed: int, t: int, series: int) -> float:
    golden = 0x9E3779B97F4A7C15
    bits = _mix((_mix((seed + golden * (t + 1)) & _MASK) + golden * (series + 1)) & _MASK)
    return (bits >> 11) * 2.0**-53


def logistic(score: float) -> float:
    """As the trees have it: a sum of nine terms, the same on every machine."""
    x = min(abs(score), 700.0)
    n = float(round(x * 1.4426950408889634))
    r = n * 0.6931471805599453 - x
    e = 1.0 / 40320.0
    for factorial in (5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0):
        e = e * r + 1.0 / factorial
    e = math.ldexp(e, -int(n))
    return (1.0 if score >= 0.0 else e) / (1.0 + e)


def _borders(values: list[float]) -> list[float]:
    values, n = sorted(values), len(values)
    all_of_them = len(set(values)) <= _BINS
    borders: list[float] = []
    for i in range(1, n):
        low, high = values[i - 1], values[i]
        if low != high and (all_of_them or i * _BINS >= (len(borders) + 1) * n):
            middle = 0.5 * low + 0.5 * high
            borders.append(middle if middle < high else low)
    return borders


def _sampled(codes: list[int], n_classes: int) -> list[int]:
    rows = []
    for code in range(n_classes):
        mine = [row for row, c in enumerate(codes) if c == code]
        n = min(len(mine), max(2048 // n_classes, 1))
        rows += [mine[i * len(mine) // n] for i in range(n)]
    return rows


@dataclass
class _Leaf:
    rows: list[int]
    node: int
    gain: float = 0.0
    split: tuple[int, float] | None = None


@dataclass
class Booster:
    """One plane after the other; nodes are lists as the forest has them."""

    X: Any
    codes: list[int]
    weights: list[float]
    n_classes: int
    settings: dict[str, Any]

    def grow(self) -> tuple[list[int], list[int], list[float], list[int]]:
        self.feature: list[int] = []
        self.left: list[int] = []
        self.number: list[float] = []
        self.roots: list[int] = []
        sample = _sampled(self.codes, self.n_classes)
        borders = {c: _borders([float(self.X[r, c]) for r in sample]) for c in range(self.X.shape[1])}
        self.borders = {c: found for c, found in borders.items() if found}
        for plane in range(self.n_classes) if self.n_classes > 2 else [1]:
            self._grow_plane([code == plane for code in self.codes], plane if self.n_classes > 2 else 0)
        return self.feature, self.left, self.number, self.roots

    def _grow_plane(self, positive: list[bool], plane: int) -> None:
        n, s = len(positive), self.settings
        total = [0.0, 0.0]
        for side, weight in zip(positive, self.weights, strict=True):
            total[side] += weight
        weights = [w * (0.5 * n / total[side]) for side, w in zip(positive, self.weights, strict=True)]
        unit = math.ldexp(2.0**30, -math.frexp(max(weights))[1])
        scores = [0.0] * n
        for t in range(s["n_trees"]):
            columns = list(self.borders)
            if len(columns) > s["n_columns"]:
                drawn = sorted((_uniform(s["seed"] + plane, t, i), c) for i, c in enumerate(columns))
                columns = sorted(c for _, c in drawn[: s["n_columns"]])
            p = [logistic(score) for score in scores]
            self.g = [round(weights[r] * (p[r] - positive[r]) * unit) for r in range(n)]
            self.h = [round(weights[r] * (p[r] * (1.0 - p[r])) * unit) for r in range(n)]
            self._grow_tree(scores, columns, s["ridge"] * unit)

    def _node(self) -> int:
        self.feature.append(-1)
        self.left.append(-1)
        self.number.append(0.0)
        return len(self.feature) - 1

    def _grow_tree(self, scores: list[float], columns: list[int], ridge: float) -> None:
        root = _Leaf(list(range(len(scores))), self._node())
        self.roots.append(root.node)
        leaves = [root]
        self._find(root, columns, ridge)
        while len(leaves) < self.settings["n_leaves"]:
            place = max(range(len(leaves)), key=lambda i: leaves[i].gain)  # the first of the best
            leaf = leaves[place]
            if leaf.split is None:
                break
            column, border = leaf.split
            first = self._node()
            self._node()
            self.feature[leaf.node], self.number[leaf.node], self.left[leaf.node] = column, border, first
            sides = [
                [row for row in leaf.rows if (self.X[row, column] > border) == right]
                for right in (False, True)
            ]
            leaves[place], other = _Leaf(sides[0], first), _Leaf(sides[1], first + 1)
            leaves.append(other)
            self._find(leaves[place], columns, ridge)
            self._find(other, columns, ridge)
        for leaf in leaves:
            g, h = sum(self.g[r] for r in leaf.rows), sum(self.h[r] for r in leaf.rows)
            value = self.number[leaf.node] = -self.settings["rate"] * float(g) / (float(h) + ridge)
            for row in leaf.rows:
                scores[row] += value

    def _find(self, leaf: _Leaf, columns: list[int], ridge: float) -> None:
        def worth(g: int, h: int) -> float:
            return float(g) * float(g) / (float(h) + ridge)

        g, h = sum(self.g[r] for r in leaf.rows), sum(self.h[r] for r in leaf.rows)
        least = self.settings["least_rows"]
        for column in columns:
            values = self.X[leaf.rows, column]
            for border in self.borders[column]:
                below = np.flatnonzero(values <= border)
                if min(len(below), len(leaf.rows) - len(below)) < least:
                    continue
                left = [leaf.rows[i] for i in below]
                gl, hl = sum(self.g[r] for r in left), sum(self.h[r] for r in left)
                gain = worth(gl, hl) + worth(g - gl, h - hl) - worth(g, h)
                if gain > leaf.gain:
                    leaf.gain, leaf.split = gain, (column, border)
