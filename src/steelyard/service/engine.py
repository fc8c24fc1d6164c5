"""Engine of one model: its columns, its learner and its quality monitor.

The engine does no I/O and reads no clock: the same events give the same model, so recovery replays events.
Every event is atomic.
"""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.ensemble import StreamClassifier
from steelyard.evaluation.contributions import strengths_of
from steelyard.exceptions import DataError, ParameterError, SteelyardError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.proximal.drift_report import renamed_event
from steelyard.service.monitor import QualityMonitor
from steelyard.service.recent_rows import RecentRows, column_statistics
from steelyard.service.spec import Spec
from steelyard.streams.chunks import Chunk, padded
from steelyard.streams.predictions import Predictions, is_ready, learn_chunk, predict_chunk, rows_for_model
from steelyard.tables.columns import ColumnBatch, Place, RowError, as_texts, near
from steelyard.tables.encoding import TableEncoder
from steelyard.tables.explanation import explain_encoded, source_columns
from steelyard.tables.labels import LabelReader

__all__ = ["Challenger", "EarlierPredictions", "Engine", "PublishedModel"]

_PLACE = Place("the request")
_MAX_CLASSES = 500
_MAX_CLASSES_TO_COMPARE = 8  # with more classes, LabelReader is faster than one comparison per class
_SERVING_SECONDS = 10.0  # a model that predicted within this time is likely to predict again
_MAX_DRIFTS = 200  # maximum number of drifts in a response


@dataclass(frozen=True)
class EarlierPredictions:
    """Predictions of rows whose labels arrived later; the quality monitor evaluates them."""

    labels: list[Any]
    scores: FloatArray  # of shape (n_rows, n_classes)
    classes: list[Any]

    def answers(self) -> Predictions:
        """Return the predictions in the form that the quality monitor expects."""
        return Predictions.of(np.array(self.labels), list(self.classes), self.scores)

    def take(self, order: NDArray[Any]) -> EarlierPredictions:
        """Return the predictions of some rows, by position."""
        return EarlierPredictions([self.labels[i] for i in order], self.scores[order], self.classes)


@dataclass
class Challenger:
    """A second model that learns the same rows in shadow, and the quality of both on these rows.

    Both are evaluated at the same moment, when a row is learned, also for delayed labels: a challenger would
    otherwise be compared with predictions that were made before it existed.
    """

    engine: Engine  # its monitor has the quality of the challenger
    monitor: QualityMonitor  # quality of the model itself since the challenger started
    since: float


