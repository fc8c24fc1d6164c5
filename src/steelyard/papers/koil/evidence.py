"""Why some numbers of the KOIL tables differ from the thesis: orders, choices and formulas, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from steelyard.papers.context import Context
from steelyard.papers.experiment import experiment
from steelyard.papers.koil import published
from steelyard.papers.koil.contenders import (
    CONTENDERS,
    FULL,
    PROGRAM_SETTINGS,
    Contender,
    many_kernels,
    one_kernel,
)
from steelyard.papers.koil.protocol import (
    Benchmark,
    Task,
    areas,
    benchmarks,
    choose,
    run_task,
    stored_parameters,
)
from steelyard.papers.koil.tables import ARTICLE, WITHIN
from steelyard.papers.result import Result, Row, paragraphs

__all__ = ["choices", "orders", "readings"]


def _printed(name: str, contender: str) -> dict[str, Any]:
    """The thesis's figure as the arguments of a row."""
    tables = (published.PAPER_ONE_KERNEL, published.PAPER_OTHERS, published.PAPER_MANY_KERNELS)
    mean, std = next(table[name][contender] for table in tables if contender in table.get(name, {}))
    return {"paper": mean, "paper_std": std, "tolerance": WITHIN}


# -- shuttle: the order of the rows ---------------------------------------------------------------

ORDERED = ("KOIL RS++", "KOIL FIFO++", "OAM", "OPAUC", "Perceptron")


@experiment("koil-table-3.3-orders", paper=ARTICLE, title="Table 3.3: shuttle in other orders of its rows")
def orders(context: Context) -> Result:
    found = benchmarks(context, ["shuttle"])
    if not found:
        return Result()
    shuttle = found[0]
    learners = [CONTENDERS[name] for name in ORDERED[: context.pick(5, 2, 2)]]
    files = {"as it comes": shuttle}
    for number in range(1, 1 + context.pick(8, 2, 2)):
        places = context.rng("order", number).permutation(len(shuttle.y))
        files[f"order {number}"] = Benchmark(
            f"shuttle order {number}", shuttle.X[places], shuttle.y[places], shuttle.splits
        )
    tasks = [
        Task(
            file, learner, stored_parameters(shuttle, learner) if context.quick else None,
            n_runs=context.pick(20, 5, 2), seed=1000 * context.seed, budget=context.pick(None, None, 8),
        )
        for file in files.values()
        for learner in learners
    ]  # fmt: skip
    answers = [answer["areas"] for answer in context.map(run_task, tasks, "orders", key=Task.key)]
    labels = [(label, learner.name) for label in files for learner in learners]
    rows = [
        Row.of(label, learner, "AUC", values, **_printed("shuttle", learner))
        for (label, learner), values in zip(labels, answers, strict=True)
    ]
    return Result(rows, [*_NOTES_ORDERS, *_spans(rows)])


def _spans(rows: Sequence[Row]) -> list[str]:
    """Between which numbers the means of the random orders lie, for each learner."""
    sentences = []
    for learner in dict.fromkeys(row.learner for row in rows):
        means = [row.mean for row in rows if row.learner == learner and row.subject != "as it comes"]
        printed = next(row.paper for row in rows if row.learner == learner)
        sentences.append(
            f"{learner}: {min(means):.3f} to {max(means):.3f} over {len(means)} random orders, "
            f"{np.mean(means):.3f} ± {np.std(means, ddof=1):.3f}; the thesis has {printed:.3f}."
        )
    return [" ".join(sentences)]


# -- which training part C and gamma are chosen on ------------------------------------------------

# Where KOIL with the hinge loss is more than the tolerance below the thesis.
EXAMINED = (
    ("german", "RS++", "reservoir++"),
    ("german", "FIFO++", "fifo++"),
    ("ionosphere", "FIFO++", "fifo++"),
    ("diabetes", "FIFO++", "fifo++"),
)


@dataclass(frozen=True, eq=False)
class _Case:
    """One learner on one set, and the grid that C and gamma are taken from."""

    benchmark: Benchmark
    contender: Contender
    printed: str  # the name that the learner has in the thesis's table
    step: int
    n_runs: int
    seed: int

    def key(self) -> dict[str, Any]:
        task = Task(self.benchmark, self.contender, None, self.n_runs, self.seed)
        return {**task.key(), "experiment": "koil grid", "grid": self.contender.candidates(self.step)}

    def test_areas(self) -> list[float]:
        """Mean AUC on the test parts for every combination of the grid."""
        found = []
        for params in self.contender.candidates(self.step):
            values = areas(self.benchmark, self.contender, params, n_runs=self.n_runs, seed=self.seed)
            found.append(float(np.mean(values)))
        return found


