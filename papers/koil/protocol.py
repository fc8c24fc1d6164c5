"""Protocol of the KOIL paper: the authors' splits, one pass, AUC on the test rows."""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.arrays import Floats
from papers.context import Context
from papers.koil.contenders import Contender
from steelyard._threads import one_thread
from steelyard.datasets import Split, Splits
from steelyard.exceptions import DatasetUnavailable, ParameterError
from steelyard.metrics import roc_auc_score

__all__ = [
    "Benchmark",
    "Choice",
    "Task",
    "areas",
    "benchmarks",
    "choose",
    "inner_folds",
    "parameters",
    "run_task",
    "run_tasks",
]

Chosen = Mapping[tuple[str, str], Mapping[str, float]]  # parameters by dataset and learner

# On datasets with more rows than this, every second value of each parameter is tried.
LARGE = 10_000
# Learners whose cost per row grows are tuned on at most this many rows.
MOST_SEARCHED_ROWS = 2000


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A dataset of the paper with the authors' splits."""

    name: str
    X: Floats
    y: NDArray[np.int64]  # 1 for the rare class
    splits: Splits

    @property
    def budget(self) -> int:
        """Return the budget per class: 50 on the generated datasets (in two dimensions), else 100."""
        return 50 if self.X.shape[1] == 2 else 100

    def area(self, model: Any, train: NDArray[np.intp], test: NDArray[np.intp]) -> float:
        """Return the AUC on the rows `test` of a model trained on the rows `train` in order."""
        model.fit(self.X[train], self.y[train])
        return float(roc_auc_score(self.y[test], model.decision_function(self.X[test])))


def benchmarks(context: Context, names: Sequence[str]) -> list[Benchmark]:
    """Return the available datasets with their splits."""
    found = []
    for name, data in context.sets(f"koil_{name}" for name in names):
        try:
            splits = context.load_splits(name)
        except DatasetUnavailable as trouble:
            context.unavailable.append(trouble.summary)
            continue
        X = data.numbers()
        if context.tiny:
            X = X[:, :2]  # with two features the ranking is not perfect
        found.append(Benchmark(name.removeprefix("koil_"), X, data.binary(1), splits))
    return found


# -- the runs -------------------------------------------------------------------------------------


def areas(
    benchmark: Benchmark,
    contender: Contender,
    params: Mapping[str, float],
    *,
    n_runs: int = 20,
    seed: int = 0,
    budget: int | None = None,
) -> list[float]:
    """Return the AUC of each of the first `n_runs` runs."""
    results = []
    with one_thread():
        for number in range(n_runs):
            split = benchmark.splits[number]
            model = contender.make(budget=budget or benchmark.budget, seed=seed + number, **params)
            results.append(benchmark.area(model, split.train, split.test))
    return results


@dataclass(frozen=True, eq=False)
class Task:
    """Task for a worker process: one learner on one dataset."""

    benchmark: Benchmark
    contender: Contender
    params: Mapping[str, float] | None  # None: search the parameters
    n_runs: int
    seed: int
    budget: int | None = None
    step: int | None = None  # step in the searched grid; None: depends on the size of the dataset

    def key(self) -> dict[str, Any]:
        """Return everything that the result depends on."""
        step = self.step or _step(self.benchmark)
        return {
            "experiment": "koil",
            "set": self.benchmark.name,
            "learner": self.contender.name,
            "params": self.params if self.params is None else dict(self.params),
            "grid": self.contender.candidates(step) if self.params is None else None,
            "searched_rows": MOST_SEARCHED_ROWS if self.contender.grows else None,
            "n_runs": self.n_runs,
            "seed": self.seed,
            "budget": self.budget or self.benchmark.budget,
            "data": zlib.crc32(np.ascontiguousarray(self.benchmark.X).tobytes()),
        }


