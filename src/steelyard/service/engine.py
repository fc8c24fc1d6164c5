"""One model: its columns, its learner and what it has measured.

The engine does no I/O and has no clock of its own: the same events give the same model, so a recovery is a
replay. Every event is all or nothing.
"""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, SteelyardError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.service.monitor import QualityMonitor
from steelyard.service.spec import Spec
from steelyard.streams.answers import Answers, ask, is_ready, teach
from steelyard.streams.chunks import Chunk, padded
from steelyard.tables.columns import ColumnBatch, Place, RowError, near
from steelyard.tables.encoding import TableEncoder
from steelyard.tables.labels import LabelReader

__all__ = ["Engine", "Given", "Published"]

_PLACE = Place("the request")
_MAX_CLASSES = 500
_FEW_CLASSES = 8
_ASKED = 10.0  # seconds after a question in which more are expected
_MOST_DRIFTS = 200  # that are told


@dataclass(frozen=True)
class Given:
    """Answers that were given before labels came: what the rows are measured against."""

    labels: list[Any]
    scores: FloatArray  # of shape (n_rows, n_classes)
    classes: list[Any]

    def answers(self) -> Answers:
        return Answers.of(np.array(self.labels), list(self.classes), self.scores)


class Published:
    """A finished model that only answers; readers take the latest and never wait."""

    def __init__(self, engine: Engine) -> None:
        self.name, self.version, self.spec = engine.name, engine.version, engine.spec
        self.n_rows, self.n_learned = engine.n_rows, engine.n_learned
        self.text_columns = engine.text_columns
        self.columns = engine.column_kinds()
        self._monitor = engine.monitor
        self._encoder, self._learner = engine.copies()
        self._facts: dict[str, Any] | None = None
        self.asked_at = -math.inf  # when it, or the one before it, was asked last

    def facts(self) -> dict[str, Any]:
        """What can be said of the model in a few words."""
        if self._facts is None:
            self._facts = {
                "digest": digest_of(self._learner),
                "classes": class_counts(self._learner),
                "rows": self.n_rows,
                "learned": self.n_learned,
                "columns": self.columns,
            }
        return self._facts

    @property
    def measures(self) -> dict[str, Any]:
        """What the answers were worth lately: taken when it is asked for, not with every change."""
        return self._monitor.measures()

    def inside(self) -> dict[str, Any]:
        """Experts and what they are worth, where the learner has some; rows at which drift was seen."""
        experts, drifts = [], list(getattr(self._learner, "drifts_", ()))
        if self.is_ready and hasattr(self._learner, "explain"):
            explained = self._learner.explain()
            drifts += explained.drifts
            experts = [
                {
                    "name": expert.name,
                    "weight": float(expert.weight),
                    "record": None if np.isnan(expert.record) else float(expert.record),
                    "rows": int(expert.n_rows),
                    "words": expert.words,
                }
                for expert in explained.experts
            ]
        return {"experts": experts, "drifts": [int(row) for row in drifts[-_MOST_DRIFTS:]]}

    @property
    def is_ready(self) -> bool:
        """Whether it has learned enough to answer."""
        return is_ready(self._learner)

    @property
    def learner(self) -> Any:
        """The learner, to be asked and never taught."""
        return self._learner

    @property
    def encoder(self) -> TableEncoder:
        """How columns become numbers, to be read and never changed."""
        return self._encoder

    @property
    def is_asked(self) -> bool:
        """Whether questions came lately, so that more are expected."""
        return time.monotonic() - self.asked_at < _ASKED

    def follow(self, earlier: Published) -> None:
        """Take the place of an earlier one: if that is being asked, whoever asks next need not wait.

        The first answer of a learner works out what all others need.
        """
        self.asked_at = earlier.asked_at
        if self.is_asked and self.is_ready and hasattr(self._learner, "n_features_in_"):
            with suppress(SteelyardError):  # whoever asks will be told
                ask(self._learner, Chunk(np.zeros((1, self._learner.n_features_in_)), np.zeros(1), 0, None))

    def ask(self, batch: ColumnBatch) -> tuple[Answers, FloatArray | None]:
        """Labels, scores and, where the learner has them, probabilities."""
        self.asked_at = time.monotonic()
        if not self.is_ready:
            raise DataError(
                f"the model {self.name!r} has learned no rows yet, so it has no answer.",
                hint="send rows with labels to .../learn first",
            )
        chunk = _chunk(self._encoder, batch, np.zeros(batch.n_rows), learn=False)
        answers = ask(self._learner, chunk)
        if not hasattr(self._learner, "predict_proba"):
            return answers, None
        width = _width(self._learner, chunk)
        X = chunk.rows_for(self._learner)
        X = padded(X, width) if X.shape[1] <= width else np.ascontiguousarray(X[:, :width])
        return answers, np.asarray(self._learner.predict_proba(X))


