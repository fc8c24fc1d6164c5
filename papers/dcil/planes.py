"""Figures 2.1 to 2.3: the planes of SVM, LPSVM and wLPSVM on points in a square."""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.arrays import Floats, Labels
from papers.context import Context
from papers.dcil.common import THESIS, learner
from papers.experiment import experiment
from papers.plots import COLOURS
from papers.result import Picture, Result, Row

__all__ = ["figures_2"]

_NAMES = {"SVM": "IncSVM", "LPSVM": "IncLPSVM", "wLPSVM": "DCIL-IncLPSVM"}
_BALANCED, _IMBALANCED = (30, 30), (6, 60)  # positive and negative points


@experiment("dcil-figures-2.1-2.3", paper=THESIS, title="Figures 2.1 to 2.3: planes and class imbalance")
def figures_2(context: Context) -> Result:
    points = {
        counts: [
            _points(*counts, context.rng("planes", counts, number))
            for number in range(context.pick(200, 50, 5))
        ]
        for counts in (_BALANCED, _IMBALANCED)
    }
    rows = []
    for counts, rounds in points.items():
        for name in _NAMES:
            angles, shifts = zip(*(_deviation(name, *one) for one in rounds), strict=True)
            subject = f"{counts[0]} : {counts[1]} points"
            rows.append(Row.of(subject, name, "shift towards the rare class", shifts, aim="low"))
            rows.append(Row.of(subject, name, "angle to the ideal plane", angles, aim="low"))
    first = {counts: rounds[0] for counts, rounds in points.items()}
    pictures = [
        _picture("planes", "Figure 2.1: planes of SVM bound the classes, those of LPSVM run through them.",
                 [("SVM", first[_BALANCED]), ("LPSVM", first[_BALANCED])]),
        _picture("imbalance", "Figure 2.2: balanced and imbalanced classes; the ideal plane is dashed.",
                 [(name, first[counts]) for counts in first for name in ("SVM", "LPSVM")]),
        _picture("weights", "Figure 2.3: LPSVM and wLPSVM on imbalanced classes.",
                 [("LPSVM", first[_IMBALANCED]), ("wLPSVM", first[_IMBALANCED])]),
    ]  # fmt: skip
    note = (
        "Points are drawn as in the thesis: positive ones uniformly from [0.1, 1.1] x [-1, 1], negative "
        "ones from [-1.1, -0.1] x [-1, 1], so that x1 = 0 is the ideal plane. The thesis gives no counts "
        "for the imbalanced classes; 6 : 60 is our choice. The shift is where the plane crosses the axis "
        "x2 = 0; it is positive if the plane is shifted towards the rare class."
    )
    return Result(rows, [note], (), pictures, layout="wide")


def _points(n_positive: int, n_negative: int, rng: np.random.Generator) -> tuple[Floats, Labels]:
    y = np.repeat(np.array([1, 0]), [n_positive, n_negative])
    across = rng.uniform(0.1, 1.1, size=len(y)) * np.where(y == 1, 1.0, -1.0)
    return np.column_stack([across, rng.uniform(-1.0, 1.0, size=len(y))]), y


def _plane(name: str, X: Floats, y: Labels) -> tuple[Floats, float]:
    """Return normal and offset of a learner's plane, computed from its scores of three points."""
    model = learner(_NAMES[name]).fit(X, y)
    origin, right, up = model.decision_function(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    return np.array([right - origin, up - origin]), float(origin)


def _deviation(name: str, X: Floats, y: Labels) -> tuple[float, float]:
    """Return the angle to the ideal plane in degrees, and where the plane crosses the first axis."""
    w, b = _plane(name, X, y)
    return float(np.degrees(np.arctan2(abs(w[1]), abs(w[0])))), float(-b / w[0])


def _picture(name: str, caption: str, parts: list[tuple[str, tuple[Floats, Labels]]]) -> Picture:
    def draw(figure: Any) -> None:
        grid = figure.subplots(1, len(parts), squeeze=False, sharey=True)
        for axes, (title, (X, y)) in zip(grid.flat, parts, strict=True):
            _draw_planes(axes, title, X, y)

    return Picture(name, caption, draw, (3.2 * len(parts), 3.6))


def _draw_planes(axes: Any, title: str, X: Floats, y: Labels) -> None:
    for label, marker, colour in ((1, "o", COLOURS[1]), (0, "x", COLOURS[0])):
        axes.scatter(*X[y == label].T, marker=marker, color=colour, s=14, linewidths=1)
    w, b = _plane(title, X, y)
    height = np.array([-1.0, 1.0])
    for level, colour, width in ((1.0, COLOURS[1], 1.0), (0.0, "black", 1.8), (-1.0, COLOURS[0], 1.0)):
        axes.plot((level - b - w[1] * height) / w[0], height, color=colour, linewidth=width)
    axes.axvline(0.0, color=COLOURS[2], linestyle="--", linewidth=1)
    axes.set(title=f"{title}, {int(y.sum())} : {int((1 - y).sum())}", xlim=(-1.5, 1.5), ylim=(-1.05, 1.05))
