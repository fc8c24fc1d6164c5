"""Test-then-train runs of one contender (learner) on one stream. The measures are stored as lines of JSON.

A line has the setting (stream, contender, maximum number of rows, chunk, delay of labels) and the measures:
for windows of 500 and of 1,000 rows (fewer in short streams) the AUC, and the G-mean with the contender's own
threshold and with that of :class:`steelyard.AdaptiveThresholdClassifier`; and microseconds of processor time
per row. A contender that fails on a stream has a line with the reason. A setting that has a line is not run
again, so a run can be interrupted and continued, and the lines of two computers can be joined in one file. Of
two lines with the same setting, the later line is used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from stream_data import FloatArray, IntArray
from stream_peers import OURS, Contender

from steelyard.ensemble.scores import ScoreBuffer
from steelyard.thresholds import choose_threshold

Cell = dict[str, Any]

WINDOWS = (500, 1000)
LOOKS = 10  # number of rows between two updates of an adaptive threshold in row-by-row runs


@dataclass(frozen=True)
class Setting:
    """Protocol of a run: maximum number of rows, chunk size, and delay of the labels in rows."""

    limit: int
    chunk: int = 100
    late: int = 0

    def facts(self) -> Cell:
        return {"limit": self.limit, "chunk": self.chunk, "late": self.late}


class Cells:
    """Results in a folder, one line of JSON per stream, contender and setting."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "cells.jsonl"
        self._known = {_key(cell): cell for cell in self._read()}

    def get(self, stream: str, contender: str, setting: Setting) -> Cell | None:
        return self._known.get((stream, contender, setting))

    def put(self, cell: Cell) -> Cell:
        with self._file.open("a") as file:
            file.write(json.dumps(cell) + "\n")
        self._known[_key(cell)] = cell
        return cell

    def _read(self) -> Iterator[Cell]:
        if not self._file.exists():
            return
        text = self._file.read_text()
        if text and not text.endswith("\n"):  # a run was stopped while writing
            text = text[: text.rfind("\n") + 1]
            self._file.write_text(text)
        yield from map(json.loads, text.splitlines())


def _key(cell: Cell) -> tuple[str, str, Setting]:
    return cell["stream"], cell["contender"], Setting(cell["limit"], cell["chunk"], cell["late"])


# -- a run ------------------------------------------------------------------------------------------------


def measured(
    cells: Cells, stream: str, contender: Contender, setting: Setting, rows: Path, *, again: bool = False
) -> Cell:
    """Return the result of a contender on a stream. Run it if there is no result, or if ``again`` is true."""
    known = cells.get(stream, contender.name, setting)
    if known is not None and not again:
        return known
    facts = {"stream": stream, "contender": contender.name, **setting.facts()}
    try:
        scores, own_threshold, cost = run(contender, rows, setting)
    except ImportError:  # a package is missing, which is not a failure of the contender
        raise
    except Exception as error:  # noqa: BLE001  a peer that fails is reported, and the others continue
        return cells.put({**facts, "failed": f"{type(error).__name__}: {error}"})
    with np.load(rows) as stored:
        y = stored["y"]
    own = scores > own_threshold
    answers = [own, own if contender.name == OURS else moved(scores, own_threshold, y, setting)]
    return cells.put(
        {**facts, "rows": len(y), "us": round(cost, 1), "windows": window_means(y, scores, answers)}
    )


def run(contender: Contender, file: Path, setting: Setting) -> tuple[FloatArray, float, float]:
    """Return out-of-sample scores, the contender's own threshold, and microseconds of processor time per row.

    Chunks for which the predictions of a contender cannot change are scored in one call, because scoring
    single rows would take a forest hours.
    """
    if contender.moa is not None:
        assert contender.client is not None
        scores, cost = contender.client.scores(contender.moa, file, setting.chunk, setting.late)
        return scores, 0.5, cost
    with np.load(file) as stored:
        X, y = stored["X"], stored["y"]
    learner, scores, learned, end = contender.make(), np.zeros(len(y)), 0, 0
    began = time.process_time()
    while end < len(y):
        begin, n_chunks = end, max(1, learner.rows_until_change() // setting.chunk)
        end = min(begin + n_chunks * setting.chunk, len(y))
        scores[begin:end] = learner.scores(X[begin:end])
        known = max(learned, end - setting.late)
        if known > learned:
            learner.learn(X[learned:known], y[learned:known])
            learned = known
    return scores, learner.own_threshold, (time.process_time() - began) / len(y) * 1e6


def moved(
    scores: FloatArray, own_threshold: float, y: IntArray, setting: Setting, looks: int = LOOKS
) -> NDArray[np.bool_]:
    """Return the labels that AdaptiveThresholdClassifier would predict from these scores.

    ``own_threshold``, the threshold of the learner, is used until there are enough rows.
    AdaptiveThresholdClassifier updates its threshold after every call. Here it is updated every ``looks``
    rows.
    """
    evidence, answers, learned, cut, looked_at = (
        ScoreBuffer(1),
        scores > own_threshold,
        0,
        own_threshold,
        -looks,
    )
    evidence.set_classes([0, 1])
    for begin in range(0, len(y), setting.chunk):
        end = min(begin + setting.chunk, len(y))
        if begin - looked_at >= looks:
            cut, looked_at = _best_threshold(evidence, own_threshold), begin
        answers[begin:end] = scores[begin:end] > cut
        if end - setting.late > learned:
            known = slice(learned, end - setting.late)
            keys = np.zeros(known.stop - learned, dtype=np.uint64)
            silent = (scores[known] == own_threshold).all()  # the learner has not seen both classes yet
            evidence.push(y[known], None if silent else scores[known, None, None], keys)
            learned = known.stop
    return answers


def _best_threshold(evidence: ScoreBuffer, own_threshold: float) -> float:
    (sides,) = evidence.sides()
    positive, negative = (side[~np.isnan(side[:, 0]), 0] for side in (sides.positive, sides.negative))
    if min(len(positive), len(negative)) < 5:
        return own_threshold
    return choose_threshold(positive, negative, "gmean", sides.share)


def window_means(y: IntArray, scores: FloatArray, answers: list[NDArray[np.bool_]]) -> dict[str, list[float]]:
    """Return mean AUC and mean G-means (own and adaptive threshold) over windows, for each window size."""
    return {str(size): _means(y, scores, answers, size) for size in WINDOWS}


def _means(y: IntArray, scores: FloatArray, answers: list[NDArray[np.bool_]], size: int) -> list[float]:
    size = min(size, 1000 if len(y) >= 5000 else 500 if len(y) >= 1500 else 250)
    rows = []
    for begin in range(0, len(y), size):
        part = slice(begin, begin + size)
        positive = y[part] == 1
        if 0 < positive.sum() < len(positive):
            ranks, n = rankdata(scores[part]), positive.sum()
            auc = (ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(positive) - n))
            hits = [np.sqrt(a[part][positive].mean() * (1.0 - a[part][~positive].mean())) for a in answers]
            rows.append([auc, *hits])
    if not rows:
        raise ValueError("no window has both classes")
    return [round(float(mean), 6) for mean in np.mean(rows, axis=0)]
