"""Training times of SVMs and proximal SVMs, in batches and in chunks."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from sklearn.svm import SVC

from papers.arrays import Floats, Labels
from papers.context import Context
from papers.dcil.common import THESIS, learner, stages
from papers.dcil.static import problem
from papers.experiment import experiment
from papers.result import Result, Row, paragraphs
from steelyard._threads import one_thread

__all__ = ["BATCH", "CHUNKS", "training_times"]

CHUNKS, BATCH = "ms in ten chunks", "ms in one batch"
MAX_ROWS = 3000


def _milliseconds(work: Callable[..., Any], *arguments: Any) -> float:
    begin = perf_counter()
    work(*arguments)
    return 1e3 * (perf_counter() - begin)


def _in_chunks(name: str, X: Floats, y: Labels, chunks: list[Any]) -> None:
    model = learner(name)
    for chunk in chunks:
        model.partial_fit(X[chunk], y[chunk], classes=[0, 1])
    model.decision_function(X[:1])  # include the time to compute the plane, done by the first prediction


def _proximal(X: Floats, y: Labels) -> None:
    learner("DCIL-IncLPSVM").fit(X, y).decision_function(X[:1])


@experiment("dcil-cost", paper=THESIS, title="Sections 3.3 and 4: training times of SVMs and proximal SVMs")
def training_times(context: Context) -> Result:
    rows = []
    for name, data in context.sets(["breast_wisconsin", "car", "abalone"]):
        title, X, y = problem(name, data)
        for number in range(context.pick(10, 3, 1)):
            chosen = context.rng(title, number).permutation(len(y))[: context.pick(MAX_ROWS, MAX_ROWS, 200)]
            chunks = stages(chosen, context.rng(title, number, "chunks"))
            with one_thread():
                for who in ("IncSVM", "IncLPSVM", "DCIL-IncLPSVM"):
                    spent = _milliseconds(_in_chunks, who, X, y, chunks)
                    rows.append((title, who, CHUNKS, spent))
                svm = _milliseconds(SVC(kernel="linear").fit, X[chosen], y[chosen])
                rows.append((title, "SVM (LIBSVM)", BATCH, svm))
                rows.append((title, "wLPSVM", BATCH, _milliseconds(_proximal, X[chosen], y[chosen])))
    found: dict[tuple[str, str, str], list[float]] = {}
    for title, who, measure, spent in rows:
        found.setdefault((title, who, measure), []).append(spent)
    shown = [Row.of(*key, values, aim="low", timed=True, digits=2) for key, values in found.items()]
    return Result(shown, _NOTES, layout="wide") if shown else Result()


_NOTES = paragraphs(
    """
    The thesis says that proximal SVMs are solved by simple formulas, while an SVM needs an iterative search
    of unknown length; it reports no times. The times here are for one thread, at most 3,000 random rows,
    unscaled features, a linear kernel and C = 1, in ten equal chunks or one batch. IncSVM is
    `IncrementalSVC`, the proximal SVMs are `ProximalSVC`, and LIBSVM is the one of scikit-learn.
    """
)