class PublishedModel:
    """Read-only copy of a model; predictions use the latest one without locking."""

    def __init__(self, engine: Engine) -> None:
        rival = engine.challenger
        self.challenger = None if rival is None else PublishedModel(rival.engine)
        self._comparison = None if rival is None else (rival.monitor, rival.since)
        self.challenger_ended = engine.challenger_ended
        self.name, self.version, self.spec = engine.name, engine.version, engine.spec
        self.n_rows, self.n_learned = engine.n_rows, engine.n_learned
        self.text_columns = engine.text_columns
        self.columns = engine.column_kinds()
        self._monitor, self._recent = engine.monitor, engine.recent
        self._encoder, self._learner = engine.copies()
        self._summary: dict[str, Any] | None = None
        self._usual: str | None = None  # the most frequent class, empty if it is unknown
        self.last_predict_time = -math.inf  # monotonic; of this copy or the copy it replaced

    def summary(self) -> dict[str, Any]:
        """Return digest, classes, numbers of rows, and columns."""
        if self._summary is None:
            self._summary = {
                "digest": digest_of(self._learner),
                "classes": class_counts(self._learner),
                "rows": self.n_rows,
                "learned": self.n_learned,
                "columns": self.columns,
            }
        return self._summary

    @property
    def measures(self) -> dict[str, Any]:
        """Quality of recent predictions; computed on access, not with every change."""
        return self._monitor.measures()

    def column_statistics(self) -> dict[str, Any]:
        """Return missing values, drift and importance of each column, over the last rows."""
        if not self.is_ready:
            return {"rows": 0, "columns": []}
        return column_statistics(self._recent, self.columns, self._scores)

    def agreement(self, other: PublishedModel) -> dict[str, Any]:
        """Return the share of the last learned rows for which two versions predict the same label."""
        rows = self._recent.recent()
        if rows is None or not other.is_ready:
            return {"rows": 0, "same": None}
        labels = [model.predict(rows)[0].labels for model in (self, other)]
        return {"rows": rows.n_rows, "same": float(np.mean(labels[0] == labels[1]))}

    def _scores(self, batch: ColumnBatch) -> FloatArray:
        chunk = _chunk(self._encoder, batch, np.zeros(batch.n_rows), learn=False)
        return np.asarray(predict_chunk(self._learner, chunk).scores, dtype=np.float64)

    def comparison(self) -> dict[str, Any] | None:
        """Return the settings and the quality of model and challenger on the same rows; None without one."""
        if self.challenger is None or self._comparison is None:
            return None
        monitor, since = self._comparison
        rival = self.challenger._monitor
        return {
            "since": since,
            "rows": rival.n_counted,
            "spec": self.challenger.spec.as_dict(),
            "digest": self.challenger.summary()["digest"],
            "model": monitor.measures(),
            "challenger": rival.measures(),
        }

    def experts_and_drifts(self) -> dict[str, Any]:
        """Return the experts of an ensemble with their weights, and the rows at which drift was detected."""
        experts, drifts = [], list(getattr(self._learner, "drifts_", ()))
        if self.is_ready and isinstance(self._learner, StreamClassifier):
            explained = self._learner.explain()
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
        changes = getattr(self._learner, "drift_events_", []) if self.is_ready else []
        names = [*self._encoder.numeric_, *self._encoder.categorical_] if changes else []
        return {
            "experts": experts,
            "drifts": [int(row) for row in drifts[-_MAX_DRIFTS:]],
            "changes": [renamed_event(event, names) for event in changes],
        }

    @property
    def drift_gauges(self) -> tuple[int, float] | None:
        """Number of drifts, and the evidence for a further one from 0 to 1; None if they are not tested."""
        if not self.is_ready or not hasattr(self._learner, "drift_evidence_"):
            return None
        return len(self._learner.drift_events_), self._learner.drift_evidence_

    @property
    def is_ready(self) -> bool:
        """Whether the learner has been fitted."""
        return is_ready(self._learner)

    @property
    def learner(self) -> Any:
        """The learner; callers must not change it."""
        return self._learner

    @property
    def encoder(self) -> TableEncoder:
        """The encoder from columns to features; callers must not change it."""
        return self._encoder

    @property
    def is_serving(self) -> bool:
        """Whether the model has predicted recently."""
        return time.monotonic() - self.last_predict_time < _SERVING_SECONDS

    def warm_up(self, predecessor: PublishedModel) -> None:
        """Predict once if the predecessor is serving: the first prediction of a learner fills its caches."""
        self.last_predict_time = predecessor.last_predict_time
        if self.is_serving and self.is_ready and hasattr(self._learner, "n_features_in_"):
            with suppress(SteelyardError):  # the next prediction raises the same error
                predict_chunk(
                    self._learner, Chunk(np.zeros((1, self._learner.n_features_in_)), np.zeros(1), 0, None)
                )
        # A promised rate is about the alarms that users saw, whichever copy raised them.
        if hasattr(self._learner, "_continue_predictions") and self.is_ready:
            self._learner._continue_predictions(predecessor.learner)

    def predict(self, batch: ColumnBatch) -> tuple[Predictions, FloatArray | None]:
        """Return labels and scores, and probabilities if the learner has them."""
        self.last_predict_time = time.monotonic()
        self._check_ready("predict")
        chunk = _chunk(self._encoder, batch, np.zeros(batch.n_rows), learn=False)
        answers = predict_chunk(self._learner, chunk)
        if not hasattr(self._learner, "predict_proba"):
            return answers, None
        width = _width(self._learner, chunk)
        X = chunk.rows_for(self._learner)
        X = padded(X, width) if X.shape[1] <= width else np.ascontiguousarray(X[:, :width])
        return answers, np.asarray(self._learner.predict_proba(X))

    @property
    def most_frequent_class(self) -> str | None:
        """The class with most learned rows; None if the learner does not count rows."""
        if self._usual is None:
            counts = class_counts(self._learner)
            self._usual = max(counts, key=counts.__getitem__) if any(counts.values()) else ""
        return self._usual or None

    def explain(self, batch: ColumnBatch) -> list[dict[str, Any]]:
        """Return the explanation of each row as JSON values, without the values of remembered rows."""
        self._check_ready("explain")
        chunk = _chunk(self._encoder, batch, np.zeros(batch.n_rows), learn=False)
        found = explain_encoded(
            self._learner,
            self._encoder,
            rows_for_model(self._learner, chunk),
            batch.columns,
            is_fixed=self._is_fixed,
        )
        rows = found.to_dicts()
        for row, plain in enumerate(rows):
            plain["values"] = dict(zip(found.column_names, map(_json_value, found.values[row]), strict=True))
            for remembered in plain.get("nearest", ()):
                remembered.pop("values", None)
        return rows

    def importance(self) -> list[dict[str, Any]]:
        """Return the columns with their shares of the total mean absolute contribution, largest first."""
        strengths = strengths_of(self._learner) if self.is_ready else None
        if strengths is None:
            return []
        names, sources = source_columns(self._encoder, len(strengths), is_fixed=self._is_fixed)
        shares = np.bincount(sources, strengths, minlength=len(names)) / max(float(strengths.sum()), 1e-300)
        order = np.argsort(-shares, kind="stable").tolist()
        return [{"column": names[k], "share": float(shares[k])} for k in order]

    @property
    def _is_fixed(self) -> bool:
        return not hasattr(self._learner, "grow")

    def _check_ready(self, verb: str) -> None:
        if not self.is_ready:
            raise DataError(
                f"the model {self.name!r} has learned no rows yet, so it cannot {verb}.",
                hint="send rows with labels to .../learn first",
            )