class Engine:
    """A model at work.

    Parameters
    ----------
    name : str
        What it is called.
    spec : Spec
        What it is.
    """

    def __init__(self, name: str, spec: Spec) -> None:
        self.name = name
        self.spec = spec
        self.version = 0
        self.n_rows = 0  # that count now
        self.n_learned = 0  # ever
        self.monitor = QualityMonitor()
        self._encoder = TableEncoder(spec.missing)
        self._learner = spec.make_learner()
        self._text_labels: bool | None = None
        if spec.columns != "auto":
            self._settle_columns(dict(spec.columns))  # type: ignore[arg-type]

    # -- columns ------------------------------------------------------------------------------------

    @property
    def text_columns(self) -> list[str]:
        """Columns that are read as texts, whatever they look like."""
        special = [name for name in (self.spec.subject, self.spec.id) if name is not None]
        if self._text_labels:
            special.append(self.spec.target)
        return [*special, *(self._encoder.categorical_ if self._is_settled else ())]

    @property
    def can_forget(self) -> bool:
        """Whether the learner can unlearn rows."""
        return hasattr(self._learner, "forget")

    @property
    def _is_settled(self) -> bool:
        return "columns_" in vars(self._encoder)

    @property
    def _encoder_learns(self) -> bool:
        """Whether rows can change how columns become numbers."""
        return not self._is_settled or bool(self._encoder.categorical_) or self.spec.missing == "mean"

    def _settle_columns(self, kinds: Mapping[str, str]) -> None:
        empty = {
            name: np.empty(0, dtype=object if kind == "category" else np.float64)
            for name, kind in kinds.items()
        }
        self._encoder.settle(ColumnBatch(empty, 0), list(kinds), ())

    def check_rows(self, batch: ColumnBatch, *, labelled: bool) -> None:
        """Refuse rows that this model cannot take, before anything changes."""
        special = {self.spec.time, self.spec.subject, self.spec.id, self.spec.target}
        needed = [self.spec.target] if labelled else []
        needed += [name for name in (self.spec.time, self.spec.subject, self.spec.id) if name and labelled]
        if self._is_settled:
            needed += self._encoder.columns_
        names = list(batch.columns)
        for name in needed:
            if name not in batch.columns:
                closest = near(name, names)
                raise DataError(
                    f"the column {name!r} is missing; there are {', '.join(map(repr, names[:20]))}.",
                    source="the request",
                    hint=f"did you mean {closest!r}?" if closest else None,
                )
        if not self._is_settled and labelled and not [name for name in names if name not in special]:
            raise DataError("no column is left as a feature.", source="the request")

    # -- events -------------------------------------------------------------------------------------

    def learn(
        self,
        add: ColumnBatch,
        *,
        at: float,
        given: Given | None = None,
        pause: Callable[[], None] | None = None,
    ) -> int:
        """Measure rows, then, perhaps after a pause, learn them; returns the new version."""
        encoder = copy.deepcopy(self._encoder) if self._encoder_learns else self._encoder
        try:
            if not self._is_settled:
                special = {self.spec.time, self.spec.subject, self.spec.id, self.spec.target}
                self._encoder.settle(add, [name for name in add.columns if name not in special], ())
            labels = self._labels(add)
            chunk = _chunk(self._encoder, add, labels, learn=True)
            answers = self._tested(chunk, given)
            if pause is not None:
                pause()
            teach(self._learner, chunk)
        except BaseException:
            self._encoder = encoder
            raise
        self._text_labels = labels.dtype.kind == "U"
        if answers is not None:
            self.monitor.count(labels, answers, row=self.n_learned, at=at)
        self.n_rows += add.n_rows
        self.n_learned += add.n_rows
        return self._next()

    def forget(self, batch: ColumnBatch, *, pause: Callable[[], None] | None = None) -> int:
        """Unlearn rows, perhaps after a pause; returns the new version."""
        if not self.can_forget:
            raise DataError(
                f"a model of class {type(self._learner).__name__} cannot forget rows; nothing was changed.",
                hint="learners that can: ProximalSVC, IncrementalSVC, StreamClassifier",
            )
        if not self._is_settled or self.n_rows < batch.n_rows:
            raise DataError(
                f"{batch.n_rows:,} rows cannot be forgotten: {self.n_rows:,} count now; nothing was changed."
            )
        if self.spec.target not in batch.columns:
            raise DataError(f"the column {self.spec.target!r} is missing.", source="the request")
        X, y = self._known(batch)
        if pause is not None:
            pause()
        self._learner.forget(X, y)
        self.n_rows -= batch.n_rows
        return self._next()

    def configure(self, spec: Spec) -> int:
        """Change what needs no second look at rows; returns the new version."""
        self.spec.check_change(spec)
        fresh = spec.make_learner()
        _settle(self._learner, fresh)
        self.spec = spec
        return self._next()

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _labels(self, batch: ColumnBatch) -> NDArray[Any]:
        values = batch.columns[self.spec.target]
        if values.dtype == np.float64 and _are_among(values, getattr(self._learner, "classes_", None)):
            return values.astype(np.int64)  # nearly always: nothing has to be found out about them
        labels = LabelReader(self.spec.target, _MAX_CLASSES).read(values, _PLACE, 0)
        if self._text_labels and labels.dtype.kind != "U":
            return labels.astype(str)
        return labels

    def _tested(self, chunk: Chunk, given: Given | None) -> Answers | None:
        if given is not None:
            return given.answers()
        return ask(self._learner, chunk) if is_ready(self._learner) else None

    def _known(self, batch: ColumnBatch) -> tuple[FloatArray, NDArray[Any]]:
        """Rows that were learned before, as the learner has seen them."""
        labels = self._labels(batch)
        chunk = _chunk(self._encoder, batch, labels, learn=False)
        width = _width(self._learner, chunk)
        return padded(chunk.rows_for(self._learner), width), labels

    # -- what it tells ------------------------------------------------------------------------------

    def published(self) -> Published:
        """A copy that only answers."""
        return Published(self)

    def copies(self) -> tuple[TableEncoder, Any]:
        """Encoder and learner for somebody who only reads."""
        encoder = copy.deepcopy(self._encoder) if self._encoder_learns else self._encoder
        return encoder, copy.deepcopy(self._learner)

    def digest(self) -> str:
        """What stands for everything learned: equal digests, equal models."""
        return digest_of(self._learner)

    def classes(self) -> dict[str, float]:
        """Rows of each class now, where the learner counts them."""
        return class_counts(self._learner)

    def column_kinds(self) -> dict[str, str]:
        """The features and what they are; empty before the first rows."""
        if not self._is_settled:
            return {}
        numbers = set(self._encoder.numeric_)
        return {name: "number" if name in numbers else "category" for name in self._encoder.columns_}

    # -- files --------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything, as values that :func:`steelyard.persistence.encode` takes."""
        return {
            "spec": self.spec.as_dict(),
            "version": self.version,
            "n_rows": self.n_rows,
            "n_learned": self.n_learned,
            "text_labels": self._text_labels,
            "encoder": to_bytes(self._encoder),
            "learner": to_bytes(self._learner),
            "gauge": self.monitor.state(),
        }

    @classmethod
    def from_state(cls, name: str, state: Mapping[str, Any]) -> Engine:
        """The model that :meth:`state` described."""
        engine = cls.__new__(cls)
        engine.name = name
        engine.spec = Spec.from_mapping(state["spec"])
        engine.version = int(state["version"])
        engine.n_rows, engine.n_learned = int(state["n_rows"]), int(state["n_learned"])
        engine._text_labels = state["text_labels"]
        engine._encoder = from_bytes(state["encoder"])
        engine._learner = from_bytes(state["learner"])
        engine.monitor = QualityMonitor.from_state(state["gauge"])
        return engine


