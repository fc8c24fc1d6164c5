"""Reference implementations of the measures, written directly from their formulas."""

import math
from itertools import combinations


def outcomes(y_true, y_pred, positive, weights=None):
    weights = [1.0] * len(y_true) if weights is None else weights
    cells = {(t, p): 0.0 for t in (True, False) for p in (True, False)}
    for true, predicted, weight in zip(y_true, y_pred, weights, strict=True):
        cells[true == positive, predicted == positive] += weight
    return cells[True, True], cells[True, False], cells[False, True], cells[False, False]


def sensitivity(y_true, y_pred, positive, weights=None):
    tp, fn, _, _ = outcomes(y_true, y_pred, positive, weights)
    return tp / (tp + fn) if tp + fn else math.nan


def specificity(y_true, y_pred, positive, weights=None):
    _, _, fp, tn = outcomes(y_true, y_pred, positive, weights)
    return tn / (tn + fp) if tn + fp else math.nan


def f_beta(y_true, y_pred, positive, beta):
    tp, fn, fp, _ = outcomes(y_true, y_pred, positive)
    p, r = tp / (tp + fp), tp / (tp + fn)
    return (1 + beta**2) * p * r / (beta**2 * p + r)


def auc(is_positive, scores):
    """Return the share of (positive, negative) pairs in the right order."""
    positives = [s for s, p in zip(scores, is_positive, strict=True) if p]
    negatives = [s for s, p in zip(scores, is_positive, strict=True) if not p]
    if not positives or not negatives:
        return math.nan
    wins = sum((p > n) + 0.5 * (p == n) for p in positives for n in negatives)
    return wins / (len(positives) * len(negatives))


def pmauc(y_true, scores, labels):
    def one_over_other(one, other):
        rows = [k for k, label in enumerate(y_true) if label in {one, other}]
        column = labels.index(one)
        return auc([y_true[k] == one for k in rows], [scores[k][column] for k in rows])

    values = [(one_over_other(a, b) + one_over_other(b, a)) / 2 for a, b in combinations(labels, 2)]
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan
