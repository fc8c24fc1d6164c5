"""Causes of differences to the KOIL tables: choices and formulas, one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from papers.context import Context
from papers.experiment import experiment
from papers.koil.contenders import (
    CONTENDERS,
    FULL,
    PROGRAM_SETTINGS,
    Contender,
    many_kernels,
    one_kernel,
)
from papers.koil.protocol import (
    Benchmark,
    Task,
    areas,
    benchmarks,
    choose,
    run_task,
)
from papers.koil.tables import ARTICLE, WITHIN, printed
from papers.result import Result, Row, paragraphs

__all__ = ["choices", "readings"]


# -- which training part C and gamma are chosen on ------------------------------------------------


def _with_neighbours(policy: str, word: str, k: int) -> Contender:
    make = partial(one_kernel, "hinge", word, n_neighbors=k)
    return Contender(f"KOIL {policy}, k = {k}", make, {"C": FULL, "gamma": FULL})


# Differences from the thesis that are examined, most of them datasets on which KOIL with the hinge loss is
# below the thesis by more than the tolerance: dataset, name of the learner in the thesis, and the learner.
EXAMINED = (
    *(
        (name, f"KOIL {policy}", _with_neighbours(policy, word, k))
        for name, policy, word in (
            ("german", "RS++", "reservoir++"),
            ("german", "FIFO++", "fifo++"),
            ("ionosphere", "FIFO++", "fifo++"),
            ("diabetes", "FIFO++", "fifo++"),
        )
        for k in (10, 5)
    ),
    *(
        (name, learner, CONTENDERS[learner])
        for name, learner in (
            ("ionosphere", "KOIL2 FIFO++"),
            ("segment", "OAM"),
            ("satimage", "RBP"),
            ("letter", "RBP"),
            ("segment", "Projectron"),
            ("vowel", "Projectron"),
            ("diabetes", "NORMA"),
            ("glass", "NORMA"),
            ("german", "MKL FIFO++"),
            ("letter", "MKL RS++"),
        )
    ),
)


@dataclass(frozen=True, eq=False)
class _Case:
    """One learner on one dataset, and its grid of C and gamma."""

    benchmark: Benchmark
    contender: Contender
    printed: str  # the learner's name in the thesis's table
    step: int
    n_runs: int
    seed: int

    def key(self) -> dict[str, Any]:
        task = Task(self.benchmark, self.contender, None, self.n_runs, self.seed)
        return {**task.key(), "experiment": "koil grid", "grid": self.contender.candidates(self.step)}

    def test_areas(self) -> list[float]:
        """Return the mean test AUC for every combination of the grid."""
        found = []
        for params in self.contender.candidates(self.step):
            values = areas(self.benchmark, self.contender, params, n_runs=self.n_runs, seed=self.seed)
            found.append(float(np.mean(values)))
        return found


@dataclass(frozen=True, eq=False)
class _Search:
    """Search of the parameters of a case on the training part of one run."""

    case: _Case
    run: int

    def key(self) -> dict[str, Any]:
        return {**self.case.key(), "experiment": "koil choice", "run": self.run}

    def found(self) -> dict[str, float]:
        case = self.case
        return choose(case.benchmark, case.contender, run=self.run, step=case.step, seed=case.seed).params


@experiment("koil-table-3.3-choice", paper=ARTICLE, title="Table 3.3: what the choice of parameters decides")
def choices(context: Context) -> Result:
    cases = _cases(context)
    parts = range(0, 20, context.pick(2, 5, 10))
    searches = [_Search(case, run) for case in cases for run in parts]
    chosen = context.map(_Search.found, searches, "choices", key=_Search.key)
    tested = context.map(_Case.test_areas, cases, "test parts", key=_Case.key)
    rows, sentences = [], []
    for place, case in enumerate(cases):
        area_of = dict(zip(map(str, case.contender.candidates(case.step)), tested[place], strict=True))
        reached = [area_of[str(params)] for params in chosen[place * len(parts) :][: len(parts)]]
        about = (case.benchmark.name, case.contender.name)
        theirs = printed(case.benchmark.name, case.printed)
        del theirs["paper_std"]  # means over 20 runs are compared, not single runs
        rows += [
            Row.of(*about, "AUC over the choices", reached, **theirs),
            Row(*about, "worst choice", min(reached), **theirs),
            Row(*about, "best choice", max(reached), **theirs),
            Row(*about, "worst by the test parts", min(area_of.values())),
            Row(*about, "best by the test parts", max(area_of.values()), **theirs),
        ]
        near = sum(value >= theirs["paper"] - WITHIN for value in reached)
        sentences.append(f"{', '.join(about)}: {near} of {len(parts)}")
    counts = f"Choices whose AUC is at least the thesis's value minus {WITHIN}: {'; '.join(sentences)}."
    return Result(rows, [*_NOTES_CHOICE, counts], layout="wide")


def _cases(context: Context) -> list[_Case]:
    examined = context.pick(EXAMINED, EXAMINED[:2], EXAMINED[:2])
    found = {b.name: b for b in benchmarks(context, list(dict.fromkeys(name for name, *_ in examined)))}
    return [
        _Case(
            found[name], contender, learner,
            step=context.pick(2, 5, 10), n_runs=context.pick(20, 5, 2), seed=1000 * context.seed,
        )
        for name, learner, contender in examined
        if name in found
    ]  # fmt: skip


# -- several kernels: differences between the thesis and the authors' program ----------------------

READ_ON = ("heart", "ionosphere", "diabetes", "german", "segment", "satimage")


def _steps() -> list[Contender]:
    """Return KOIL with several kernels as written in the thesis, and with each deviation of the program."""
    settings: dict[str, Any] = {}
    steps = [Contender("as written", partial(many_kernels, "hinge", "reservoir++", {}), {"C": FULL})]
    for name, own in PROGRAM_SETTINGS.items():
        settings = settings | own
        made = partial(many_kernels, "hinge", "reservoir++", settings)
        steps.append(Contender(f"+ {name}", made, {"C": FULL}))
    return steps


@experiment("koil-table-4.1-readings", paper=ARTICLE, title="Table 4.1: from the formulas to the program")
def readings(context: Context) -> Result:
    found = benchmarks(context, READ_ON[: context.pick(6, 2, 1)])
    params = {"C": 4.0} if context.quick else None
    tasks = [
        Task(
            benchmark, step, params, n_runs=context.pick(20, 5, 2), seed=1000 * context.seed,
            budget=context.pick(None, None, 8),
        )
        for benchmark in found
        for step in _steps()
    ]  # fmt: skip
    answers = context.map(run_task, tasks, "readings", key=Task.key)
    rows = [
        Row.of(
            task.benchmark.name, task.contender.name, "AUC", answer["areas"],
            **printed(task.benchmark.name, "MKL RS++"),
        )
        for task, answer in zip(tasks, answers, strict=True)
    ]  # fmt: skip
    return Result(rows, _NOTES_READINGS)


_NOTES_CHOICE = paragraphs(
    """
    This section repeats the search for parameters where a number of tables 3.3 and 4.1 differs from the
    thesis by more than 0.01: for KOIL with the hinge loss wherever its number is lower, and for some of the
    other learners. Shuttle is left out. In those tables parameters are chosen by five-fold cross-validation
    in the training part of the first run. Here they are chosen in the training parts of ten runs, among every
    second power of two. Each choice is evaluated on all 20 runs, so the results differ by the choice alone. k
    = 10 is the value of the thesis's text and of the authors' Matlab program, k = 5 that of their C++
    program. "Worst by the test parts" and "best by the test parts" are not results, since they are selected
    on the test parts; they show the range that the parameters span.

    Where even the best choice by the test parts is below the thesis, no choice of parameters explains the
    difference, so the thesis must have used another algorithm: `koil-table-3.3-toolbox` computes RBP,
    Projectron and OAM as such. Where all choices are above the thesis, as for NORMA, the choice of parameters
    does not explain the difference either.
    """
)
_NOTES_READINGS = paragraphs(
    """
    MKL RS++ with the hinge loss. The first line of a dataset follows the thesis's text: kernels vote (4.1),
    weights of support vectors do not decay (4.2), the weight of a kernel falls with C times its losses, a
    sample is compared with ten neighbours, and the Gaussians are `exp(-|x - z|**2 / 2 s**2)` with s from
    2**-6 to 2**6. Each further line adds one difference of the authors' published program for many kernels;
    the last line has all differences of the program. C is searched for each line.
    """
)