@dataclass(frozen=True, eq=False)
class _Search:
    """Parameters for a case, to be chosen on the training part of one run."""

    case: _Case
    run: int

    def key(self) -> dict[str, Any]:
        return {**self.case.key(), "experiment": "koil choice", "run": self.run}

    def found(self) -> dict[str, float]:
        case = self.case
        return choose(case.benchmark, case.contender, run=self.run, step=case.step, seed=case.seed).params


@experiment("koil-table-3.3-choice", paper=ARTICLE, title="Table 3.3: what the choice of C and gamma decides")
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
        printed = _printed(case.benchmark.name, case.printed)
        rows += [
            Row.of(*about, "AUC over the choices", reached, **printed),
            Row(*about, "worst choice", min(reached), **printed),
            Row(*about, "best choice", max(reached), **printed),
            Row(*about, "best by the test parts", max(area_of.values()), **printed),
        ]
        near = sum(value >= printed["paper"] - WITHIN for value in reached)
        sentences.append(f"{', '.join(about)}: {near} of {len(parts)}.")
    counts = f"How many choices come within {WITHIN} of the thesis or above it: {' '.join(sentences)}"
    return Result(rows, [*_NOTES_CHOICE, counts], layout="wide")


def _cases(context: Context) -> list[_Case]:
    examined = context.pick(EXAMINED, EXAMINED[:1], EXAMINED[:1])
    found = {b.name: b for b in benchmarks(context, list(dict.fromkeys(name for name, *_ in examined)))}
    return [
        _Case(
            found[name], _with_neighbours(policy, word, k), f"KOIL {policy}",
            step=context.pick(2, 5, 10), n_runs=context.pick(20, 5, 2), seed=1000 * context.seed,
        )
        for name, policy, word in examined
        for k in (10, 5)
        if name in found
    ]  # fmt: skip


def _with_neighbours(policy: str, word: str, k: int) -> Contender:
    make = partial(one_kernel, "hinge", word, n_neighbors=k)
    return Contender(f"KOIL {policy}, k = {k}", make, {"C": FULL, "gamma": FULL})


# -- many kernels: from the formulas to the program -----------------------------------------------

READ_ON = ("heart", "ionosphere", "diabetes", "german", "segment", "satimage")


def _steps() -> list[Contender]:
    """Many kernels as the thesis writes it, and one after the other what the program does otherwise."""
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
            **_printed(task.benchmark.name, "MKL RS++"),
        )
        for task, answer in zip(tasks, answers, strict=True)
    ]  # fmt: skip
    return Result(rows, _NOTES_READINGS)


_NOTES_ORDERS = paragraphs(
    """
    The authors' file of shuttle could not be had, only its folds. Here are its rows in the order of UCI, and
    in eight orders drawn at random, each with the authors' folds and the whole protocol of table 3.3
    (parameters searched afresh, 20 runs).

    The 20 runs of an order differ by which fifth is left out, not by the order, so that their spread
    does not show what the order does: with 105 rows of the rare class to learn from, some orders are well
    served by a single pass and others are not. OAM and OPAUC, which need no kernel width and hardly
    depend on the order, have the thesis's figures in every order: classes and scaling are as the authors had
    them.
    """
)
_NOTES_CHOICE = paragraphs(
    """
    The numbers of table 3.3 in which KOIL with the hinge loss is more than 0.01 below the thesis, but for
    shuttle. There C and gamma are chosen by five-fold cross-validation in the training part of the first
    run; here in the training parts of ten runs, with every second power of both. Each choice is then judged
    by all 20 runs, so that nothing but the choice differs. k = 10 is what the thesis's text and the authors'
    Matlab program have, k = 5 what their C++ program has. "Best by the test parts" is no result, since
    the test parts decide; it shows what the learner can reach.
    """
)
_NOTES_READINGS = paragraphs(
    """
    MKL RS++ with the hinge loss. The first line of a set is the thesis's text: kernels vote (4.1), weights
    do not decay (4.2), a kernel's weight falls with C times its losses, ten neighbours, Gaussians
    exp(-|x - z|**2 / 2 s**2) with s from 2**-6 to 2**6. Each further line adds one thing that the
    authors' published program for many kernels does otherwise; the last line does all that the program
    does. C is searched for each line.
    """
)