class Engine:
    """One model that learns and forgets.

    Parameters
    ----------
    name : str
        Name of the model.
    spec : Spec
        Settings of the model.
    """

    def __init__(self, name: str, spec: Spec) -> None:
        self.name = name
        self.spec = spec
        self.version = 0
        self.n_rows = 0  # rows in the model now
        self.n_learned = 0  # rows learned since the model was created
        self.monitor = QualityMonitor()
        self.recent = RecentRows()
        self.challenger: Challenger | None = None
        self.challenger_ended: str | None = None  # why the last challenger ended by itself
        self._encoder = TableEncoder(spec.missing)
        self._learner = spec.make_learner()
        self._text_labels: bool | None = None
        if spec.columns != "auto":
            self._fix_columns(dict(spec.columns))  # type: ignore[arg-type]

    # -- columns ------------------------------------------------------------------------------------

    @property
    def text_columns(self) -> list[str]:
        """Columns that are always read as text."""
        special = [name for name in (self.spec.subject, self.spec.id) if name is not None]
        if self._text_labels:
            special.append(self.spec.target)
        return [*special, *(self._encoder.categorical_ if self._has_columns else ())]

    @property
    def can_forget(self) -> bool:
        """Whether the learner can unlearn rows."""
        return hasattr(self._learner, "forget")

    @property
    def n_features(self) -> int:
        """Number of encoded features; 0 before the first rows."""
        return int(getattr(self._learner, "n_features_in_", 0))

    @property
    def _has_columns(self) -> bool:
        return "columns_" in vars(self._encoder)

    @property
    def _encoder_learns(self) -> bool:
        """Whether learning rows changes the encoder."""
        return not self._has_columns or bool(self._encoder.categorical_) or self.spec.missing == "mean"

    def _fix_columns(self, kinds: Mapping[str, str]) -> None:
        empty = {
            name: np.empty(0, dtype=object if kind == "category" else np.float64)
            for name, kind in kinds.items()
        }
        self._encoder.fit_columns(ColumnBatch(empty, 0), list(kinds), ())

    def check_rows(self, batch: ColumnBatch, *, labelled: bool) -> None:
        """Raise DataError if rows lack a column that this model needs."""
        spec, columns = self.spec, batch.columns
        needed = [spec.target, spec.time, spec.subject, spec.id] if labelled else []
        if self._has_columns:
            needed += self._encoder.columns_
        for name in needed:
            if name is not None and name not in columns:
                closest = near(name, list(columns))
                raise DataError(
                    f"the column {name!r} is missing; there are {', '.join(map(repr, list(columns)[:20]))}.",
                    source="the request",
                    hint=f"did you mean {closest!r}?" if closest else None,
                )
        if not self._has_columns and labelled and not self.feature_names(batch):
            raise DataError("there is no feature column.", source="the request")

    def feature_names(self, batch: ColumnBatch) -> list[str]:
        """Return the columns of rows that are features."""
        special = {self.spec.time, self.spec.subject, self.spec.id, self.spec.target}
        return [name for name in batch.columns if name not in special]

    # -- events -------------------------------------------------------------------------------------

    def learn(
        self,
        add: ColumnBatch,
        *,
        at: float,
        predictions: EarlierPredictions | None = None,
        pause: Callable[[], None] | None = None,
    ) -> int:
        """Evaluate predictions for the rows, then learn the rows; return the new version.

        Without earlier predictions the rows are predicted now. ``pause`` is called before learning.
        """
        encoder = copy.deepcopy(self._encoder) if self._encoder_learns else self._encoder
        try:
            if not self._has_columns:
                self._encoder.fit_columns(add, self.feature_names(add), ())
            labels = self._labels(add)
            chunk = _chunk(self._encoder, add, labels, learn=True)
            answers = self._predicted(chunk, predictions)
            current = (
                answers if predictions is None or self.challenger is None else self._predicted(chunk, None)
            )
            if pause is not None:
                pause()
            learn_chunk(self._learner, chunk)
        except BaseException:
            self._encoder = encoder
            raise
        self._text_labels = labels.dtype.kind == "U"
        if answers is not None:
            self.monitor.count(labels, answers, row=self.n_learned, at=at)
        if self.challenger is not None:
            self._challenge(partial(self._learn_too, self.challenger, add, labels, current, at))
        self.recent.add(add)
        self.n_rows += add.n_rows
        self.n_learned += add.n_rows
        return self._next()

    def _learn_too(
        self,
        rival: Challenger,
        add: ColumnBatch,
        labels: NDArray[Any],
        answers: Predictions | None,
        at: float,
    ) -> None:
        counted = rival.engine.monitor.n_counted
        rival.engine.learn(add, at=at)
        if answers is not None and rival.engine.monitor.n_counted > counted:  # both have predicted
            rival.monitor.count(labels, answers, row=self.n_learned, at=at)
            rival.monitor.take_points()
        rival.engine.monitor.take_points()

    def _challenge(self, change: Callable[[], Any]) -> None:
        """Apply a change to the challenger; one that fails ends it, since it would lack rows of the model."""
        try:
            change()
        except SteelyardError as error:
            self.challenger, self.challenger_ended = None, type(error).__name__

    def forget(self, batch: ColumnBatch, *, pause: Callable[[], None] | None = None) -> int:
        """Unlearn rows, after a call of ``pause``; return the new version."""
        if not self.can_forget:
            raise DataError(
                f"a model of class {type(self._learner).__name__} cannot forget rows; nothing was changed.",
                hint="learners that can: ProximalSVC, IncrementalSVC, StreamClassifier",
            )
        if not self._has_columns or self.n_rows < batch.n_rows:
            raise DataError(
                f"{batch.n_rows:,} rows cannot be forgotten: the model has {self.n_rows:,}; "
                "nothing was changed."
            )
        if self.spec.target not in batch.columns:
            raise DataError(f"the column {self.spec.target!r} is missing.", source="the request")
        X, y = self._encoded(batch)
        if pause is not None:
            pause()
        self._learner.forget(X, y)
        if self.challenger is not None:
            self._forget_too(self.challenger.engine, partial(self.challenger.engine.forget, batch))
        self.n_rows -= batch.n_rows
        return self._next()

    def _forget_too(self, rival: Engine, change: Callable[[], Any]) -> None:
        if rival.n_rows == self.n_rows:
            self._challenge(change)
        else:  # it has not learned all rows of the model, so these may be unknown to it
            self.challenger, self.challenger_ended = None, "rows were forgotten"

    def check_correction(self, right: ColumnBatch) -> None:
        """Raise DataError if learned rows cannot get these labels, which must be known classes."""
        if not self.can_forget:
            raise DataError(
                f"a model of class {type(self._learner).__name__} cannot forget rows, so labels cannot be "
                "corrected; nothing was changed.",
                hint="learners that can: ProximalSVC, IncrementalSVC, StreamClassifier",
            )
        known = {str(label) for label in np.asarray(self._learner.classes_).tolist()}
        unknown = next((x for x in self._labels(right).tolist() if str(x) not in known), None)
        if unknown is not None:
            expected = ", ".join(sorted(known))
            raise DataError(f"a label can be corrected to {expected}; got {unknown!r}; nothing was changed.")

    def correct(self, wrong: ColumnBatch, right: ColumnBatch) -> int:
        """Forget rows and learn them with other labels, as one change; return the new version."""
        self.check_correction(right)
        X, y = self._encoded(wrong)
        try:
            self._learner.forget(X, y)
            learn_chunk(self._learner, _chunk(self._encoder, right, self._labels(right), learn=False))
        except SteelyardError as error:  # the learner may have changed: the writer recovers the model
            raise RuntimeError(f"labels could not be corrected: {error}") from error
        if self.challenger is not None:
            rival = self.challenger.engine
            self._forget_too(rival, partial(rival.correct, wrong, right))
        return self._next()

    # -- challenger ---------------------------------------------------------------------------------

    def start_challenger(self, spec: Spec, history: Iterable[ColumnBatch], *, at: float) -> int:
        """Start a challenger that has learned the given rows; return the new version."""
        self.spec.check_challenger(spec)
        rival = Engine(self.name, spec)
        for batch in history:
            rival.learn(batch, at=at)
        rival.monitor = QualityMonitor()  # both are compared from now on
        self.challenger, self.challenger_ended = Challenger(rival, QualityMonitor(), at), None
        return self._next()

    def end_challenger(self) -> int:
        """Remove the challenger; return the new version."""
        self.challenger = self.challenger_ended = None
        return self._next()

    def promote(self) -> Engine:
        """Return the challenger as the model; this engine becomes its challenger."""
        rival = self.challenger
        assert rival is not None
        promoted, monitor = rival.engine, rival.engine.monitor
        promoted.name = self.name  # the model may have been renamed since the challenger started
        promoted.version, promoted.n_learned = self.version + 1, self.n_learned
        self.challenger, self.monitor = None, rival.monitor
        promoted.recent = self.recent
        promoted.challenger = Challenger(self, monitor, rival.since)
        promoted.monitor = monitor.copy()
        return promoted

    def categories_in(self, batch: ColumnBatch) -> set[tuple[str, str]]:
        """Return the known categories, as (column, text), that occur in rows."""
        known = set(self._encoder.categories_) if self._has_columns else set()
        columns = self._encoder.categorical_ if self._has_columns else []
        found: set[tuple[str, Any]] = {
            (name, text)
            for name in columns
            if name in batch.columns
            for text in as_texts(batch.columns[name])
        }
        found = {(name, text) for name, text in found if text is not None} & known
        return found if self.challenger is None else found | self.challenger.engine.categories_in(batch)

    def erase_categories(self, categories: set[tuple[str, str]]) -> None:
        """Erase the texts of categories that no row has any more."""
        self._encoder = copy.deepcopy(self._encoder)  # published copies keep theirs
        self._encoder.erase_categories(sorted(categories))
        if self.challenger is not None:
            self.challenger.engine.erase_categories(categories)

    def configure(self, spec: Spec) -> int:
        """Change settings that do not require learning rows again; return the new version."""
        self.spec.check_change(spec)
        if spec.allowed_labels is not None and spec.allowed_labels != self.spec.allowed_labels:
            missing = set(class_counts(self._learner)) - spec.allowed_labels
            if missing:
                raise ParameterError(
                    f"classes must contain the class {min(missing)!r}, which the model has learned.",
                    source="the spec",
                )
        _copy_parameters(spec.make_learner(), self._learner)
        self.spec = spec
        return self._next()

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _labels(self, batch: ColumnBatch) -> NDArray[Any]:
        values = batch.columns[self.spec.target]
        if values.dtype == np.float64 and _are_among(values, getattr(self._learner, "classes_", None)):
            return values.astype(np.int64)  # fast path for the usual case: integer classes
        labels = LabelReader(self.spec.target, _MAX_CLASSES).read(values, _PLACE, 0)
        if self._text_labels and labels.dtype.kind != "U":
            return labels.astype(str)
        return labels

    def _predicted(self, chunk: Chunk, predictions: EarlierPredictions | None) -> Predictions | None:
        if predictions is not None:
            return predictions.answers()
        return predict_chunk(self._learner, chunk) if is_ready(self._learner) else None

    def _encoded(self, batch: ColumnBatch) -> tuple[FloatArray, NDArray[Any]]:
        """Encode rows that were learned before, with the current number of features of the learner."""
        labels = self._labels(batch)
        chunk = _chunk(self._encoder, batch, labels, learn=False)
        width = _width(self._learner, chunk)
        return padded(chunk.rows_for(self._learner), width), labels

    # -- properties ---------------------------------------------------------------------------------

    def published(self) -> PublishedModel:
        """Return a read-only copy."""
        return PublishedModel(self)

    def copies(self) -> tuple[TableEncoder, Any]:
        """Return copies of encoder and learner for reading."""
        encoder = copy.deepcopy(self._encoder) if self._encoder_learns else self._encoder
        return encoder, copy.deepcopy(self._learner)

    @property
    def learner(self) -> Any:
        """The learner."""
        return self._learner

    def digest(self) -> str:
        """Return a hash of the learned state: models with equal digests are equal."""
        return digest_of(self._learner)

    def classes(self) -> dict[str, float]:
        """Return the number of rows of each class, if the learner counts them."""
        return class_counts(self._learner)

    def column_kinds(self) -> dict[str, str]:
        """Return the kind of each feature column; empty before the first rows."""
        if not self._has_columns:
            return {}
        numbers = set(self._encoder.numeric_)
        return {name: "number" if name in numbers else "category" for name in self._encoder.columns_}

    # -- files --------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the complete state in a form that :func:`steelyard.persistence.encode` accepts."""
        return {
            "spec": self.spec.as_dict(),
            "version": self.version,
            "n_rows": self.n_rows,
            "n_learned": self.n_learned,
            "text_labels": self._text_labels,
            "encoder": to_bytes(self._encoder),
            "learner": to_bytes(self._learner),
            "gauge": self.monitor.state(),
            "challenger": self._challenger_state(),
            "challenger_ended": self.challenger_ended,
        }

    def _challenger_state(self) -> dict[str, Any] | None:
        rival = self.challenger
        if rival is None:
            return None
        return {"engine": rival.engine.state(), "gauge": rival.monitor.state(), "since": rival.since}

    @classmethod
    def from_state(cls, name: str, state: Mapping[str, Any]) -> Engine:
        """Restore a model from :meth:`state`."""
        engine = cls.__new__(cls)
        engine.name = name
        engine.spec = Spec.from_store(state["spec"])
        engine.version = int(state["version"])
        engine.n_rows, engine.n_learned = int(state["n_rows"]), int(state["n_learned"])
        engine._text_labels = state["text_labels"]
        engine._encoder = from_bytes(state["encoder"])
        engine._learner = from_bytes(state["learner"])
        engine.monitor, engine.recent = QualityMonitor.from_state(state["gauge"]), RecentRows()
        rival = state.get("challenger")
        engine.challenger = None
        if rival is not None:
            monitor = QualityMonitor.from_state(rival["gauge"])
            engine.challenger = Challenger(cls.from_state(name, rival["engine"]), monitor, rival["since"])
        engine.challenger_ended = state.get("challenger_ended")
        return engine


