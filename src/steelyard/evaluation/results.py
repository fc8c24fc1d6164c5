"""What a race has shown: a table over time, totals, and where something changed."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from dataclasses import asdict
from functools import cached_property
from html import escape
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.evaluation.samples import ScoreSample
from steelyard.evaluation.tracking import Tracker, flat_bands
from steelyard.exceptions import ParameterError
from steelyard.persistence.files import write_atomically

if TYPE_CHECKING:
    from steelyard.evaluation.evaluator import Candidate, PrequentialEvaluator
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
        The positive class: the one that was named, else the rarer of two; None where all count alike.
    labels : dict
        Rows of each class.
    seconds : float
        How long it took.
    moments : list of (int, float)
        Rows that had come, and when the last of them happened; empty where the stream has no times.
    ended : str or None
        Why the stream ended early, in words; None where it came to its end.
    notices : list of str
        Columns that are hardly features, and what to do about them.
    events : list of Event
        What happened on the way: classes that came, drifts that models found.
    bad_rows : list of str
        What was wrong with rows that were left out, of the first thousand.
    """

    def __init__(self, evaluator: PrequentialEvaluator, stream: RowStream | None) -> None:
        self._candidates = evaluator.candidates
        self._positive_code = evaluator.positive_code
        self._label_table = evaluator.label_table
        self.models = {candidate.name: candidate.model for candidate in evaluator.candidates}
        self.metrics = evaluator.metrics
        self.window, self.delay, self.warmup = evaluator.window, evaluator.delay, evaluator.warmup
        self.n_rows = evaluator.n_rows
        self.learned = evaluator.learns  # or a finished model was tested
        self.positive = evaluator.positive
        self.labels = dict(sorted(evaluator.labels.items()))
        self.seconds = time.perf_counter() - evaluator.started
        self.stream_name = "stream" if stream is None else stream.name
        self.chunk = None if stream is None else stream.chunk
        self.known_drifts = () if stream is None else stream.drifts
        self.feature_names = None if stream is None else stream.feature_names
        self.moments = list(evaluator.moments)
        self.ended: str | None = None
        self.notices: list[str] = list(getattr(stream, "notices", ()))
        self.events = sorted(evaluator.events, key=lambda event: event.row)
        self.bad_rows: list[str] = list(getattr(stream, "bad_rows", ()))
        self.command: str | None = None  # of the command line, where this comes from there
        self._stream, self._seed, self._started_at = stream, evaluator.seed, evaluator.started_at

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Where this comes from: command, version, seed, parameters, rows, data, start and duration."""
        stream = self._stream
        return {
            "command": self.command,
            "version": version("steelyard"),
            "seed": self._seed,
            "parameters": {name: _parameters(model) for name, model in self.models.items()},
            "rows": self.n_rows,
            "chunk": self.chunk,
            "delay": self.delay,
            "warmup": self.warmup,
            "data": {"name": self.stream_name, "sha256": None if stream is None else stream.fingerprint()},
            "bad_rows": getattr(stream, "n_bad_rows", 0),
            "started": self._started_at.isoformat(timespec="seconds"),
            "seconds": self.seconds,
        }

    @property
    def leading(self) -> str:
        """The measure to look at first: the G-mean, or with many classes alike the mean of their recalls.

        Among many classes one without a hit makes the G-mean 0, whatever the others are.
        """
        return "macro_recall" if self.positive is None and len(self.labels) > 2 else "g_mean"

    def __repr__(self) -> str:
        head = f"{self.n_rows:,} rows of {self.stream_name}"
        if self.positive is not None:
            head += f", positive class {self.positive!r}"
        rows = [_shown_line(line) for line in self._shown_summary()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        return "\n".join([f"PrequentialResult: {head}", *(f"  {line}".rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        head, *rows = [[escape(cell) for cell in _shown_line(line)] for line in self._shown_summary()]
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        positive = "" if self.positive is None else f", positive class <b>{escape(str(self.positive))}</b>"
        caption = f"{self.n_rows:,} rows of {escape(self.stream_name)}{positive}"
        names = "".join(f"<th>{cell}</th>" for cell in head)
        return (
            f"<table><caption>{caption}</caption><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _shown_summary(self) -> list[list[Any]]:
        """The head and the lines of a summary that fits a screen."""
        names = [self.leading, f"mean_{self.leading}", f"lowest_{self.leading}"]
        names += ["sensitivity", "specificity", "auc"] if self.positive is not None else ["f1", "accuracy"]
        lines = self.summary()
        names = [name for name in ["model", *names, "tested"] if any(name in line for line in lines)]
        return [names, *([line.get(name, math.nan) for name in names] for line in lines)]

    def plot(self, measure: str | None = None, *, ax: Any = None) -> Any:
        """Draw a measure over time; needs matplotlib.

        Parameters
        ----------
        measure : str, optional
            What to draw; :attr:`leading` by default.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        PrequentialDisplay
        """
        from steelyard.evaluation.displays import PrequentialDisplay

        return PrequentialDisplay.from_result(self, measure, ax=ax)

    def report(self, path: str | Path) -> Path:
        """Write the report, one HTML file that needs nothing else.

        Parameters
        ----------
        path : str or Path
            Where to write.

        Returns
        -------
        Path
        """
        written: Path = import_module("steelyard.report").write_report(self, path)  # a room above this one
        return written

    @property
    def table(self) -> list[dict[str, Any]]:
        """One line for each model and each place where measures were taken, in order of rows."""
        lines = [_without_counts(record) for name in self.models for record in self.records(name)]
        return sorted(lines, key=lambda line: line["row"])

    def records(self, model: str) -> list[dict[str, Any]]:
        """The lines of one model, with the class counts of the window."""
        if model not in self._lines:
            self._lines[model] = self._read_records(self._tracker(model), model)
        return self._lines[model]

    @cached_property
    def _lines(self) -> dict[str, list[dict[str, Any]]]:
        return {}

    def _read_records(self, tracker: Tracker, model: str) -> list[dict[str, Any]]:
        columns = tracker.window_measures(self._positive_code)
        lines = []
        for place, record in enumerate(tracker.records):
            values = {name: float(columns[name][place]) for name in self.metrics}
            rows = record.blocks[:, 1].sum(axis=0).tolist()
            lines.append(
                {
                    "row": record.row,
                    "model": model,
                    **values,
                    **flat_bands(tracker.window_bands(record, self._positive_code), values),
                    "rows_per_second": record.rows_per_second,
                    "memory_mb": record.memory_mb,
                    "class_counts": dict(
                        sorted((x, n) for x, n in zip(self._label_table.labels, rows, strict=False) if n)
                    ),
                }
            )
        return lines

    def summary(self) -> list[dict[str, Any]]:
        """One line for each model: measures over all rows, the leading ones over time, speed, rows tested.

        Over all rows, times when the classes are balanced outvote those when one is rare; ``mean_g_mean`` and
        ``lowest_g_mean``, of the running windows, give every time the same say. ``mean_macro_recall`` and
        ``lowest_macro_recall`` do so for many classes.
        """
        return [
            {
                "model": candidate.name,
                "tested": candidate.tracker.n_scored,
                **self.totals(candidate.name),
                **_over_time(candidate.tracker.window_measures(self._positive_code)),
                "rows_per_second": candidate.rows_per_second,
            }
            for candidate in self._candidates
        ]

    def totals(self, model: str) -> dict[str, float]:
        """The measures of one model over all rows, with the ends of their bands."""
        return self._tracker(model).total(self._positive_code)

    def by_class(self, model: str) -> list[dict[str, Any]]:
        """Recall, precision, F1 and support of each class, the largest class first.

        ``support`` are tested rows, ``answered`` how often the class was predicted; nan where there is
        nothing to divide by.
        """
        labels, counts = self.confusion(model)
        hits, rows, answers = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
        lines = [
            {
                "label": label,
                "support": int(n),
                "answered": int(m),
                "recall": float(hit / n) if n else math.nan,
                "precision": float(hit / m) if m else math.nan,
                "f1": float(2 * hit / (n + m)) if n + m else math.nan,
            }
            for label, hit, n, m in zip(labels, hits, rows, answers, strict=True)
        ]
        return sorted(lines, key=lambda line: -line["support"])

    def confusion(self, model: str) -> tuple[list[Any], np.ndarray[Any, Any]]:
        """Labels and counts of all tested rows, true label by row, predicted by column."""
        counts = self._tracker(model).counter.confusion
        used = np.flatnonzero(counts.any(axis=0) | counts.any(axis=1)).tolist()
        order = sorted(used, key=self._label_table.labels.__getitem__)
        return [self._label_table.labels[code] for code in order], counts[np.ix_(order, order)]

    def score_sample(self, model: str) -> ScoreSample:
        """A sample of the scores of each class; they speak for the positive one."""
        tracker = self._tracker(model)
        mirrored = tracker.speaks_for != self._positive_code and self._positive_code is not None
        return tracker.sample.read_as(self._label_table.labels, -1.0 if mirrored else 1.0)

    def carried_by(self, model: str) -> tuple[list[int], np.ndarray[Any, Any]]:
        """Rows, and the strength of each feature there: how far a deviation of it moves the scores.

        Empty where a model has no planes over its features. The names are ``feature_names``.
        """
        track = self._candidate(model).carried_by
        return list(track.rows), track.strengths()

    def time_of(self, row: float) -> float | None:
        """When a row happened, in seconds since 1970; None where the stream has no times."""
        if not self.moments:
            return None
        rows, seconds = zip(*self.moments, strict=True)
        return float(np.interp(row, rows, seconds))

    def changes(self, model: str) -> list[int]:
        """Rows at which the recall of a class jumped by more than chance allows."""
        return _jumps(*self._tracker(model).counter.blocks())

    def _tracker(self, model: str) -> Tracker:
        return self._candidate(model).tracker

    def _candidate(self, model: str) -> Candidate:
        for candidate in self._candidates:
            if candidate.name == model:
                return candidate
        raise ParameterError(
            f"there is no model {model!r}; there are {', '.join(map(repr, self.models))}.",
            source="PrequentialResult",
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
                "leading": self.leading,
                "ended": self.ended,
                "notices": self.notices,
                "moments": [list(moment) for moment in self.moments],
                "known_drifts": [list(drift) for drift in self.known_drifts],
                "bad_rows": self.bad_rows,
                "events": [asdict(event) for event in self.events],
                "provenance": self.provenance,
                "by_class": {name: self.by_class(name) for name in self.models},
                "changes": {name: self.changes(name) for name in self.models},
                "confusion": {name: self._confusion_dict(name) for name in self.models},
                "summary": self.summary(),
                "table": self.table,
            }
        )

    def _confusion_dict(self, model: str) -> dict[str, Any]:
        labels, counts = self.confusion(model)
        return {"labels": labels, "counts": counts.astype(int).tolist()}


def _jumps(blocks: np.ndarray[Any, Any], block_rows: int) -> list[int]:
    """Borders between blocks at which some class is hit much more or less often than before.

    At each border the recall over a few blocks before is compared with that over a few blocks after, by
    the usual test of two shares; neighbouring borders count once, at the clearest of them.
    """
    n_blocks = len(blocks)
    width = max(2, n_blocks // 20)
    before_any = np.zeros(blocks.shape[2])
    hits, rows = (np.cumsum(np.vstack([before_any, blocks[:, part]]), axis=0) for part in (0, 1))
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


def _over_time(columns: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ("g_mean", "macro_recall"):
        values = columns[name][~np.isnan(columns[name])]
        if len(values):
            found |= {f"mean_{name}": float(values.mean()), f"lowest_{name}": float(values.min())}
    return found


def _parameters(model: Any) -> dict[str, str]:
    """The parameters of a model in words; of a peer those of the model inside."""
    inner = getattr(model, "estimator", model)
    if not hasattr(inner, "get_params"):
        return {"model": repr(getattr(model, "model", model))}
    return {name: repr(value) for name, value in inner.get_params(deep=False).items()}


def _shown_line(values: list[Any]) -> list[str]:
    return [
        ("-" if math.isnan(value) else f"{value:.3f}")
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
        for value in values
    ]


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
        write_atomically(path, [text.encode("utf-8", "backslashreplace")], source="PrequentialResult")
    return text
