"""KOIL with several kernels over several epochs, which the thesis names as future work."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.context import Context
from papers.experiment import experiment
from papers.koil.contenders import CONTENDERS
from papers.koil.protocol import Benchmark, benchmarks, inner_folds
from papers.koil.tables import ARTICLE, SHOWN
from papers.result import Result, Row, paragraphs
from steelyard._threads import one_thread
from steelyard.metrics import roc_auc_score
from steelyard.online import MultiKernelKOIL

__all__ = ["EPOCHS", "epochs"]

SETS = ("sonar", "ionosphere", "heart", "glass", "svmguide2", "vowel")
LEARNERS = ("MKL RS++", "MKL FIFO++", "MKL2 RS++", "MKL2 FIFO++")
EPOCHS = (1, 2, 5, 10)
PENALTIES = tuple(2.0**exponent for exponent in range(-8, 9, 4))
MAX_ROWS = 600  # maximum number of training rows of a run


@dataclass(frozen=True, eq=False)
class _Work:
    benchmark: Benchmark
    learner: str
    n_runs: int
    seed: int
    budget: int

    def key(self) -> dict[str, Any]:
        """Return everything that the result depends on."""
        return {
            "experiment": "koil-epochs", "set": self.benchmark.name, "learner": self.learner,
            "n_runs": self.n_runs, "seed": self.seed, "budget": self.budget, "epochs": EPOCHS,
            "penalties": PENALTIES, "data": zlib.crc32(self.benchmark.X.tobytes()),
        }  # fmt: skip

    def answer(self) -> dict[str, Any]:
        """Return C and the test AUC of every run by number of epochs, and the movement of the weights."""
        with one_thread(), np.errstate(all="ignore"):
            folds = [
                (train[:MAX_ROWS], test)
                for train, test in inner_folds(self.benchmark.splits[0], None)
            ]  # fmt: skip
            inside = {
                C: np.mean([self._trained(C, train, test, 0)[0] for train, test in folds[:3]], axis=0)
                for C in PENALTIES
            }
            best = [max(PENALTIES, key=lambda C: inside[C][place]) for place in range(len(EPOCHS))]
            runs = []
            for number in range(self.n_runs):
                split = self.benchmark.splits[number]
                tests = {
                    C: self._trained(C, split.train[:MAX_ROWS], split.test, number) for C in sorted(set(best))
                }
                areas = [tests[C][0][place] for place, C in enumerate(best)]
                runs.append({"areas": areas, "moves": tests[best[-1]][1]})
        return {"C": best, "runs": runs}

    def _trained(
        self, C: float, train: NDArray[np.intp], test: NDArray[np.intp], number: int
    ) -> tuple[list[float], list[float]]:
        """Return the AUC after each number of epochs, and how far the kernel weights moved in each epoch."""
        model: MultiKernelKOIL = CONTENDERS[self.learner].make(
            budget=self.budget, seed=self.seed + number, C=C
        )
        X, y, rng = self.benchmark.X, self.benchmark.y, np.random.default_rng(self.seed + number)
        areas, moves, before = [], [], None
        for epoch in range(1, EPOCHS[-1] + 1):
            rows = train if epoch == 1 else rng.permutation(train)
            model.partial_fit(X[rows], y[rows], classes=[0, 1])
            weights = model.kernel_weights_
            if before is not None:
                moves.append(0.5 * float(np.abs(weights - before).sum()))
            before = weights
            if epoch in EPOCHS:
                areas.append(float(roc_auc_score(y[test], model.decision_function(X[test]))))
        return areas, moves


@experiment("koil-epochs", paper=ARTICLE, title="Several kernels over several epochs")
def epochs(context: Context) -> Result:
    work = [
        _Work(
            benchmark,
            learner,
            context.pick(20, 5, 2),
            1000 * context.seed,
            context.pick(benchmark.budget, benchmark.budget, 8),
        )
        for benchmark in benchmarks(context, SETS[: context.pick(6, 6, 1)])
        for learner in LEARNERS[: context.pick(4, 4, 1)]
    ]
    rows = []
    for one, answer in zip(work, context.map(_Work.answer, work, "learners", key=_Work.key), strict=True):
        subject, runs = SHOWN.get(one.benchmark.name, one.benchmark.name), answer["runs"]
        for place, n_epochs in enumerate(EPOCHS):
            measure = f"AUC, {n_epochs} epoch{'s' if n_epochs > 1 else ''}"
            rows.append(Row.of(subject, one.learner, measure, [run["areas"][place] for run in runs]))
        for title, place in (("weights moved, 2nd epoch", 0), ("weights moved, 10th epoch", -1)):
            rows.append(Row.of(subject, one.learner, title, [run["moves"][place] for run in runs]))
    return Result(rows, _NOTES, layout="wide") if rows else Result()


_NOTES = paragraphs(
    """
    The thesis learns every sample once. For several kernels it names several epochs as future work. Here the
    training rows of each run (at most 600) are learned up to ten times, from the second epoch on in random
    order. C is chosen for each number of epochs, from 2^-8, 2^-4, ..., 2^8, by three-fold cross-validation
    within the training part of the first run; the other settings are those of the authors' program. "Weights
    moved" is half the sum of absolute differences between the normalized kernel weights before and after an
    epoch: 0 means that the weights have converged, 1 that all weight moved to other kernels.
    """
)
