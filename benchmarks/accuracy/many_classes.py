"""Test-then-train evaluation on streams of many classes, with rare classes and drift.

    python benchmarks/accuracy/many_classes.py --data-dir DIR [--moa PYTHON] [--stream NAME] [--only NAME]
        [--out DIR]

Rows are predicted and learned in chunks of 100. Measures are means over windows of 1,000 rows after the first
500: mean recall, G-mean (geometric mean of the recalls of the classes in the window), PMAUC (mean AUC over
the ordered pairs of classes, by the score of the first class), and the average precision of each class
against the rest. "AP" is the average precision over all rows after the first 500, averaged over the classes
with at least ten rows.

LightGBM is refitted when a tenth of its rows is new, as in ``large_streams.py``. ``--moa`` is a Python
interpreter with capymoa (see ``moa_worker.py``). MOA has neither ROSE nor CSARF, and the ROSE of stream-learn
supports only two classes. ``CHOOSING`` lists the streams on which the weighting of experts was developed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from large_streams import _lightgbm
from moa_client import MoaClient
from sklearn.metrics import average_precision_score, roc_auc_score
from stream_data import FloatArray, IntArray, Rows, numbers
from stream_peers import MOA_LEARNERS

from steelyard import StreamClassifier
from steelyard.windowing import Refit

CHUNK, WARMUP, WINDOW, MIN_ROWS_OF_CLASS = 100, 500, 1000, 10
MEASURES = ("mean recall", "G-mean", "PMAUC", "AP in windows", "AP")
_SHARES = (0.6, 0.25, 0.1, 0.04, 0.01)

# -- streams ----------------------------------------------------------------------------------------------


def _table(
    name: str, *, begin: int = 0, limit: int = 15_000, shuffle: bool = False
) -> Callable[[Path], Rows]:
    def load(folder: Path) -> Rows:
        frame = pd.read_csv(folder / f"{name}.csv.gz")
        if shuffle:
            frame = frame.iloc[np.random.default_rng(0).permutation(len(frame))]
        frame = frame.iloc[begin : begin + limit]
        return numbers(frame.iloc[:, :-1]), pd.factorize(frame["target"])[0].astype(np.int64)

    return load


def _original_classes(name: str, limit: int = 15_000) -> Callable[[Path], Rows]:
    def load(folder: Path) -> Rows:
        frame = pd.read_csv(folder / f"{name}.csv.gz").iloc[:limit, :-1]
        labels = np.load(folder / f"{name}.splits.npz")["orig_class"][:limit]
        return frame.to_numpy(np.float64), pd.factorize(labels)[0].astype(np.int64)

    return load


def _generated(*stages: tuple[Callable[[], Any], tuple[float, ...]]) -> Callable[[Path], Rows]:
    """Return rows of several generators one after the other, 10,000 in total, with the given class shares."""

    def load(_: Path) -> Rows:
        rng, rows, labels = np.random.default_rng(0), list[list[float]](), list[int]()
        for make, shares in stages:
            source: Iterator[Any] = iter(make())
            waiting: dict[int, list[list[float]]] = {label: [] for label in range(len(shares))}
            for label in rng.choice(len(shares), 10_000 // len(stages), p=shares).tolist():
                while not waiting[label]:
                    x, y = next(source)
                    waiting[int(y)].append([float(value) for value in x.values()])
                    del waiting[int(y)][:-20]  # rows must not be older than the concept
                rows.append(waiting[label].pop())
                labels.append(label)
        return np.array(rows), np.array(labels, dtype=np.int64)

    return load


def _rbf(n_classes: int, seed: int, speed: float = 0.0, n_centroids: int = 50) -> Callable[[], Any]:
    def make() -> Any:
        from river.datasets import synth

        return synth.RandomRBFDrift(
            seed_model=seed, seed_sample=seed, n_classes=n_classes, n_features=8, n_centroids=n_centroids,
            change_speed=speed, n_drift_centroids=n_centroids,
        )  # fmt: skip

    return make


def _tree(n_classes: int, seed: int) -> Callable[[], Any]:
    def make() -> Any:
        from river.datasets import synth

        return synth.RandomTree(
            seed_tree=seed, seed_sample=seed, n_classes=n_classes, n_num_features=6, n_cat_features=3
        )

    return make


def _led(n_moved: int) -> Callable[[], Any]:
    def make() -> Any:
        from river.datasets import synth

        return synth.LEDDrift(
            seed=1, noise_percentage=0.1, irrelevant_features=True, n_drift_features=n_moved
        )

    return make


_SIX = (0.5, 0.3, 0.1, 0.05, 0.03, 0.02)
_TEN = (0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01)
STREAMS: dict[str, Callable[[Path], Rows]] = {
    "shuttle": _table("shuttle"),
    "rbf, slow": _generated((_rbf(5, 3, 1e-4), _SHARES)),
    "tree, reversed shares": _generated((_tree(5, 1), _SHARES), (_tree(5, 2), _SHARES[::-1])),
    "yeast": _table("yeast", shuffle=True),
    "covtype": _table("covtype"),
    "covtype, later": _table("covtype", begin=200_000),
    "kdd99": _table("kdd99_10pct", shuffle=True),
    "poker": _original_classes("koil_poker"),
    "satimage": _original_classes("koil_satimage"),
    "rbf, reversed shares": _generated(
        (_rbf(4, 5), (0.7, 0.2, 0.07, 0.03)), (_rbf(4, 6), (0.03, 0.07, 0.2, 0.7))
    ),
    "rbf, fast": _generated((_rbf(5, 7, 1e-3, 20), _SHARES)),
    "tree, returning": _generated((_tree(6, 4), _SIX), (_tree(6, 5), _SIX), (_tree(6, 4), _SIX)),
    "LED": _generated((_led(0), _TEN), (_led(4), _TEN)),
    "rbf, four concepts": _generated(*((_rbf(5, seed), _SHARES) for seed in (11, 12, 13, 14))),
}
CHOOSING = frozenset(list(STREAMS)[:4])

# -- contenders -------------------------------------------------------------------------------------------


def ours(X: FloatArray, y: IntArray, n_classes: int) -> tuple[FloatArray, IntArray]:
    """Return the scores and predictions of StreamClassifier for each chunk before it is learned."""
    model, scores, predicted = StreamClassifier(), np.full((len(y), n_classes), -50.0), np.zeros_like(y)
    for begin in range(0, len(y), CHUNK):
        rows = slice(begin, begin + CHUNK)
        if begin and len(model.classes_) > 2:
            found = model.decision_function(X[rows])
            scores[rows, model.classes_] = found
            predicted[rows] = model.classes_[found.argmax(axis=1)]
        model.partial_fit(X[rows], y[rows])
    return scores, predicted


def boosted(window: int) -> Callable[..., tuple[FloatArray, IntArray]]:
    def run(X: FloatArray, y: IntArray, n_classes: int) -> tuple[FloatArray, IntArray]:
        model, scores = Refit(_lightgbm(), every=0.1, window=window), np.zeros((len(y), n_classes))
        for begin in range(0, len(y), CHUNK):
            rows = slice(begin, begin + CHUNK)
            if hasattr(model, "classes_"):
                scores[rows, model.classes_] = model.predict_proba(X[rows])
            model.partial_fit(X[rows], y[rows])
        return scores, scores.argmax(axis=1)

    return run


def moa(client: MoaClient, learner: str) -> Callable[..., tuple[FloatArray, IntArray]]:
    def run(X: FloatArray, y: IntArray, n_classes: int) -> tuple[FloatArray, IntArray]:  # noqa: ARG001
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.npz")
            np.savez(file, raw=X, y=y, kinds=np.zeros(X.shape[1], dtype=np.int64))
            scores, _ = client.scores(learner, file, CHUNK, 0)
        return scores, scores.argmax(axis=1)

    return run


# -- measures ---------------------------------------------------------------------------------------------


def measures(y: IntArray, scores: FloatArray, predicted: IntArray) -> list[float]:
    """Return the values of MEASURES."""
    lines = []
    for begin in range(WARMUP, len(y), WINDOW):
        t, s, p = (part[begin : begin + WINDOW] for part in (y, scores, predicted))
        present = np.unique(t).tolist()
        if len(present) > 1:
            recall = np.array([(p[t == k] == k).mean() for k in present])
            pairs = [_pair_auc(t, s, i, j) for i in present for j in present if i != j]
            precision = [average_precision_score(t == k, s[:, k]) for k in present]
            lines.append(
                [recall.mean(), recall.prod() ** (1 / len(recall)), np.mean(pairs), np.mean(precision)]
            )
    late, counts = slice(WARMUP, None), np.bincount(y[WARMUP:])
    frequent = np.flatnonzero((counts >= MIN_ROWS_OF_CLASS) & (counts < counts.sum()))
    precision = [average_precision_score(y[late] == k, scores[late, k]) for k in frequent]
    return [*np.mean(lines, axis=0).tolist(), float(np.mean(precision))]


def _pair_auc(y: IntArray, scores: FloatArray, one: int, other: int) -> float:
    rows = (y == one) | (y == other)
    return float(roc_auc_score(y[rows] == one, scores[rows, one]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--moa", help="Python interpreter with capymoa")
    parser.add_argument("--stream", action="append", choices=list(STREAMS))
    parser.add_argument("--only", action="append", help="a contender")
    parser.add_argument("--out", type=Path, default=Path("build/many_classes"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    contenders = {
        "StreamClassifier": ours,
        "LightGBM, last 5,000": boosted(5000),
        "LightGBM, last 50,000": boosted(50_000),
    }
    with MoaClient(options.moa or "") as client:
        if options.moa:
            names = ("MOA's SRP, 10 trees", "MOA's ARF, 10 trees")
            contenders |= {name: moa(client, MOA_LEARNERS[name]) for name in names}
        for stream in options.stream or STREAMS:
            X, y = STREAMS[stream](options.data_dir)
            for name in options.only or contenders:
                began = time.process_time()
                found = measures(y, *contenders[name](X, y, int(y.max()) + 1))
                us = (time.process_time() - began) / len(y) * 1e6
                values = dict(zip(MEASURES, np.round(found, 4).tolist(), strict=True))
                cell = {"stream": stream, "contender": name, "rows": len(y), "us": round(us, 1), **values}
                with (options.out / "cells.jsonl").open("a") as file:
                    file.write(json.dumps(cell) + "\n")
                print(cell, flush=True)
    print(table([json.loads(line) for line in (options.out / "cells.jsonl").read_text().splitlines()]))


def table(cells: list[dict[str, Any]]) -> str:
    """Return a table of means over the reporting streams for which all contenders have results."""
    names = list(dict.fromkeys(cell["contender"] for cell in cells))
    of = {(cell["stream"], cell["contender"]): cell for cell in cells}
    streams = [s for s in STREAMS if s not in CHOOSING and all((s, n) in of for n in names)]
    lines = [f"| {len(streams)} streams | {' | '.join(MEASURES)} |", "|---" * (len(MEASURES) + 1) + "|"]
    for name in names:
        values = [np.mean([of[s, name][key] for s in streams]) if streams else np.nan for key in MEASURES]
        lines.append(f"| {name} | {' | '.join(f'{value:.3f}' for value in values)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
