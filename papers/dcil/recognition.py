"""Figures 5.3 to 5.6: face recognition with 10 to 270 classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from papers.arrays import Floats
from papers.context import Context
from papers.dcil.common import N_STAGES, THESIS, People, answers_by_stage, crowds, stages
from papers.dcil.membership import DATA_NOTES
from papers.experiment import experiment
from papers.plots import line_picture
from papers.result import Picture, Result, Row, Series

__all__ = ["figures_5_3_to_5_6"]

_RIVALS = ("IncLPSVM", "DCIL-IncLPSVM")


@dataclass(frozen=True, eq=False)
class _Trial:
    """One round of face recognition with some of the people."""

    people: People
    n_classes: int
    seed: int


@experiment("dcil-figures-5.3-5.6", paper=THESIS, title="Figures 5.3 to 5.6: recognition of 10 to 270 people")
def figures_5_3_to_5_6(context: Context) -> Result:
    rows, series = [], []
    notes = [*DATA_NOTES]
    for people in crowds(context, noise=1.6):
        sizes = _sizes(people.n_people, context)
        n_rounds = context.pick(2, 1, 1) * (1 if people.n_people > 40 or context.tiny else 2)
        work = [
            _Trial(people, size, context.integer("5.3", people.name, size, number))
            for size in sizes
            for number in range(n_rounds)
        ]
        told = np.array(context.map(_accuracies, work, people.name))
        curves = told.reshape(len(sizes), n_rounds, len(_RIVALS), N_STAGES)
        series += _series(people, sizes, curves)
        for size in sorted({sizes[0], min(sizes, key=lambda n: abs(n - 50)), sizes[-1]}):
            rows += _rows(f"{people.name}, {size} classes", curves[sizes.index(size)])
        notes.append(_growth_note(people, sizes, curves))
    return Result(rows, notes, series, _pictures(series), layout="wide")


def _sizes(n_people: int, context: Context) -> list[int]:
    most = n_people // 10 * 10
    return [*range(10, most + 1, context.pick(5, 130 if most > 40 else 15, 15))]


def _accuracies(trial: _Trial) -> list[list[float]]:
    """Return the accuracy of both learners after every stage."""
    rng = np.random.default_rng(trial.seed)
    people = trial.people
    chosen = rng.choice(people.n_people, size=trial.n_classes, replace=False)
    learned, asked = people.split(chosen, rng)
    chunks = stages(learned, rng)
    X, y = people.images, people.person
    return [
        [float(np.mean(answers == y[asked])) for answers in answers_by_stage(name, X, y, chunks, asked)]
        for name in _RIVALS
    ]


def _series(people: People, sizes: list[int], curves: Floats) -> list[Series]:
    series = []
    for place, name in enumerate(_RIVALS):
        of = curves[:, :, place]
        for figure, first in (("stages-a", 0), ("stages-b", 5)):
            for stage in range(first, first + 5):
                panel = f"{people.name}: stage {stage + 1}"
                series.append(Series(figure, panel, name, sizes, of[..., stage].mean(axis=1)))
        for title, values in (("final", of[..., -1]), ("mean over the stages", of.mean(axis=2))):
            panel = f"{people.name}: {title}"
            series.append(Series("summary", panel, name, sizes, values.mean(axis=1), values.std(axis=1)))
        nearest = int(np.argmin([abs(size - 50) for size in sizes]))
        at, one = range(1, N_STAGES + 1), of[nearest]
        panel = f"{people.name}: {sizes[nearest]} classes"
        series.append(Series("fifty", panel, name, [*at], one.mean(axis=0), one.std(axis=0)))
    return series


def _rows(subject: str, curves: Floats) -> list[Row]:
    rows = []
    for place, name in enumerate(_RIVALS):
        rows.append(Row.of(subject, name, "final accuracy", curves[:, place, -1]))
        rows.append(Row.of(subject, name, "mean accuracy", curves[:, place].mean(axis=1)))
    return rows


def _growth_note(people: People, sizes: list[int], curves: Floats) -> str:
    gain = 100.0 * (curves[:, :, 1, -1] - curves[:, :, 0, -1]).mean(axis=1)
    half = max(len(sizes) // 2, 1)
    return (
        f"{people.name}: the thesis finds DCIL-IncLPSVM ahead from about 30 classes on, growing to 3.5 "
        f"points of final accuracy at 270. Here its lead is {gain[0]:+.1f} points at {sizes[0]} classes and "
        f"{gain[-1]:+.1f} at {sizes[-1]}; the mean lead is {gain[:half].mean():+.1f} over the smaller half "
        f"of the sizes and {gain[-half:].mean():+.1f} over the larger half."
    )


def _pictures(series: list[Series]) -> list[Picture]:
    titles = {
        "stages-a": ("Figure 5.3: accuracy by the number of classes, stages 1 to 5.", "classes"),
        "stages-b": ("Figure 5.4: accuracy by the number of classes, stages 6 to 10.", "classes"),
        "summary": ("Figure 5.5: final accuracy and mean over the stages.", "classes"),
        "fifty": ("Figure 5.6: accuracy stage by stage with 50 classes (ORL has 40).", "stage"),
    }
    return [
        line_picture(name, caption, series, x_label=x_label, y_label="accuracy", y_range=(0.0, 1.02))
        for name, (caption, x_label) in titles.items()
    ]
