"""Reference implementation of gradient boosting, without bins and histograms, one row after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_MASK = (1 << 64) - 1
_MAX_CATEGORIES = 65_535
DEFAULTS: dict[str, Any] = {
    "row_fraction": 1.0,
    "max_bins": 64,
    "balance_classes": True,
    "start_from_prior": False,
    "category_smoothing": 10.0,
    "category_l2": 10.0,
    "max_categories": 32,
    "min_rows_per_category": 10,
    "pack_sums": False,
}


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
    """Return 1 / (1 + exp(-score)) by a series of nine terms that is the same on every machine."""
    x = min(abs(score), 700.0)
    n = float(round(x * 1.4426950408889634))
    r = n * 0.6931471805599453 - x
    e = 1.0 / 40320.0
    for factorial in (5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0):
        e = e * r + 1.0 / factorial
    e = math.ldexp(e, -int(n))
    return (1.0 if score >= 0.0 else e) / (1.0 + e)


def portable_log(x: float) -> float:
    """Return log(x) by a series that is the same on every machine."""
    m, k = math.frexp(x)
    if m < 0.7071067811865476:
        m, k = 2.0 * m, k - 1
    s = (m - 1.0) / (m + 1.0)
    total = 0.0
    for i in range(21, 0, -2):
        total = total * (s * s) + 1.0 / i
    return k * 0.6931471805599453 + 2.0 * (s * total)


def _borders(values: list[float], max_bins: int) -> list[float]:
    values, n = sorted(values), len(values)
    has_few_values = len(set(values)) <= max_bins
    borders: list[float] = []
    for i in range(1, n):
        low, high = values[i - 1], values[i]
        if low != high and (has_few_values or i * max_bins >= (len(borders) + 1) * n):
            middle = 0.5 * low + 0.5 * high
            borders.append(middle if middle < high else low)
    return borders


def _sample(codes: list[int], n_classes: int, n_sampled: int) -> list[int]:
    rows = []
    for code in range(n_classes):
        of_class = [row for row, c in enumerate(codes) if c == code]
        n = min(len(of_class), max(n_sampled // n_classes, 1))
        rows += [of_class[i * len(of_class) // n] for i in range(n)]
    return rows


def _category(value: float) -> int | None:
    return int(value) if 0.0 <= value < _MAX_CATEGORIES else None


@dataclass
class Split:
    column: int
    threshold: float = 0.0
    missing_left: bool = False
    categories: list[int] | None = None

    def goes_left(self, value: float) -> bool:
        if self.categories is not None:
            return _category(value) in self.categories
        return self.missing_left if math.isnan(value) else value <= self.threshold


@dataclass
class _Leaf:
    rows: list[int]
    node: int
    gain: float = 0.0
    split: Split | None = None


@dataclass
class Nodes:
    """The arrays of a tree ensemble as lists, in the order of the native tuple."""

    feature: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    missing_left: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    category_set: list[int] = field(default_factory=list)
    set_begin: list[int] = field(default_factory=lambda: [0])
    set_words: list[int] = field(default_factory=list)
    base_score: list[float] = field(default_factory=list)

    def add(self, n_rows: int) -> int:
        self.feature.append(-1)
        self.left.append(-1)
        self.value.append(0.0)
        self.missing_left.append(0)
        self.rows.append(n_rows)
        self.category_set.append(-1)
        return len(self.feature) - 1

    def set_split(self, node: int, split: Split, left: int) -> None:
        self.feature[node], self.left[node] = split.column, left
        if split.categories is None:
            self.value[node], self.missing_left[node] = split.threshold, int(split.missing_left)
            return
        bits = sum(1 << code for code in split.categories)
        self.category_set[node] = len(self.set_begin) - 1
        self.set_words += [bits >> 64 * w & _MASK for w in range(max(split.categories) // 64 + 1)]
        self.set_begin.append(len(self.set_words))


@dataclass
class Booster:
    """Gradient boosting, one output after the other."""

    X: Any
    codes: list[int]
    weights: list[float]
    n_classes: int
    settings: dict[str, Any]
    is_category: list[bool] | None = None

    def __post_init__(self) -> None:
        self.settings = {**DEFAULTS, **self.settings}
        self.is_category = self.is_category or [False] * self.X.shape[1]
        self.nodes = Nodes()

    def fit(self) -> tuple[list[Any], ...]:
        self._find_candidates()
        for output in range(self.n_classes if self.n_classes > 2 else 1):
            positive = output if self.n_classes > 2 else 1
            self._fit_output([code == positive for code in self.codes], output)
        return tuple(vars(self.nodes).values())

    def _find_candidates(self) -> None:
        """Set the thresholds or categories of every column that can be split."""
        s = self.settings
        sample = _sample(self.codes, self.n_classes, 32 * s["max_bins"])
        self.thresholds: dict[int, list[float]] = {}
        self.categories: dict[int, list[int]] = {}
        self.columns = []
        for c in range(self.X.shape[1]):
            values = self.X[:, c].tolist()
            if self.is_category[c]:
                n_missing = self._find_categories(c, values)
                if len(self.categories[c]) + (n_missing > 0) > 1:
                    self.columns.append(c)
                continue
            n_missing = sum(map(math.isnan, values))
            max_bins = s["max_bins"] - (n_missing > 0)
            borders = _borders([values[r] for r in sample if not math.isnan(values[r])], max_bins)
            if not borders:  # the values of the sample do not differ
                borders = _borders([v for v in values if not math.isnan(v)], max_bins)
            self.thresholds[c] = borders
            if borders or n_missing > 0:
                self.columns.append(c)

    def _find_categories(self, c: int, values: list[float]) -> int:
        codes = [_category(value) for value in values]
        n_rows = {code: codes.count(code) for code in set(codes) if code is not None}
        min_rows = max(self.settings["min_rows_per_category"], 1)
        self.categories[c] = [code for code in sorted(n_rows) if n_rows[code] >= min_rows]
        return sum(code not in self.categories[c] for code in codes)

    def _fit_output(self, positive: list[bool], output: int) -> None:
        n, s = len(positive), self.settings
        total = [0.0, 0.0]
        for side, weight in zip(positive, self.weights, strict=True):
            total[side] += weight
        weights, base = self.weights, 0.0
        if s["balance_classes"]:
            weights = [w * (0.5 * n / total[side]) for side, w in zip(positive, self.weights, strict=True)]
        elif s["start_from_prior"]:
            base = portable_log(total[1] / total[0])
        self.nodes.base_score.append(base)
        self.is_packed = s["pack_sums"] and n < 1 << 17 and max(weights) * n <= 4.0 * sum(weights)
        self._set_units(n, max(weights))
        scores = [base] * n
        for t in range(s["n_trees"]):
            columns = self.columns
            if len(columns) > s["max_columns"]:
                drawn = sorted((_uniform(s["seed"] + output, t, i), c) for i, c in enumerate(columns))
                columns = sorted(c for _, c in drawn[: s["max_columns"]])
            rows = list(range(n))
            if s["row_fraction"] < 1.0:
                seed = _mix(s["seed"] + output + 1)
                rows = [r for r in rows if _uniform(seed, t, r) < s["row_fraction"]] or rows
            p = [logistic(score) for score in scores]
            up = self._offsets(n, _mix(s["seed"] + output) + t)
            g = [weights[r] * (p[r] - positive[r]) * self.g_unit for r in range(n)]
            self.g = [round(g[r] + math.copysign(1.0, g[r]) * up[r][0]) for r in range(n)]
            self.h = [round(weights[r] * (p[r] * (1.0 - p[r])) * self.h_unit + up[r][1]) for r in range(n)]
            self._grow_tree(scores, rows, columns)

    def _set_units(self, n: int, max_weight: float) -> None:
        """Set the steps of integer gradients and hessians. With many rows, hessians have fewer bits."""
        exponent = math.frexp(max_weight)[1]
        if self.is_packed:  # a word of 64 bits holds a sign, gradients, hessians and the number of rows
            row_bits = 63 - 3 * n.bit_length()
            h_bits = min(row_bits // 2, 20)
            self.g_unit = math.ldexp(1.0, min(row_bits - h_bits, 20) - exponent)
            self.h_unit = math.ldexp(1.0, h_bits + 2 - exponent)
            return
        h_bits = min(30, 65 - 2 * max(16, n.bit_length()))
        self.g_unit = math.ldexp(1.0, 30 - exponent)
        self.h_unit = math.ldexp(1.0, h_bits - exponent)

    def _offsets(self, n: int, key: int) -> list[tuple[float, float]]:
        """Return the numbers that are added to gradients and hessians before they are rounded."""
        if not self.is_packed:
            return [(0.0, 0.0)] * n
        bits = [_mix((key + 0x9E3779B97F4A7C15 * (r + 1)) & _MASK) for r in range(n)]
        middle = 0.5 - 2.0**-33
        return [((b >> 32) * 2.0**-32 - middle, (b & 0xFFFFFFFF) * 2.0**-32 - middle) for b in bits]

    def _sums(self, rows: list[int]) -> tuple[float, float]:
        g, h = sum(self.g[r] for r in rows), sum(self.h[r] for r in rows)
        return float(g), float(h) * (self.g_unit / self.h_unit)

    def _gain_term(self, rows: list[int], extra_l2: float = 0.0) -> float:
        g, h = self._sums(rows)
        return g * g / (h + (self.settings["l2_regularization"] + extra_l2) * self.g_unit)

    def _grow_tree(self, scores: list[float], rows: list[int], columns: list[int]) -> None:
        s, nodes = self.settings, self.nodes
        first_node = len(nodes.feature)
        root = _Leaf(rows, nodes.add(len(rows)))
        nodes.roots.append(root.node)
        leaves, splits = [root], {}
        self._find_split(root, columns)
        while len(leaves) < s["max_leaves"]:
            best = max(range(len(leaves)), key=lambda i: leaves[i].gain)  # the first of equal ones
            leaf = leaves[best]
            if leaf.split is None:
                break
            is_left = [leaf.split.goes_left(float(self.X[r, leaf.split.column])) for r in leaf.rows]
            left = [r for r, here in zip(leaf.rows, is_left, strict=True) if here]
            right = [r for r, here in zip(leaf.rows, is_left, strict=True) if not here]
            children = _Leaf(left, nodes.add(len(left))), _Leaf(right, nodes.add(len(right)))
            nodes.set_split(leaf.node, leaf.split, children[0].node)
            splits[leaf.node] = leaf.split
            for child in children:
                self._find_split(child, columns)
            leaves[best] = children[0]
            leaves.append(children[1])
        for leaf in leaves:
            g, h = self._sums(leaf.rows)
            nodes.value[leaf.node] = -s["learning_rate"] * g / (h + s["l2_regularization"] * self.g_unit)
        for r in range(len(scores)):
            node = first_node
            while node in splits:
                split = splits[node]
                node = nodes.left[node] + (not split.goes_left(float(self.X[r, split.column])))
            scores[r] += nodes.value[node]

    def _find_split(self, leaf: _Leaf, columns: list[int]) -> None:
        for column in columns:
            if self.is_category[column]:
                self._try_categories(leaf, column)
            else:
                self._try_thresholds(leaf, column)

    def _try(self, leaf: _Leaf, split: Split, extra_l2: float = 0.0) -> bool:
        """Store a split in the leaf if it is the best one so far; return whether it was stored."""
        values = self.X[leaf.rows, split.column].tolist()
        is_left = [split.goes_left(value) for value in values]
        left = [r for r, here in zip(leaf.rows, is_left, strict=True) if here]
        right = [r for r, here in zip(leaf.rows, is_left, strict=True) if not here]
        if min(len(left), len(right)) < self.settings["min_rows_per_leaf"]:
            return False
        gain = self._gain_term(left, extra_l2) + self._gain_term(right, extra_l2) - self._gain_term(leaf.rows)
        if not gain > leaf.gain:
            return False
        leaf.gain, leaf.split = gain, split
        self.n_left, self.n_right = len(left), len(right)
        return True

    def _try_thresholds(self, leaf: _Leaf, column: int) -> None:
        borders = self.thresholds[column]
        if not np.isnan(self.X[leaf.rows, column]).any():
            for border in borders:
                split = Split(column, border)
                if self._try(leaf, split):
                    split.missing_left = self.n_left >= self.n_right
            return
        for border in [*borders, math.inf]:
            self._try(leaf, Split(column, border, missing_left=False))
        for border in borders:
            self._try(leaf, Split(column, border, missing_left=True))

    def _try_categories(self, leaf: _Leaf, column: int) -> None:
        s = self.settings
        rows: dict[int, list[int]] = {code: [] for code in self.categories[column]}
        n_others = 0
        for r in leaf.rows:
            rows.get(_category(float(self.X[r, column])), others := []).append(r)  # type: ignore[arg-type]
            n_others += len(others)
        for code in list(rows):
            if len(rows[code]) < max(s["min_rows_per_category"], 1):
                n_others += len(rows.pop(code))

        def ratio(code: int) -> float:
            g, h = self._sums(rows[code])
            return g / (h + s["category_smoothing"] * self.g_unit)

        ordered = sorted(rows, key=lambda code: (ratio(code), code))
        n_sets = min(s["max_categories"], len(ordered) - (n_others == 0))
        for codes in (ordered, ordered[::-1]):
            for i in range(1, n_sets + 1):
                split = Split(column, categories=codes[:i])
                is_best = self._try(leaf, split, s["category_l2"])
                if is_best and n_others == 0 and self.n_left > self.n_right:
                    split.categories = codes[i:]