def _settle(learner: Any, fresh: Any) -> None:
    """Give a learner the parameters of a fresh one, all through what surrounds it."""
    inside = fresh.get_params(deep=False)
    inner = inside.pop("learner", None)
    if inner is not None:
        _settle(learner.learner, inner)
        if hasattr(learner, "estimator_"):
            _settle(learner.estimator_, inner)
    learner.set_params(**inside)


def digest_of(learner: Any) -> str:
    """The learner's own digest where it has one, else a hash of all that would be saved."""
    own = getattr(learner, "digest", None)
    if callable(own) and is_ready(learner):
        return str(own())
    return hashlib.sha256(to_bytes(learner)).hexdigest()


def class_counts(learner: Any) -> dict[str, float]:
    """Rows of each class, where the learner counts them."""
    if not is_ready(learner):
        return {}
    labels = [str(label) for label in np.asarray(learner.classes_).tolist()]
    counts = getattr(learner, "class_count_", None)
    return dict(zip(labels, [0.0] * len(labels) if counts is None else map(float, counts), strict=True))


def _are_among(values: FloatArray, classes: NDArray[Any] | None) -> bool:
    """Whether all labels are of a few that are known, whole numbers all of them."""
    if classes is None or classes.dtype.kind != "i" or len(classes) > _FEW_CLASSES:
        return False
    known = values == classes[0]
    for label in classes[1:]:
        known |= values == label
    return bool(known.all())


def _width(learner: Any, chunk: Chunk) -> int:
    return int(learner.n_features_in_) if hasattr(learner, "n_features_in_") else int(chunk.X.shape[1])


def _chunk(encoder: TableEncoder, batch: ColumnBatch, labels: NDArray[Any], *, learn: bool) -> Chunk:
    wanted = _checked_kinds(encoder, batch)
    X, fixed = encoder.encode(wanted, _PLACE, 0, learn=learn)
    return Chunk(X, labels, 0, None, fixed)


def _checked_kinds(encoder: TableEncoder, batch: ColumnBatch) -> ColumnBatch:
    """Rows whose columns of numbers hold numbers; one of texts that are all missing may stand for some."""
    lacking = next((name for name in encoder.columns_ if name not in batch.columns), None)
    if lacking is not None:
        raise DataError(f"the column {lacking!r} is missing.", source="the request")
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
