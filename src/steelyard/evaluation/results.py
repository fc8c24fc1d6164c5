"""What a race has shown: a table over time, totals, and where something changed."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.exceptions import FileAccessError, ParameterError

if TYPE_CHECKING:
    from steelyard.evaluation.race import Race
    from steelyard.streams.chunks import RowStream

__all__ = ["PrequentialResult"]

_CHANGE_SCORE = 4.5  # standard deviations at which a jump of a recall counts as a change


class PrequentialResult:
    """The outcome of :func:`prequential`.

    Attributes
    ----------
    models : dict
        The models, as they are now.
    n_rows : int
        Rows of the stream.
    positive : label or None
        The class that counted as positive.
    labels : dict
        Rows of each class.
    seconds : float
        How long it took.
    """

    def __init__(self, race: Race, stream: RowStream | None) -> None:
        self._contenders = race.contenders
        self.models = {contender.name: contender.model for contender in race.contenders}
        self.metrics = race.metrics
        self.window, self.delay, self.warmup = race.window, race.delay, race.warmup
        self.n_rows = race.n_rows
        self.positive = race.positive
        self.labels = dict(sorted(race.labels.items()))
        self.seconds = time.perf_counter() - race.started
        self.stream_name = "stream" if stream is None else stream.name
        self.known_drifts = () if stream is None else stream.drifts
        self.feature_names = None if stream is None else stream.feature_names

    @property
    def table(self) -> list[dict[str, Any]]:
        """One line for each model and each place where measures were taken, in order of rows."""
        lines = [_without_counts(record) for contender in self._contenders for record in contender.records]
        return sorted(lines, key=lambda line: line["row"])

    def records(self, model: str) -> list[dict[str, Any]]:
        """The lines of one model, with the class counts of the window."""
        records: list[dict[str, Any]] = self._contender(model).records
        return records

    def summary(self) -> list[dict[str, Any]]:
        """One line for each model: measures over all rows, the G-mean over time, speed, and rows tested.

        Over all rows, times when the classes are balanced outvote those when one is rare; ``mean_g_mean`` and
        ``lowest_g_mean``, of the running windows, give every time the same say.
        """
        return [
            {
                "model": contender.name,
                "tested": contender.tracker.n_scored,
                **contender.tracker.total(),
                **_over_time(contender.records),
                "rows_per_second": contender.n_learned / max(contender.seconds, 1e-9),
            }
            for contender in self._contenders
        ]

    def confusion(self, model: str) -> tuple[list[Any], np.ndarray[Any, Any]]:
        """Labels and counts of all tested rows, true label by row, predicted by column."""
        return self._tracker(model).overall.confusion()

    def score_sample(self, model: str) -> Any:
        """A sample of the scores of each class."""
        return self._tracker(model).sample

    def changes(self, model: str) -> list[int]:
        """Rows at which the recall of a class jumped by more than chance allows."""
        blocks = self._tracker(model).blocks
        return _jumps(blocks.recent_changes(), blocks.coarse_rows)

    def _tracker(self, model: str) -> Any:
        return self._contender(model).tracker

    def _contender(self, model: str) -> Any:
        for contender in self._contenders:
            if contender.name == model:
                return contender
        raise ParameterError(
            f"there is no model {model!r}; there are {', '.join(map(repr, self.models))}.",
            who="PrequentialResult",
        )

    # -- to other forms -----------------------------------------------------------------------------

    def to_pandas(self) -> Any:
        """The table as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(self.table)

    def to_polars(self) -> Any:
        """The table as a polars data frame."""
        import polars as pl

        return pl.DataFrame(self.table, infer_schema_length=None)

    def to_csv(self, path: str | Path | None = None) -> str:
        """The table as CSV, returned and, with a path, written."""
        lines = self.table
        names = list(dict.fromkeys(name for line in lines for name in line))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
        return _written(text.getvalue(), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """Everything as one JSON document, returned and, with a path, written; nan becomes null."""
        return _written(json.dumps(self.as_dict(), ensure_ascii=False, indent=1), path)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values; nan becomes None."""
        return _plain(
            {
                "stream": self.stream_name,
                "rows": self.n_rows,
                "positive": self.positive,
                "labels": {str(label): n for label, n in self.labels.items()},
                "window": self.window,
                "delay": self.delay,
                "seconds": self.seconds,
                "rows_per_second": self.n_rows / max(self.seconds, 1e-9),
                "known_drifts": [list(drift) for drift in self.known_drifts],
                "changes": {name: self.changes(name) for name in self.models},
                "confusion": {name: self._confusion_dict(name) for name in self.models},
                "summary": self.summary(),
                "table": self.table,
            }
        )

    def _confusion_dict(self, model: str) -> dict[str, Any]:
        labels, counts = self.confusion(model)
        return {"labels": labels, "counts": counts.astype(int).tolist()}


def _jumps(counts: np.ndarray[Any, Any], block_rows: int) -> list[int]:
    """Borders between blocks at which some class is hit much more or less often than before.

    At each border the recall over a few blocks before is compared with that over a few blocks after, by
    the usual test of two shares; neighbouring borders count once, at the clearest of them.
    """
    n_blocks = len(counts)
    width = max(2, n_blocks // 20)
    hits = np.cumsum(np.vstack([np.zeros(counts.shape[1]), counts.diagonal(axis1=1, axis2=2)]), axis=0)
    rows = np.cumsum(np.vstack([np.zeros(counts.shape[1]), counts.sum(axis=2)]), axis=0)
    found: list[tuple[float, int]] = []
    for border in range(width, n_blocks - width + 1):
        before, after = slice(border - width, border), slice(border, border + width)
        score = max(
            (_share_test(hits[:, k], rows[:, k], before, after) for k in range(hits.shape[1])), default=0.0
        )
        if score > _CHANGE_SCORE:
            if found and border - found[-1][1] <= width:
                found[-1] = max(found[-1], (score, border))
            else:
                found.append((score, border))
    return [border * block_rows for _, border in found]


def _share_test(hits: Any, rows: Any, before: slice, after: slice) -> float:
    h1, n1 = hits[before.stop] - hits[before.start], rows[before.stop] - rows[before.start]
    h2, n2 = hits[after.stop] - hits[after.start], rows[after.stop] - rows[after.start]
    if min(n1, n2) < 10:
        return 0.0
    pooled = (h1 + h2) / (n1 + n2)
    spread = math.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / n1 + 1 / n2))
    return float(abs(h1 / n1 - h2 / n2) / spread)


def _over_time(records: list[dict[str, Any]]) -> dict[str, float]:
    values = [r["g_mean"] for r in records if not math.isnan(r.get("g_mean", math.nan))]
    if not values:
        return {}
    return {"mean_g_mean": float(np.mean(values)), "lowest_g_mean": min(values)}


def _without_counts(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "class_counts"}


def _cell(value: Any) -> Any:
    return "" if isinstance(value, float) and math.isnan(value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _written(text: str, path: str | Path | None) -> str:
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise FileAccessError(f"{path} cannot be written: {error.strerror or error}.") from error
    return text
