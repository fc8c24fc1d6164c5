"""Results of a prequential evaluation: measures over time, totals and detected changes."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from html import escape
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard._deprecation import renamed_method
from steelyard._visible import json_value
from steelyard.evaluation.tracking import ScoreSample
from steelyard.exceptions import ParameterError, SteelyardError
from steelyard.metrics.formulas import ConfusionTable, ratio
from steelyard.persistence.files import write_atomically
from steelyard.streams.predictions import rows_for_model

if TYPE_CHECKING:
    from steelyard.evaluation.evaluator import Candidate, PrequentialEvaluator
    from steelyard.metrics import ReliabilityCurve
    from steelyard.streams.chunks import RowStream

_CHANGE_Z_SCORE = 4.5  # minimum z-score of a significant change of recall
_MIN_ROWS_OF_Z_TEST = 10  # minimum number of rows of a class before and after a change
_MIN_EXPECTED_CHANGES = 20  # minimum number of expected label changes; smaller tables are not checked
# Rows count as sorted if the number of label changes is below this fraction of the expected number.
_SORTED_RATIO = 0.05


class PrequentialResult:
    """Result of :func:`prequential`.

    Attributes
    ----------
    models : dict
        The trained models.
    n_rows : int
        Number of rows.
    positive : label or None
        The positive class, as described for :func:`prequential`; None if all classes count equally.
    labels : dict
        Number of rows of each class.
    seconds : float
        Running time.
    moments : list of (int, float)
        Times of some rows, as pairs (number of rows read, time of the last of these rows); empty if the
        stream has no times.
    ended : str or None
        Reason why the stream ended early; None if it was read to its end.
    n_unlabelled : int
        Number of rows without a label, which were predicted but neither measured nor learned. They are not
        counted in ``n_rows``.
    notices : list of str
        Advice about columns that are unlikely to be features, and a warning if rows are sorted by label.
    events : list of Event
        New classes, and drifts that models detected.
    bad_rows : list of str
        Error messages of the first thousand skipped rows.
    """

    def __init__(self, evaluator: PrequentialEvaluator, stream: RowStream | None) -> None:
        self._candidates = {candidate.name: candidate for candidate in evaluator.candidates}
        self._positive_code = evaluator.positive_code
        self._label_table = evaluator.label_table
        self.models = {name: candidate.model for name, candidate in self._candidates.items()}
        self.metrics = evaluator.metrics
        self.window, self.delay, self.warmup = evaluator.window, evaluator.delay, evaluator.warmup
        self.k = evaluator.k
        self.n_rows = evaluator.n_rows
        self.learned = evaluator.learns  # False if a fitted model was only tested
        self.positive = evaluator.positive
        self.labels = dict(sorted(evaluator.labels.items()))
        self.seconds = time.perf_counter() - evaluator.started
        self.stream_name = "stream" if stream is None else stream.name
        self.chunk = None if stream is None else stream.chunk
        self.known_drifts = () if stream is None else stream.drifts
        self.feature_names = None if stream is None else stream.feature_names
        self.moments = list(evaluator.times)
        self.ended: str | None = None
        self.notices: list[str] = list(getattr(stream, "notices", ()))
        warning = label_order_warning(list(evaluator.labels.values()), evaluator.n_label_changes)
        self.order_notices = [] if warning is None else [warning]
        self.notices += self.order_notices
        self.n_unlabelled = evaluator.n_unlabelled
        self.events = sorted(evaluator.events, key=lambda event: event.row)
        self.bad_rows: list[str] = list(getattr(stream, "bad_rows", ()))
        self.command: str | None = None  # command line that computed this result, or None
        self._stream, self._seed, self._started_at = stream, evaluator.seed, evaluator.started_at
        self._lines: dict[str, list[dict[str, Any]]] = {}  # records of the models that were read

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Data to reproduce the evaluation: command, version, seed, parameters, rows, start, duration."""
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
        """Main measure: the G-mean, or the mean recall if more than two classes count equally.

        With many classes the G-mean is less useful, because a single class without hits makes it 0.
        """
        return "macro_recall" if self.positive is None and len(self.labels) > 2 else "g_mean"

    def __repr__(self) -> str:
        head = f"{self.n_rows:,} rows of {self.stream_name}"
        if self.positive is not None:
            head += f", positive class {self.positive!r}"
        rows = self._short_table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        notes = [f"note: {notice}" for notice in self.notices]
        return "\n".join([f"PrequentialResult: {head}", *(f"  {line}".rstrip() for line in lines), *notes])

    def _repr_html_(self) -> str:
        head, *rows = [[escape(cell) for cell in line] for line in self._short_table()]
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        positive = "" if self.positive is None else f", positive class <b>{escape(str(self.positive))}</b>"
        caption = f"{self.n_rows:,} rows of {escape(self.stream_name)}{positive}"
        names = "".join(f"<th>{cell}</th>" for cell in head)
        return (
            f"<table><caption>{caption}</caption><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _short_table(self) -> list[list[str]]:
        """Return the header and the rows of a short summary."""
        names = ["model", self.leading, f"mean_{self.leading}", f"lowest_{self.leading}"]
        if self.positive is None:
            names += ["f1", "accuracy", "tested"]
        else:
            names += ["sensitivity", "specificity", "auc", "average_precision", "tested"]
        lines = self.summary()
        names = [name for name in names if any(name in line for line in lines)]

        def shown(value: Any) -> str:
            if isinstance(value, float):
                return "-" if math.isnan(value) else f"{value:.3f}"
            return f"{value:,}" if isinstance(value, int) else str(value)

        return [names, *([shown(line.get(name, math.nan)) for name in names] for line in lines)]

    def plot(self, measure: str | None = None, *, ax: Any = None) -> Any:
        """Plot a measure over time. This needs matplotlib.

        Parameters
        ----------
        measure : str, optional
            The measure; :attr:`leading` by default.
        ax : matplotlib axes, optional
            The axes; a new figure by default.

        Returns
        -------
        PrequentialDisplay
        """
        from steelyard.evaluation.displays import PrequentialDisplay

        return PrequentialDisplay.from_result(self, measure, ax=ax)

    def report(self, path: str | Path) -> Path:
        """Write the report as one self-contained HTML file.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Path
        """
        written: Path = import_module("steelyard.report").write_report(self, path)  # avoids an import cycle
        return written

    @property
    def table(self) -> list[dict[str, Any]]:
        """Measures over time: one dictionary per model and recorded window, ordered by row."""
        lines = [
            {name: value for name, value in record.items() if name != "class_counts"}
            for model in self.models
            for record in self.records(model)
        ]
        return sorted(lines, key=lambda line: line["row"])

    def records(self, model: str) -> list[dict[str, Any]]:
        """Return the measures of one model over time, with the class counts of each window."""
        if model in self._lines:
            return self._lines[model]
        tracker = self._candidate(model).tracker
        columns, lines = tracker.window_measures(self._positive_code), []
        for index, record in enumerate(tracker.records):
            values = {name: float(columns[name][index]) for name in self.metrics}
            rows = zip(self._label_table.labels, record.blocks[:, 1].sum(axis=0).tolist(), strict=False)
            lines.append(
                {
                    "row": record.row,
                    "model": model,
                    **values,
                    **tracker.bands(record.blocks, self._positive_code, values),
                    "rows_per_second": record.rows_per_second,
                    "memory_mb": record.memory_mb,
                    "class_counts": dict(sorted((label, n) for label, n in rows if n)),
                }
            )
        self._lines[model] = lines
        return lines

    def summary(self) -> list[dict[str, Any]]:
        """Return one dictionary per model: measures of all rows, speed, and the main measure over time.

        ``mean_g_mean`` and ``lowest_g_mean`` are the mean and the minimum over the windows. They give all
        periods the same weight, whereas periods with balanced classes dominate a measure of all rows. With
        many classes use ``mean_macro_recall`` and ``lowest_macro_recall``.
        """
        lines = []
        for name, candidate in self._candidates.items():
            line = {"model": name, "tested": candidate.tracker.n_scored, **self.totals(name)}
            measures = candidate.tracker.window_measures(self._positive_code)
            for key in ("g_mean", "macro_recall"):
                values = measures[key][~np.isnan(measures[key])]
                if len(values):
                    line |= {f"mean_{key}": float(values.mean()), f"lowest_{key}": float(values.min())}
            lines.append({**line, "rows_per_second": candidate.rows_per_second})
        return lines

    def totals(self, model: str) -> dict[str, float]:
        """Return the measures of one model over all rows, with their confidence bands."""
        return self._candidate(model).tracker.total(self._positive_code)

    def by_class(self, model: str) -> list[dict[str, Any]]:
        """Return recall, precision, F1 and support of each class, largest class first.

        ``support`` is the number of tested rows of the class, ``answered`` the number of rows predicted as
        the class. A measure is nan if its denominator is zero.
        """
        labels, counts = self.confusion(model)
        by_class = ConfusionTable(labels, counts).by_class
        columns = {
            "label": labels,
            "support": by_class.true.tolist(),
            "answered": by_class.predicted.tolist(),
            "recall": by_class.recalls().tolist(),
            "precision": by_class.precisions().tolist(),
            "f1": by_class.f1_scores().tolist(),
        }
        lines = [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
        return sorted(lines, key=lambda line: -line["support"])

    def confusion(self, model: str) -> tuple[list[Any], np.ndarray[Any, Any]]:
        """Return the labels and the confusion matrix of all tested rows, indexed by [true, predicted]."""
        counts = self._candidate(model).tracker.confusion
        table = ConfusionTable.of_present(self._label_table.labels, counts)
        return table.labels, table.counts

    def score_sample(self, model: str) -> ScoreSample:
        """Return a sample of the scores of each class. High scores indicate the positive class."""
        tracker = self._candidate(model).tracker
        sign = -1.0 if tracker.is_mirrored(self._positive_code) else 1.0
        return tracker.sample.renamed(self._label_table.labels, sign)

    def reliability(self, model: str) -> ReliabilityCurve | None:
        """Return the reliability curve of all tested rows, or None if there are no probabilities."""
        return self._candidate(model).tracker.reliability(self._positive_code)

    def days(self, model: str) -> list[dict[str, Any]]:
        """Return precision and recall at k, one dictionary per day, or nothing if the stream has no times."""
        if self._positive_code is None:
            return []
        tracker = self._candidate(model).tracker
        return tracker.days.lines(tracker.is_mirrored(self._positive_code))

    def unlabelled_predictions(self) -> dict[str, Counter[Any]]:
        """Return how often each model predicted each label for unlabelled rows."""
        return {name: candidate.unlabelled for name, candidate in self._candidates.items()}

    def feature_strengths(self, model: str) -> tuple[list[int], np.ndarray[Any, Any]]:
        """Return row numbers, and the importance of every feature at each of these rows as an array.

        Importance is the mean absolute contribution to the scores over recent rows; for linear learners, the
        change of the scores per standard deviation. Rows and array are empty for models that cannot explain
        predictions. :meth:`strength_names` returns the names of the features.
        """
        history = self._candidate(model).feature_strengths
        return list(history.rows), history.strengths()

    def strength_names(self, model: str) -> list[str]:
        """Return the feature names of :meth:`feature_strengths`, empty if they are unknown."""
        return self._candidate(model).feature_strengths.names or list(self.feature_names or [])

    carried_by = renamed_method("feature_strengths", "carried_by")

    def promises(self, model: str) -> list[Any]:
        """Return the observed rates (``realised_rates_``) of a model with a target rate, or an empty list."""
        return list(getattr(self.models[model], "realised_rates_", ()))

    def last_alarms(self, model: str, n_columns: int = 5) -> list[dict[str, Any]]:
        """Return the last rows that a model predicted as positive, newest first, with explanations.

        Each dictionary has the row, its time (None if the stream has no times), its label, the score and the
        probability of the positive class (None without ``predict_proba``), and the name, value and
        contribution of the columns with the largest contributions to this score. The explanations use the
        current state of the model. The list is empty if the model cannot explain predictions.
        """
        learner = self.models[model]
        if self.positive is None or not hasattr(learner, "explain"):
            return []
        found = []
        for chunk, row in reversed(self._candidate(model).alarms):
            alarm = chunk.take(row, row + 1)
            rows = rows_for_model(learner, alarm)
            try:
                explained = learner.explain(rows, changes=False)
            except SteelyardError:  # for example, a wide sparse row does not fit into memory
                continue
            names = self.feature_names
            if names is not None and len(names) == len(explained.column_names):
                explained = replace(explained, column_names=list(names))
            probability = None
            if hasattr(learner, "predict_proba"):
                column = learner.classes_.tolist().index(self.positive)
                probability = float(learner.predict_proba(rows)[0, column])
            found.append(
                {
                    "row": alarm.first_row,
                    "time": None if alarm.time is None else float(alarm.time[0]),
                    "label": alarm.y[0],
                    "probability": probability,
                    "score": explained.of_class(0, self.positive)[2],
                    "columns": [list(column) for column in explained.largest(0, n_columns, self.positive)],
                }
            )
        return found

    def time_of(self, row: float) -> float | None:
        """Return the time of a row in seconds since 1970, or None if the stream has no times."""
        if not self.moments:
            return None
        rows, seconds = zip(*self.moments, strict=True)
        return float(np.interp(row, rows, seconds))

    def changes(self, model: str) -> list[int]:
        """Return the rows at which the recall of a class changed significantly."""
        return _significant_changes(*self._candidate(model).tracker.blocks())

    def _candidate(self, model: str) -> Candidate:
        if model not in self._candidates:
            raise ParameterError(
                f"there is no model {model!r}; there are {', '.join(map(repr, self.models))}.",
                source="PrequentialResult",
            )
        return self._candidates[model]

    # -- conversion to other formats ----------------------------------------------------------------

    def to_pandas(self) -> Any:
        """Return the table as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(self.table)

    def to_polars(self) -> Any:
        """Return the table as a polars data frame."""
        import polars as pl

        return pl.DataFrame(self.table, infer_schema_length=None)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the table as CSV and, with a path, write it to a file."""
        lines = self.table
        names = list(dict.fromkeys(name for line in lines for name in line))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        for line in lines:
            known = {k: v for k, v in line.items() if not (isinstance(v, float) and math.isnan(v))}
            writer.writerow(known)
        return _written(text.getvalue(), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return all results as JSON and, with a path, write them to a file. nan becomes null."""
        return _written(json.dumps(self.as_dict(), ensure_ascii=False, indent=1), path)

    def as_dict(self) -> dict[str, Any]:
        """Return all results as plain Python values; nan becomes None."""

        def of_models(read: Callable[[str], Any]) -> dict[str, Any]:
            return {name: read(name) for name in self.models}

        found: dict[str, Any] = json_value(
            {
                "stream": self.stream_name,
                "rows": self.n_rows,
                "positive": self.positive,
                "unlabelled": {"rows": self.n_unlabelled, "predicted": self.unlabelled_predictions()},
                "labels": self.labels,
                "window": self.window,
                "delay": self.delay,
                "k": self.k,
                "seconds": self.seconds,
                "rows_per_second": self.n_rows / max(self.seconds, 1e-9),
                "leading": self.leading,
                "ended": self.ended,
                "notices": self.notices,
                "moments": self.moments,
                "known_drifts": self.known_drifts,
                "bad_rows": self.bad_rows,
                "events": [asdict(event.renamed(self.feature_names or ())) for event in self.events],
                "promises": of_models(lambda name: [rate.as_dict() for rate in self.promises(name)]),
                "last_alarms": of_models(self.last_alarms),
                "provenance": self.provenance,
                "by_class": of_models(self.by_class),
                "changes": of_models(self.changes),
                "confusion": of_models(
                    lambda name: dict(zip(("labels", "counts"), self.confusion(name), strict=True))
                ),
                "reliability": of_models(
                    lambda name: None if (curve := self.reliability(name)) is None else curve._asdict()
                ),
                "days": of_models(self.days),
                "summary": self.summary(),
                "table": self.table,
            }
        )
        return found


def label_order_warning(counts: Sequence[int], n_changes: int) -> str | None:
    """Return a warning if rows are sorted by label, or None.

    If rows are sorted by label, a model that always predicts the previous label is nearly always right, even
    if the features are noise. ``counts`` contains the rows of each class, and ``n_changes`` is the number of
    label changes between consecutive rows.
    """
    n_rows = sum(counts)
    # In random order, neighbouring rows differ with probability 1 - sum of squared class shares.
    expected = (n_rows - 1) * (1 - sum((n / n_rows) ** 2 for n in counts))
    if expected < _MIN_EXPECTED_CHANGES or n_changes >= _SORTED_RATIO * expected:
        return None
    return (
        f"the rows are sorted by label: the label changes {n_changes:,} times in {n_rows:,} rows, "
        f"and about {expected:,.0f} times in random order, so the measures are misleading"
    )


def _significant_changes(blocks: np.ndarray[Any, Any], block_rows: int) -> list[int]:
    """Return the rows at which the recall of some class changes significantly.

    At each border between blocks of rows, a two-proportion z-test compares the recall in a few blocks before
    and after it. Of adjacent significant borders only the one with the largest z-score is returned.
    """
    n_blocks = len(blocks)
    width = max(2, n_blocks // 20)
    hits, rows = (np.pad(blocks[:, part].cumsum(axis=0), ((1, 0), (0, 0))) for part in (0, 1))
    borders = np.arange(width, n_blocks - width + 1)
    (h1, n1), (h2, n2) = (
        [counts[borders + end] - counts[borders + end - width] for counts in (hits, rows)]
        for end in (0, width)
    )
    pooled = ratio(h1 + h2, n1 + n2)
    spread = np.sqrt(np.maximum(pooled * (1 - pooled), 1e-12) * (ratio(1, n1) + ratio(1, n2)))
    is_enough = np.minimum(n1, n2) >= _MIN_ROWS_OF_Z_TEST
    scores = np.where(is_enough, np.abs(ratio(h1, n1) - ratio(h2, n2)) / spread, 0.0)
    found: list[tuple[float, int]] = []
    for border, score in zip(borders.tolist(), scores.max(axis=1, initial=0.0).tolist(), strict=True):
        if score > _CHANGE_Z_SCORE:
            if found and border - found[-1][1] <= width:
                found[-1] = max(found[-1], (score, border))
            else:
                found.append((score, border))
    return [border * block_rows for _, border in found]


def _parameters(model: Any) -> dict[str, str]:
    """Return the parameters of a model as texts. For a wrapper, they are those of the inner model."""
    inner = getattr(model, "estimator", model)
    if not hasattr(inner, "get_params"):
        return {"model": repr(getattr(model, "model", model))}
    return {name: repr(value) for name, value in inner.get_params(deep=False).items()}


def _written(text: str, path: str | Path | None) -> str:
    if path is not None:
        write_atomically(path, [text.encode("utf-8", "backslashreplace")], source="PrequentialResult")
    return text