def run_task(task: Task) -> dict[str, Any]:
    """Return parameters and AUC as JSON."""
    params = task.params
    if params is None:
        params = choose(task.benchmark, task.contender, step=task.step, seed=task.seed).params
    values = areas(
        task.benchmark, task.contender, params, n_runs=task.n_runs, seed=task.seed, budget=task.budget
    )
    return {"params": dict(params), "areas": values}


def _outcomes(
    context: Context, found: Sequence[Benchmark], contenders: Sequence[Contender]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return parameters and AUC by dataset and learner. Small datasets are run first."""
    tasks = [
        Task(
            benchmark, contender, stored_parameters(benchmark, contender) if context.quick else None,
            n_runs=context.pick(20, 5, 2), seed=1000 * context.seed, budget=context.pick(None, None, 8),
        )
        for benchmark in sorted(found, key=lambda benchmark: benchmark.X.size)
        for contender in contenders
    ]  # fmt: skip
    answers = context.map(run_task, tasks, "learners", key=Task.key)
    return {(task.benchmark.name, task.contender.name): a for task, a in zip(tasks, answers, strict=True)}


def run_tasks(
    context: Context, found: Sequence[Benchmark], contenders: Sequence[Contender]
) -> dict[tuple[str, str], list[float]]:
    """Return the AUC of every run by dataset and learner."""
    return {key: outcome["areas"] for key, outcome in _outcomes(context, found, contenders).items()}


# -- the parameters -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """Result of a parameter search."""

    params: dict[str, float]
    area: float  # mean AUC over the inner folds; NaN if there is only one candidate


def choose(
    benchmark: Benchmark, contender: Contender, *, run: int = 0, step: int | None = None, seed: int = 0
) -> Choice:
    """Return the parameters with the best mean AUC in the five inner folds of the run number `run`.

    The first of equal combinations is returned. A combination that the learner refuses, or with which its
    weights diverge, is skipped. With a `step`, only every `step`-th value of each parameter is tried.
    """
    candidates = contender.candidates(step or _step(benchmark))
    if len(candidates) == 1:
        return Choice(candidates[0], float("nan"))
    inner = inner_folds(benchmark.splits[run], MOST_SEARCHED_ROWS if contender.grows else None)
    best = Choice(candidates[0], -1.0)
    with one_thread(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for params in candidates:
            model = contender.make(budget=benchmark.budget, seed=seed, **params)
            try:
                area = float(np.mean([benchmark.area(model, train, test) for train, test in inner]))
            except (ParameterError, ArithmeticError, ValueError):
                continue
            if area > best.area:
                best = Choice(params, area)
    return best


def _step(benchmark: Benchmark) -> int:
    return 2 if len(benchmark.y) > LARGE else 1


def inner_folds(split: Split, most: int | None) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return training rows (at most ``most``) and test rows of each fold, without rows of unknown fold."""
    rows, folds = split.train, split.inner
    return [
        (rows[(folds != fold) & (folds > 0)][:most], rows[folds == fold])
        for fold in range(1, 6)
    ]  # fmt: skip


def stored_parameters(benchmark: Benchmark, contender: Contender) -> dict[str, float]:
    """Return the parameters that an earlier full run found, from ``parameters.json``."""
    params: dict[str, float] = _stored()[benchmark.name][contender.name]
    return params


@cache
def _stored() -> dict[str, dict[str, dict[str, float]]]:
    stored: dict[str, dict[str, dict[str, float]]] = json.loads(
        files(__package__).joinpath("parameters.json").read_text("utf-8")
    )
    return stored


def parameters(context: Context, found: Sequence[Benchmark], contenders: Sequence[Contender]) -> Chosen:
    """Return the parameters: in a full run by a search, in a quick run the stored ones."""
    if context.quick:
        return {(b.name, c.name): stored_parameters(b, c) for b in found for c in contenders}
    return {key: outcome["params"] for key, outcome in _outcomes(context, found, contenders).items()}
