"""Figures 3.1 to 3.3 of the KOIL thesis: policies, budgets and numbers of neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from papers.context import Context
from papers.experiment import experiment
from papers.koil.contenders import LEARNING_RATE, ONE_KERNEL
from papers.koil.protocol import Benchmark, benchmarks, parameters
from papers.koil.tables import ARTICLE
from papers.plots import line_picture
from papers.result import Result, Row, Series, paragraphs
from steelyard._threads import one_thread
from steelyard.metrics import roc_auc_score
from steelyard.online import KOIL

__all__ = ["figure_3_1", "figure_3_2", "figure_3_3"]

POLICIES = {
    "RS++": "reservoir++",
    "FIFO++": "fifo++",
    "RS": "reservoir",
    "FIFO": "fifo",
    "infinite": "unbounded",
}
BUDGETS = (10, 20, 50, 100, 150, 200)
NEIGHBOURS = (1, 5, 10, 20, 40, 60, 80, 100)
SETS = ("german", "diabetes", "segment", "satimage")
MANY_SETS = ("sonar", "heart", "diabetes", "glass", "german", "svmguide2", "segment", "satimage")


@dataclass(frozen=True, eq=False)
class Curve:
    """Task for a worker process: one setting of KOIL on one dataset."""

    benchmark: Benchmark
    settings: Mapping[str, Any]
    marks: Sequence[float]  # shares of the stream after which the AUC is measured
    n_runs: int


def _learn(curve: Curve) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the AUC of every run after every share of the stream, as an array (n_runs, n_marks)."""
    X, y = curve.benchmark.X, curve.benchmark.y
    results = []
    with one_thread():
        for number in range(curve.n_runs):
            split = curve.benchmark.splits[number]
            settings = {**curve.settings, "random_state": curve.settings["random_state"] + number}
            model = KOIL(learning_rate=LEARNING_RATE, threshold="zero", **settings)
            ends = [int(mark * len(split.train)) for mark in curve.marks]
            areas = []
            for begin, end in zip([0, *ends[:-1]], ends, strict=True):
                rows = split.train[begin:end]
                model.partial_fit(X[rows], y[rows], classes=[0, 1])
                areas.append(roc_auc_score(y[split.test], model.decision_function(X[split.test])))
            results.append(areas)
    return np.array(results)


def _curves(
    context: Context, names: Sequence[str], settings: Mapping[str, Mapping[str, Any]], marks: Sequence[float]
) -> dict[tuple[str, str], np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the AUC by dataset and setting. C and gamma are those of KOIL RS++."""
    found = benchmarks(context, names)
    chosen = parameters(context, found, ONE_KERNEL[:1])
    keys, work = [], []
    for benchmark in found:
        for label, own in settings.items():
            shared = {
                "random_state": context.integer("figures"),
                **chosen[benchmark.name, ONE_KERNEL[0].name],
            }
            keys.append((benchmark.name, label))
            work.append(Curve(benchmark, {**shared, **own}, marks, context.pick(20, 5, 2)))
    return dict(zip(keys, context.map(_learn, work, "curves"), strict=True))


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    return np.std(values, axis=0, ddof=1).tolist() if len(values) > 1 else [0.0] * values.shape[1]


@experiment("koil-figure-3.1", paper=ARTICLE, title="Figure 3.1: what happens when the buffers are full")
def figure_3_1(context: Context) -> Result:
    marks = np.linspace(0.1, 1.0, context.pick(20, 10, 3)).tolist()
    budget = context.pick(100, 100, 8)
    settings = {
        label: {"policy": policy, "budget": budget, "n_neighbors": max(1, budget // 10)}
        for label, policy in POLICIES.items()
    }
    results = _curves(context, context.pick(SETS, SETS, ("glass",)), settings, marks)
    series = [
        Series("policies", name, label, marks, values.mean(axis=0).tolist(), _spread(values))
        for (name, label), values in results.items()
    ]
    rows = [Row.of(name, label, "AUC at the end", values[:, -1]) for (name, label), values in results.items()]
    picture = line_picture(
        "policies", "Figure 3.1: AUC by the share of the stream that was learned.", series,
        x_label="share of the training rows", y_label="AUC",
    )  # fmt: skip
    return Result(rows, _NOTES_1, series, [picture])


def _by_setting(
    context: Context, figure: str, caption: str, x_label: str, settings: Mapping[int, Mapping[str, Any]]
) -> Result:
    """Return the final AUC as a function of a setting, as one curve per dataset."""
    named = {str(x): own for x, own in settings.items()}
    results = _curves(context, context.pick(MANY_SETS, MANY_SETS, ("glass",)), named, [1.0])
    names = list(dict.fromkeys(name for name, _ in results))
    series = []
    for name in names:
        values = np.column_stack([results[name, label] for label in named])
        series.append(Series(figure, "AUC", name, list(settings), values.mean(axis=0).tolist()))
    rows = [
        Row.of(name, f"{x_label} {label}", "AUC", values[:, 0]) for (name, label), values in results.items()
    ]
    picture = line_picture(figure, caption, series, x_label=x_label, y_label="AUC")
    return Result(rows, _NOTES_2, series, [picture])


@experiment("koil-figure-3.2", paper=ARTICLE, title="Figure 3.2: AUC by the budget")
def figure_3_2(context: Context) -> Result:
    budgets = context.pick(BUDGETS, BUDGETS, (5, 10))
    settings = {b: {"budget": b, "n_neighbors": max(1, b // 10)} for b in budgets}
    return _by_setting(context, "budgets", "Figure 3.2: AUC by the budget of each class.", "budget", settings)


@experiment("koil-figure-3.3", paper=ARTICLE, title="Figure 3.3: AUC by the number of neighbours")
def figure_3_3(context: Context) -> Result:
    budget = context.pick(100, 100, 10)
    neighbours = context.pick(NEIGHBOURS, NEIGHBOURS, (1, 5))
    settings = {k: {"budget": budget, "n_neighbors": k} for k in neighbours}
    return _by_setting(context, "neighbours", "Figure 3.3: AUC by k.", "k", settings)


_NOTES_1 = paragraphs(
    """
    KOIL with the hinge loss. All policies use the parameters that were chosen for RS++ in table 3.3. The
    available copy of the thesis has the captions and the text on the figures, but neither the curves nor the
    names of the four datasets, so the numbers cannot be compared. The four datasets used here are ones on
    which the buffers are full before the stream ends. According to the thesis, RS++ and FIFO++ come close to
    infinite budgets, and RS and FIFO fall below them once a buffer is full.
    """
)
_NOTES_2 = paragraphs(
    """
    KOIL RS++ with the hinge loss and the parameters that were chosen in table 3.3. The curves are missing
    from the available copy of the thesis. Its text says that the AUC grows with the budget and saturates, and
    that k is best at about a tenth of the budget, with little effect on svmguide2 and german.
    """
)
