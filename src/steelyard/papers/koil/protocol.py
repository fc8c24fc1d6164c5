"""The KOIL paper's way to measure: the authors' splits, one pass, AUC on the rows left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._threads import one_thread
from steelyard.exceptions import ParameterError
from steelyard.metrics import roc_auc_score
from steelyard.papers.koil.contenders import Contender

__all__ = ["Benchmark", "Choice", "areas", "choose", "read"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

# Learners whose cost a row grows have their parameters searched on this many rows at most.
MOST_SEARCHED_ROWS = 2000


@dataclass(frozen=True)
class Benchmark:
    """A data set of the paper with its authors' splits."""

    name: str
    X: Floats
    y: NDArray[np.bool_]
    folds: NDArray[np.int8]  # (n, 4): the fold of five in which each row is tested, in four partitions
    inner_folds: NDArray[
        np.int8
    ]  # (5n, 4): folds of the training rows, run after run; 0 where the file is damaged

    @property
    def budget(self) -> int:
        """Support vectors of each class: 50 on the generated sets (in two dimensions), else 100."""
        return 50 if self.X.shape[1] == 2 else 100

    def runs(self) -> Iterator[tuple[Rows, Rows]]:
        """Training and test rows of the twenty runs, in the order of the file."""
        for partition in self.folds.T:
            for fold in range(1, 6):
                yield np.flatnonzero(partition != fold), np.flatnonzero(partition == fold)

    def inner_runs(self) -> Iterator[tuple[Rows, Rows]]:
        """The five folds of the first run's training rows, which parameters are chosen on."""
        train, _ = next(self.runs())
        inner = self.inner_folds[: len(train), 0]
        for fold in range(1, 6):
            yield train[(inner != fold) & (inner > 0)], train[inner == fold]


def read(data_dir: Path, name: str) -> Benchmark:
    """Read ``koil_<name>.csv.gz`` (last column the label, +1 or -1) and ``koil_<name>.splits.npz``."""
    table = np.loadtxt(data_dir / f"koil_{name}.csv.gz", delimiter=",", skiprows=1, ndmin=2)
    splits = np.load(data_dir / f"koil_{name}.splits.npz")
    X = np.ascontiguousarray(table[:, :-1])
    return Benchmark(name, X, table[:, -1] > 0, splits["idx_cv"], splits["idx_asso"])


def _area(benchmark: Benchmark, model: Any, train: Rows, test: Rows) -> float:
    model.fit(benchmark.X[train], benchmark.y[train])
    scores = model.decision_function(benchmark.X[test])
    return float(roc_auc_score(benchmark.y[test], scores))


def areas(
    benchmark: Benchmark,
    contender: Contender,
    params: Mapping[str, float],
    *,
    seed: int = 0,
    n_runs: int = 20,
) -> Floats:
    """AUC of each run."""
    results = []
    with one_thread():
        for number, (train, test) in enumerate(benchmark.runs()):
            if number == n_runs:
                break
            model = contender.make(benchmark.budget, seed + number, **params)
            results.append(_area(benchmark, model, train, test))
    return np.array(results)


@dataclass(frozen=True)
class Choice:
    """What the search found."""

    params: dict[str, float]
    area: float  # mean over the inner folds


def choose(benchmark: Benchmark, contender: Contender, *, seed: int = 0) -> Choice:
    """The parameters with the best mean AUC in the five folds inside the first run's training part.

    Of equals the first. A combination that the learner refuses, or that makes its weights run away, is passed
    over.
    """
    inner = [
        (train[:MOST_SEARCHED_ROWS] if contender.grows else train, test)
        for train, test in benchmark.inner_runs()
    ]
    candidates = contender.candidates()
    if len(candidates) == 1:
        return Choice(candidates[0], float("nan"))
    best = Choice(candidates[0], -1.0)
    with one_thread(), np.errstate(all="ignore"):
        for params in candidates:
            model = contender.make(benchmark.budget, seed, **params)
            try:
                area = float(np.mean([_area(benchmark, model, train, test) for train, test in inner]))
            except (ParameterError, ArithmeticError, ValueError):
                continue
            if area > best.area:
                best = Choice(params, area)
    return best
