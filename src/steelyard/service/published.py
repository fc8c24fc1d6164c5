"""Published model: read-only copy of a model that serves predictions."""

from __future__ import annotations

import copy
import hashlib
import math
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard._types import FloatArray
from steelyard._visible import json_value
from steelyard.ensemble import StreamClassifier
from steelyard.ensemble.online_threshold import RealisedRate
from steelyard.evaluation.contributions import strengths_of
from steelyard.exceptions import DataError, SteelyardError
from steelyard.persistence import to_bytes
from steelyard.proximal.drift_report import renamed_event
from steelyard.service.monitor import column_statistics
from steelyard.service.rows import encoded_chunk, row_costs
from steelyard.streams.chunks import Chunk
from steelyard.streams.predictions import Predictions, is_ready, predict_chunk, rows_for_model
from steelyard.tables.columns import ColumnBatch
from steelyard.tables.explanation import explain_encoded, source_columns
from steelyard.tables.schema import Schema

if TYPE_CHECKING:
    from steelyard.service.engine import Engine

_SERVING_SECONDS = 10.0  # a model that predicted within this time is likely to predict again
_MAX_DRIFTS = 200  # maximum number of drift events in a response


class PublishedModel:
    """Read-only copy of a model. Predictions use the latest copy without locking."""

    def __init__(self, engine: Engine) -> None:
        rival = engine.challenger
        self.challenger = None if rival is None else PublishedModel(rival.engine)
        self._comparison = None if rival is None else (rival.monitor, rival.since)
        self.challenger_ended = engine.challenger_ended
        self.name, self.version, self.spec = engine.name, engine.version, engine.spec
        self.n_rows, self.n_learned = engine.n_rows, engine.n_learned
        self.text_columns = engine.text_columns
        self.columns = engine.column_kinds()
        self.hub = None if engine.hub is None else engine.hub.copy()
        self._monitor, self._recent = engine.monitor, engine.recent
        # Later changes replace the encoder of the engine by a copy. Callers must not change either.
        self.encoder, self.learner = engine.encoder, copy.deepcopy(engine.learner)
        self._rates_of_learning = _realised_rates(self.learner)  # rates counted on the learned rows
        self.last_predict_time = -math.inf  # monotonic time, including predictions of the previous copy

    def summary(self) -> dict[str, Any]:
        """Return the digest, the classes, the row counts and the columns."""
        return {
            "digest": self._digest,
            "classes": self._class_counts,
            "rows": self.n_rows,
            "learned": self.n_learned,
            "columns": self.columns,
        }

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.learner)

    @cached_property
    def _class_counts(self) -> dict[str, float]:
        return class_counts(self.learner)

    @property
    def measures(self) -> dict[str, Any]:
        """Quality of recent predictions, computed on access."""
        return self._monitor.measures()

    def column_statistics(self) -> dict[str, Any]:
        """Return missing values, drift and importance of each column over recent rows."""
        if not self.is_ready:
            return {"rows": 0, "columns": []}

        def scores(batch: ColumnBatch) -> FloatArray:
            return np.asarray(predict_chunk(self.learner, encoded_chunk(self, batch)).scores, dtype=float)

        return column_statistics(self._recent, self.columns, scores)

    def agreement(self, other: PublishedModel) -> dict[str, Any]:
        """Return the fraction of recently learned rows for which two versions predict the same label."""
        rows = self._recent.recent()
        if rows is None or not other.is_ready:
            return {"rows": 0, "same": None}
        labels = [model.predict(rows)[0].labels for model in (self, other)]
        return {"rows": rows.n_rows, "same": float(np.mean(labels[0] == labels[1]))}

    def comparison(self) -> dict[str, Any] | None:
        """Return settings and quality of the model and its challenger, or None if there is no challenger."""
        if self.challenger is None or self._comparison is None:
            return None
        monitor, since = self._comparison
        rival = self.challenger._monitor
        return {
            "since": since,
            "rows": rival.n_counted,
            "spec": self.challenger.spec.as_dict(),
            "digest": self.challenger._digest,
            "model": monitor.measures(),
            "challenger": rival.measures(),
        }

    def experts_and_drifts(self) -> dict[str, Any]:
        """Return the experts of an ensemble with their weights, and the rows at which drift was detected."""
        experts, drifts = [], list(getattr(self.learner, "drifts_", ()))
        if self.is_ready and isinstance(self.learner, StreamClassifier):
            explained = self.learner.explain()
            drifts += explained.drifts
            experts = [
                {
                    "name": expert.name,
                    "weight": float(expert.weight),
                    "record": None if np.isnan(expert.quality) else float(expert.quality),
                    "rows": int(expert.n_rows),
                    "words": expert.description,
                }
                for expert in explained.experts
            ]
        changes = getattr(self.learner, "drift_events_", []) if self.is_ready else []
        names: list[str] = []
        if changes and self._schema is None:  # events of a learner that reads tables contain names
            columns, sources = self._source_columns(int(self.learner.n_features_in_))
            names = [columns[source] for source in sources]
        return {
            "experts": experts,
            "drifts": [int(row) for row in drifts[-_MAX_DRIFTS:]],
            "changes": [renamed_event(event, names) for event in changes],
        }

    def realised_rates(self) -> list[dict[str, Any]]:
        """Return the observed rates of alarms, recall and precision if one of them has a target.

        Alarms are counted over the rows of prediction requests or, if there are more, over the learned rows.
        """
        rates = []
        for pair in zip(_realised_rates(self.learner), self._rates_of_learning, strict=False):
            one = max(pair, key=lambda rate: rate.n_rows)
            numbers = {"rate": one.rate, "interval": list(one.interval), "promised": one.target}
            if one.n_rows:
                rates.append({"name": one.name, **numbers, "rows": one.n_rows})
        return rates

    @property
    def drift_gauges(self) -> tuple[int, float] | None:
        """Number of detected drifts and evidence (0 to 1) of a new drift, or None without a drift test."""
        if not self.is_ready or not hasattr(self.learner, "drift_evidence_"):
            return None
        return len(self.learner.drift_events_), self.learner.drift_evidence_

    @property
    def is_ready(self) -> bool:
        """Whether the learner has been fitted."""
        return is_ready(self.learner)

    @property
    def is_serving(self) -> bool:
        """Whether the model has predicted recently."""
        return time.monotonic() - self.last_predict_time < _SERVING_SECONDS

    def warm_up(self, predecessor: PublishedModel) -> None:
        """Predict once if the previous copy is serving, because the first prediction fills the caches."""
        self.last_predict_time = predecessor.last_predict_time
        if self.is_serving and self.is_ready and hasattr(self.learner, "n_features_in_"):
            X = np.zeros((1, self.learner.n_features_in_))
            table = None if self._schema is None else {name: [None] for name in self._schema.names}
            with suppress(SteelyardError):  # the next real prediction raises the same error
                predict_chunk(self.learner, Chunk(X, np.zeros(1), columns=table))
        # Observed rates count the alarms that users saw, so the counts of the previous copy are continued.
        if hasattr(self.learner, "_continue_predictions") and self.is_ready:
            self.learner._continue_predictions(predecessor.learner)

    def predict(self, batch: ColumnBatch) -> tuple[Predictions, FloatArray | None]:
        """Return labels and scores, and probabilities if the learner supports them."""
        self.last_predict_time = time.monotonic()
        self._check_ready("predict")
        times = batch.columns.get(self.spec.time or "")
        is_timed = times is not None and times.dtype == np.float64 and bool(np.isfinite(times).all())
        chunk = encoded_chunk(self, batch, times=times if is_timed else None)
        costs = None if self.spec.cost is None else row_costs(batch, self.spec.cost)
        answers = predict_chunk(self.learner, chunk, sample_cost=costs)
        if not hasattr(self.learner, "predict_proba"):
            return answers, None
        return answers, np.asarray(self.learner.predict_proba(rows_for_model(self.learner, chunk)))

    @cached_property
    def most_frequent_class(self) -> str | None:
        """Class with the most learned rows, or None if the learner does not count rows."""
        counts = self._class_counts
        return max(counts, key=counts.__getitem__) if any(counts.values()) else None

    def explain(self, batch: ColumnBatch) -> list[dict[str, Any]]:
        """Return the explanation of each row as JSON values, without the values of remembered rows."""
        self._check_ready("explain")
        X = rows_for_model(self.learner, encoded_chunk(self, batch))
        if isinstance(X, ColumnBatch):  # the learner reads tables
            found = self.learner.explain(X)
        else:
            is_fixed = not hasattr(self.learner, "grow")
            found = explain_encoded(self.learner, self.encoder, X, batch.columns, is_fixed=is_fixed)
        rows = found.to_dicts()
        for row, plain in enumerate(rows):
            plain["values"] = dict(zip(found.column_names, map(json_value, found.values[row]), strict=True))
            for remembered in plain.get("nearest", ()):
                remembered.pop("values", None)
        return rows

    def importance(self) -> list[dict[str, Any]]:
        """Return each column with its share of the total mean absolute contribution, largest share first."""
        strengths = strengths_of(self.learner) if self.is_ready else None
        if strengths is None:
            return []
        names, sources = self._source_columns(len(strengths))
        shares = np.bincount(sources, strengths, minlength=len(names)) / max(float(strengths.sum()), 1e-300)
        order = np.argsort(-shares, kind="stable").tolist()
        return [{"column": names[k], "share": float(shares[k])} for k in order]

    def _source_columns(self, n_features: int) -> tuple[list[str], list[int]]:
        """Return the columns of the table, and for each feature of the learner the index of its column."""
        if self._schema is None:
            return source_columns(self.encoder, n_features, is_fixed=not hasattr(self.learner, "grow"))
        names = self._schema.names
        return names, [names.index(name) for name, _ in self._schema.places][:n_features]

    @property
    def _schema(self) -> Schema | None:
        """Columns of a learner that reads tables, or None if the learner reads encoded rows."""
        return getattr(self.learner, "_schema", None) if self.is_ready else None

    def _check_ready(self, verb: str) -> None:
        if not self.is_ready:
            raise DataError(
                f"the model {self.name!r} has learned no rows yet, so it cannot {verb}.",
                hint="send rows with labels to .../learn first",
            )


def digest_of(learner: Any) -> str:
    """Return the digest of a learner, or a hash of its serialized form if it has no digest."""
    own = getattr(learner, "digest", None)
    if callable(own) and is_ready(learner):
        return str(own())
    return hashlib.sha256(to_bytes(learner)).hexdigest()


def class_counts(learner: Any) -> dict[str, float]:
    """Return the number of rows of each class, or zeros if the learner does not count them."""
    if not is_ready(learner):
        return {}
    labels = [str(label) for label in np.asarray(learner.classes_).tolist()]
    counts = getattr(learner, "class_count_", None)
    return dict(zip(labels, [0.0] * len(labels) if counts is None else map(float, counts), strict=True))


def _realised_rates(learner: Any) -> list[RealisedRate]:
    return learner.realised_rates_ if is_ready(learner) and hasattr(learner, "realised_rates_") else []
