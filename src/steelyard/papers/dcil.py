"""DCIL-IncLPSVM (Zhu's thesis): weights that follow the class counts of a stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steelyard.papers.context import Context
from steelyard.papers.experiment import experiment
from steelyard.papers.result import Result, Row
from steelyard.proximal import ProximalSVC

THESIS = "DCIL-IncLPSVM thesis"

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

# Table 5.1: distance and angle between the incremental plane and the batch plane.
PAPER_TABLE_5_1 = {
    "breast Wisconsin": (0.0, 1.20e-6),
    "iris 1 to 2,3": (7.63e-27, 0.0),
    "iris 2 to 1,3": (2.10e-27, 0.0),
    "iris 3 to 1,2": (1.04e-26, 0.0),
}


@experiment("dcil-table-5.1", paper=THESIS, title="Table 5.1: the incremental plane is the batch plane")
def table_5_1(context: Context) -> Result:
    problems: dict[str, tuple[Floats, Labels]] = {}
    for name, data in context.sets(["breast_wisconsin", "iris"]):
        if name == "iris":
            for number, rest in enumerate(("2,3", "1,3", "1,2")):
                problems[f"iris {number + 1} to {rest}"] = (data.numbers(), data.binary(number))
        else:
            whole = data.complete()
            problems["breast Wisconsin"] = (whole.numbers(), whole.binary(4))
    rows = []
    for subject, (X, y) in problems.items():
        rounds = [
            _distances_to_batch(X, y, context.rng(subject, number))
            for number in range(context.pick(50, 10, 3))
        ]
        for place, measure in enumerate(("squared distance", "angle")):
            paper = PAPER_TABLE_5_1[subject][place]
            values = [both[place] for both in rounds]
            rows.append(Row.of(subject, "DCIL", measure, values, paper=paper, aim="low", tolerance=1e-12))
    return Result(rows)


def _distances_to_batch(X: Floats, y: Labels, rng: np.random.Generator) -> tuple[float, float]:
    """Squared distance and angle between the plane after ten chunks and the plane of a single fit."""
    model = ProximalSVC(class_weight="balanced")
    for chunk in np.array_split(rng.permutation(len(y)), 10):
        model.partial_fit(X[chunk], y[chunk], classes=[0, 1])
    ours, batch = (_plane(learner) for learner in (model, ProximalSVC(class_weight="balanced").fit(X, y)))
    a, b = ours / np.linalg.norm(ours), batch / np.linalg.norm(batch)
    # The arc cosine of nearly 1 has half the digits only.
    angle = 2.0 * np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b))
    return float(np.sum((ours - batch) ** 2)), float(angle)


def _plane(model: ProximalSVC) -> Floats:
    return np.append(model.coef_[0], model.intercept_)
