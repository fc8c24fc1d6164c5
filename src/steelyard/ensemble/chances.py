"""From scores to probabilities: how steeply they rise, by what recent rows turned out to be.

Recent rows were scored before they were learned, so what the committee makes of their scores says how far a
score can be trusted. With the classes counted alike, the chances are a softmax of the scores times one
number, the one that makes the labels of these rows likeliest.
"""

from __future__ import annotations

import numpy as np

from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.evidence import Evidence
from steelyard.ensemble.panel import Panel

__all__ = ["chances"]

_STEPS = 30  # of Newton's method, at most
_UNKNOWN = 1.0  # how steeply scores rise while nothing is known about them


def chances(panel: Panel, evidence: Evidence, scores: FloatArray, *, moved: bool) -> FloatArray:
    """Probabilities of classes that are equally frequent.

    ``scores`` are what the panel decided. ``moved`` says that the cut of two classes aims at something else
    than finding both equally well, so that it is not where both are equally likely.
    """
    if panel.judgement is None:
        return _softmax(_UNKNOWN * _both(scores))
    places, raw = evidence.recent()
    known = _both(panel.decide(raw))
    offset = 0.0
    if moved and known.shape[1] == 2:
        # Half-way between the middles of both sides.
        offset = 0.5 * sum(float(np.median(known[places == place, 1])) for place in (0, 1))
    shift = np.array([0.0, offset]) if known.shape[1] == 2 else 0.0
    slope = _slope(known - shift, places)
    return _softmax(slope * (_both(scores) - shift))


def _both(scores: FloatArray) -> FloatArray:
    """One column a class, also of two."""
    if scores.shape[1] > 1:
        return scores
    return np.concatenate([np.zeros_like(scores), scores], axis=1)


def _softmax(scores: FloatArray) -> FloatArray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    out: FloatArray = powers / powers.sum(axis=1, keepdims=True)
    return out


def _slope(scores: FloatArray, places: IntArray) -> float:
    """The factor of the scores under which the labels are likeliest, every class counted alike.

    As Platt has it, a row is of its class only almost surely, the less so the fewer rows of it there are;
    so scores that part the classes wholly do not give certainty.
    """
    n_of = np.bincount(places, minlength=scores.shape[1])
    weights = (1.0 / np.maximum(n_of, 1))[places]
    doubt = (1.0 / (n_of + 2.0))[places]
    wanted = (1.0 - doubt) * scores[np.arange(len(places)), places] + doubt * scores.mean(axis=1)
    slope = 0.0
    for _ in range(_STEPS):
        p = _softmax(slope * scores)
        mean = (p * scores).sum(axis=1)
        gradient = float(weights @ (mean - wanted))
        curvature = float(weights @ ((p * np.square(scores)).sum(axis=1) - np.square(mean)))
        if curvature <= 0.0:
            break
        step = gradient / curvature
        slope = max(0.0, slope - step)
        if abs(step) <= 1e-9 * (1.0 + slope):
            break
    return slope