def _copy_parameters(source: Any, learner: Any) -> None:
    """Copy the parameters of a learner, and of the learner inside a wrapper, to another learner."""
    parameters = source.get_params(deep=False)
    inner = parameters.pop("estimator", None)
    for target in ("estimator", "estimator_"):
        if inner is not None and hasattr(learner, target):
            _copy_parameters(inner, getattr(learner, target))
    learner.set_params(**parameters)


def digest_of(learner: Any) -> str:
    """Return the digest of a learner, or a hash of its serialized form if it has none."""
    own = getattr(learner, "digest", None)
    if callable(own) and is_ready(learner):
        return str(own())
    return hashlib.sha256(to_bytes(learner)).hexdigest()


def class_counts(learner: Any) -> dict[str, float]:
    """Return the number of rows of each class; zeros if the learner does not count them."""
    if not is_ready(learner):
        return {}
    labels = [str(label) for label in np.asarray(learner.classes_).tolist()]
    counts = getattr(learner, "class_count_", None)
    return dict(zip(labels, [0.0] * len(labels) if counts is None else map(float, counts), strict=True))


def _json_value(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _are_among(values: FloatArray, classes: NDArray[Any] | None) -> bool:
    """Return whether all labels are known integer classes, of which there are few."""
    if classes is None or classes.dtype.kind != "i" or len(classes) > _MAX_CLASSES_TO_COMPARE:
        return False
    known = values == classes[0]
    for label in classes[1:]:
        known |= values == label
    return bool(known.all())


def _width(learner: Any, chunk: Chunk) -> int:
    return int(learner.n_features_in_) if hasattr(learner, "n_features_in_") else int(chunk.X.shape[1])


def _chunk(encoder: TableEncoder, batch: ColumnBatch, labels: NDArray[Any], *, learn: bool) -> Chunk:
    X, fixed = encoder.encode(_checked_kinds(encoder, batch), _PLACE, 0, learn=learn)
    return Chunk(X, labels, 0, None, fixed)


def _checked_kinds(encoder: TableEncoder, batch: ColumnBatch) -> ColumnBatch:
    """Return rows whose numeric columns hold numbers; a text column without values becomes nan."""
    absent = next((name for name in encoder.columns_ if name not in batch.columns), None)
    if absent is not None:
        raise DataError(f"the column {absent!r} is missing.", source="the request")
    if batch.first_text(encoder.numeric_) is None:
        return batch
    columns = dict(batch.columns)
    for name in encoder.numeric_:
        values = columns[name]
        if values.dtype != object:
            continue
        row = next((i for i, value in enumerate(values) if value is not None), None)
        if row is not None:
            raise RowError(
                f"expected a number; got {values[row]!r}.",
                source=_PLACE.of_row(row, name),
                row=row,
                column=name,
            )
        columns[name] = np.full(batch.n_rows, np.nan)
    return ColumnBatch(columns, batch.n_rows)
