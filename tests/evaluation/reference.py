"""Reference implementation of the measures, one row at a time."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["measured"]


def measured(true, predicted, positive):
    """Return all measures of two lists of labels. With ``positive=None`` they are means over classes."""
    classes = sorted(set(true))
    recall = {c: _share(true, predicted, c) for c in classes}
    values = {
        "accuracy": sum(a == b for a, b in zip(true, predicted, strict=True)) / len(true),
        "macro_recall": float(np.mean(list(recall.values()))),
        "imbalance_ratio": math.nan,
        "cohen_kappa": _kappa(true, predicted),
    }
    if len(classes) > 1:
        sizes = [true.count(c) for c in classes]
        values["imbalance_ratio"] = max(sizes) / min(sizes)
    if positive is None:
        values |= {
            "sensitivity": values["macro_recall"],
            "specificity": math.nan,
            "rs": math.nan,
            "f1": float(np.mean([_f1(true, predicted, c) for c in classes])),
            "g_mean": math.prod(recall.values()) ** (1 / len(classes)) if len(classes) > 1 else math.nan,
        }
        return values
    others = [p != positive for t, p in zip(true, predicted, strict=True) if t != positive]
    sensitivity = _share(true, predicted, positive) if positive in classes else math.nan
    specificity = sum(others) / len(others) if others else math.nan
    values |= {
        "sensitivity": sensitivity,
        "specificity": specificity,
        "rs": sensitivity / specificity if specificity > 0 else math.nan,
        "f1": _f1(true, predicted, positive),
        "g_mean": math.sqrt(sensitivity * specificity),
    }
    return values


def _share(true, predicted, label):
    return sum(p == label for t, p in zip(true, predicted, strict=True) if t == label) / true.count(label)


def _f1(true, predicted, label):
    hits = sum(t == p == label for t, p in zip(true, predicted, strict=True))
    both = true.count(label) + predicted.count(label)
    return 2 * hits / both if both else math.nan


def _kappa(true, predicted):
    n = len(true)
    observed = sum(t == p for t, p in zip(true, predicted, strict=True)) / n
    by_chance = sum(true.count(c) * predicted.count(c) for c in {*true, *predicted}) / n**2
    return (observed - by_chance) / (1 - by_chance) if by_chance < 1 else math.nan
