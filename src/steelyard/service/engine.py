"""Engine of one model: its columns, its learner and its quality monitor.

The engine does no I/O and does not read the clock: the same events give the same model, so a model can be
recovered by replaying its events. Every event is atomic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError, SteelyardError
from steelyard.federated import Hub
from steelyard.persistence import from_bytes, to_bytes
from steelyard.service.monitor import QualityMonitor, RecentRows
from steelyard.service.published import PublishedModel, class_counts, digest_of
from steelyard.service.rows import (
    REQUEST,
    check_features,
    encoded_chunk,
    extend_columns,
    missing_column,
    reads_tables,
    row_costs,
)
from steelyard.service.spec import Spec
from steelyard.streams.chunks import padded
from steelyard.streams.predictions import Predictions, is_ready, learn_chunk, predict_chunk, rows_for_model
from steelyard.tables.columns import ColumnBatch, as_texts
from steelyard.tables.encoding import LabelReader, TableEncoder

_MIN_ROWS_TO_YIELD = 200  # smaller batches are learned too fast to delay predictions
# Above this number of classes, LabelReader is faster than comparing with each known integer class.
_MAX_CLASSES_TO_COMPARE = 8


@dataclass
class Challenger:
    """Second model that learns the same rows in shadow mode, with the quality of both models on these rows.

    Both models predict a row when its label is learned, because earlier predictions are older than the
    challenger.
    """

    engine: Engine  # engine of the challenger, whose monitor measures the quality of the challenger
    monitor: QualityMonitor  # quality of the model itself since the challenger started
    since: float


class Engine:
    """One model that learns and forgets.

    Parameters
    ----------
    own_window : bool
        Whether a learner with a parameter ``window`` drops the rows outside the sliding window by itself. In
        models that were created by earlier versions, the engine forgets these rows instead.
    """

    def __init__(self, name: str, spec: Spec, *, own_window: bool = True) -> None:
        self.name = name
        self.spec = spec
        # Called between long steps, so that requests for predictions can run.
        self.yield_to_readers: Callable[[], None] | None = None
        self.hub: Hub | None = None  # updates of the sites of a federated model
        self.version = 0
        self.n_rows = 0  # number of rows in the model
        self.n_learned = 0  # number of rows learned since the model was created
        self.monitor = QualityMonitor()
        self.recent = RecentRows()
        self.challenger: Challenger | None = None
        # Reason why the last challenger ended, unless a client ended it.
        self.challenger_ended: str | None = None
        self.encoder = TableEncoder(spec.missing)
        self.learner = spec.make_learner(own_window=own_window)
        # Whether the learner drops rows outside its window by itself.
        self.has_own_window = getattr(self.learner, "window", "auto") != "auto"
        self._newest = -math.inf  # time of the newest row
        self._text_labels: bool | None = None
        # Column names of the last rows if the model needs exactly these columns, otherwise None.
        self._usual_names: list[str] | None = None
        if isinstance(spec.columns, Mapping):
            kinds = spec.columns
            empty = {name: np.empty(0, object if k == "category" else float) for name, k in kinds.items()}
            times = [name for name, kind in kinds.items() if kind == "time"]
            self.encoder.fit_columns(ColumnBatch(empty, 0, times=times), list(kinds), ())

    def pause(self, n_rows: int) -> None:
        """Let requests for predictions run before a step with ``n_rows`` rows, unless the step is short."""
        if n_rows >= _MIN_ROWS_TO_YIELD and self.yield_to_readers is not None:
            self.yield_to_readers()

    # -- columns of the rows ------------------------------------------------------------------------

    @property
    def text_columns(self) -> list[str]:
        """Columns that are always read as text."""
        special = [name for name in (self.spec.subject, self.spec.id) if name is not None]
        if self._text_labels:
            special.append(self.spec.target)
        return [*special, *(self.encoder.categorical_ if self.encoder.is_fitted else ())]

    @property
    def n_dropped(self) -> int:
        """Number of rows that the learner has dropped and that :meth:`expire` has not removed yet."""
        if not self.has_own_window or not is_ready(self.learner):
            return 0
        return self.n_rows - int(np.sum(self.learner.class_count_))

    @property
    def n_features(self) -> int:
        """Number of encoded features, which is 0 before the first rows are learned."""
        return int(getattr(self.learner, "n_features_in_", 0))

    def check_rows(self, batch: ColumnBatch, *, labelled: bool) -> None:
        """Raise DataError if rows lack a column that this model needs."""
        spec, columns = self.spec, batch.columns
        if list(columns) == self._usual_names:
            return
        for name in (spec.target, spec.time, spec.subject, spec.id) if labelled else ():
            if name is not None and name not in columns:
                raise missing_column(name, columns)
        if self.encoder.is_fitted:
            check_features(spec, self.encoder, batch)
        if not self.encoder.is_fitted and labelled and not spec.feature_names(columns):
            raise DataError("there is no feature column.", source="the request")

    def _extend_columns(self, batch: ColumnBatch) -> None:
        """Add new columns to the encoder, and note whether rows with these names need any further check."""
        spec, names = self.spec, list(batch.columns)
        extend_columns(spec, self.encoder, batch)
        needed = {spec.target, spec.time, spec.subject, spec.id, *self.encoder.columns_} - {None}
        is_complete = needed.issuperset(spec.feature_names(names)) and needed.issubset(names)
        self._usual_names = names if is_complete else None

    # -- changes of the model -----------------------------------------------------------------------

    def learn(
        self,
        add: ColumnBatch,
        *,
        at: float,
        times: FloatArray | None = None,
        predictions: Predictions | None = None,
    ) -> int:
        """Evaluate predictions for the rows, then learn the rows; return the new version.

        ``times`` are the times of the rows. By default all rows have the time ``at``. Without earlier
        ``predictions``, the rows are predicted now.
        """
        times = np.full(add.n_rows, at) if times is None else times
        # Learners expect ascending times, so a late row gets the latest time so far.
        ascending = np.maximum(np.maximum.accumulate(times), self._newest)
        encoder, self.encoder = self.encoder, self.encoder.copy()  # published models keep the old encoder
        try:
            if list(add.columns) != self._usual_names:
                self._extend_columns(add)
            labels = self._labels(add)
            costs = None if self.spec.cost is None else row_costs(add, self.spec.cost)
            chunk = encoded_chunk(self, add, labels, learn=True, times=ascending)
            current = None  # predictions of the current model, unless only earlier ones are needed
            if (predictions is None or self.challenger is not None) and is_ready(self.learner):
                current = predict_chunk(self.learner, chunk, sample_cost=costs)
            answers = current if predictions is None else predictions
            self.pause(add.n_rows)
            if (
                predictions is not None
                and hasattr(self.learner, "_keep_decisions")
                and is_ready(self.learner)
            ):
                rows = rows_for_model(self.learner, chunk)
                self.learner._keep_decisions(rows, predictions.labels.tolist())
            learn_chunk(self.learner, chunk, **({} if costs is None else {"sample_cost": costs}))
        except BaseException:
            self.encoder, self._usual_names = encoder, None
            raise
        self._text_labels = labels.dtype.kind == "U"
        if answers is not None:
            self.monitor.count(labels, answers, row=self.n_learned, at=at)
        if (rival := self.challenger) is not None:
            n_counted = rival.engine.monitor.n_counted
            self._change_challenger(lambda engine: engine.learn(add, at=at, times=times))
            # The rows are counted only if both models have predicted them.
            if current is not None and rival.engine.monitor.n_counted > n_counted:
                rival.monitor.count(labels, current, row=self.n_learned, at=at)
            rival.monitor.new_points, rival.engine.monitor.new_points = [], []
        self.recent.add(add)
        self._newest = float(ascending[-1])
        self.n_rows += add.n_rows
        self.n_learned += add.n_rows
        self.version += 1
        return self.version

    def forget(self, batch: ColumnBatch) -> int:
        """Forget rows; return the new version."""
        n_before = self.n_rows
        self._unlearn(batch)
        self._change_challenger(lambda rival: rival.forget(batch), n_before)
        return self._next()

    def expire(self, batch: ColumnBatch) -> int:
        """Forget rows that leave the sliding window, in the order of arrival; return the new version.

        The learner may have already dropped the first rows of the batch by itself.
        """
        n_dropped = min(self.n_dropped, batch.n_rows)
        if n_dropped < batch.n_rows:
            self._unlearn(batch.take(n_dropped, batch.n_rows))
        self.n_rows -= n_dropped
        self._change_challenger(lambda rival: rival.expire(batch))
        return self._next()

    def _unlearn(self, batch: ColumnBatch) -> None:
        self._check_can_forget("cannot forget rows")
        if not self.encoder.is_fitted or self.n_rows < batch.n_rows:
            raise DataError(
                f"{batch.n_rows:,} rows cannot be forgotten, because the model has only {self.n_rows:,}; "
                "nothing was changed."
            )
        if self.spec.target not in batch.columns:
            raise DataError(f"the column {self.spec.target!r} is missing.", source="the request")
        X, y = self._encoded(batch)
        self.pause(batch.n_rows)
        self.learner.forget(X, y)
        self.n_rows -= batch.n_rows

    def _check_can_forget(self, problem: str) -> None:
        if not hasattr(self.learner, "forget"):
            raise DataError(
                f"a model of class {type(self.learner).__name__} {problem}; nothing was changed.",
                hint="learners that can: ProximalSVC, IncrementalSVC, StreamClassifier",
            )

    def check_correction(self, right: ColumnBatch) -> None:
        """Raise DataError if the learner cannot forget or if a corrected label is not a known class."""
        self._check_can_forget("cannot forget rows, so labels cannot be corrected")
        known = {str(label) for label in np.asarray(self.learner.classes_).tolist()}
        known |= self.spec.allowed_labels or set()
        unknown = next((x for x in self._labels(right).tolist() if str(x) not in known), None)
        if unknown is not None:
            expected = ", ".join(sorted(known))
            raise DataError(
                f"a label can only be corrected to {expected}; got {unknown!r}. Nothing was changed."
            )

    def correct(self, wrong: ColumnBatch, right: ColumnBatch) -> int:
        """Forget rows and learn them with other labels; return the new version. An error needs a recovery."""
        self.check_correction(right)
        X, y = self._encoded(wrong)
        self.learner.forget(X, y)
        learn_chunk(self.learner, encoded_chunk(self, right, self._labels(right)))
        self._change_challenger(lambda rival: rival.correct(wrong, right), self.n_rows)
        return self._next()

    # -- challenger ---------------------------------------------------------------------------------

    def _change_challenger(self, change: Callable[[Engine], Any], n_rows: int | None = None) -> None:
        """Change the challenger; end it if this fails, or if it has not learned all ``n_rows`` rows."""
        if self.challenger is None:
            return
        rival = self.challenger.engine
        if n_rows is not None and rival.n_rows != n_rows:
            self.challenger, self.challenger_ended = None, "rows were forgotten"
            return
        try:
            change(rival)
        except SteelyardError as error:
            self.challenger, self.challenger_ended = None, type(error).__name__

    def start_challenger(
        self, spec: Spec, history: Iterable[tuple[ColumnBatch, FloatArray]], *, at: float
    ) -> int:
        """Start a challenger that first learns ``history`` (rows and their times); return the new version."""
        self.spec.check_challenger(spec)
        rival = Engine(self.name, spec)
        for batch, times in history:
            rival.learn(batch, at=at, times=times)
        rival.monitor = QualityMonitor()  # the comparison starts now, without earlier counts
        self.challenger, self.challenger_ended = Challenger(rival, QualityMonitor(), at), None
        return self._next()

    def end_challenger(self) -> int:
        """Remove the challenger; return the new version."""
        self.challenger = self.challenger_ended = None
        return self._next()

    def promote(self) -> Engine:
        """Return the challenger as the new model, with this engine as its challenger."""
        rival = self.challenger
        assert rival is not None
        promoted, monitor = rival.engine, rival.engine.monitor
        promoted.name = self.name  # the model may have been renamed since the challenger started
        promoted.version, promoted.n_learned = self.version + 1, self.n_learned
        self.challenger, self.monitor = None, rival.monitor
        promoted.recent, promoted.yield_to_readers = self.recent, self.yield_to_readers
        promoted.challenger = Challenger(self, monitor, rival.since)
        promoted.monitor = QualityMonitor.from_state(monitor.state())
        return promoted

    def categories_in(self, batch: ColumnBatch) -> set[tuple[str, str]]:
        """Return the known categories that occur in the rows, as pairs (column, text)."""
        if not self.encoder.is_fitted:
            return set()
        schema = getattr(self.learner, "_schema", None) if is_ready(self.learner) else None
        known = set(self.encoder.categories_)
        if schema is not None:
            known = {(name, text) for name, codes in schema.codes.items() for text in codes}
        columns = [name for name in self.encoder.categorical_ if name in batch.columns]
        found = known & {(name, text) for name in columns for text in as_texts(batch.columns[name])}
        return found if self.challenger is None else found | self.challenger.engine.categories_in(batch)

    def erase_categories(self, categories: set[tuple[str, str]]) -> None:
        """Erase the texts of categories that no longer occur in any row."""
        if reads_tables(self.learner):
            self.learner.erase_categories(sorted(categories))
        else:
            self.encoder = self.encoder.copy()  # published models keep the old encoder
            self.encoder.erase_categories(sorted(categories))
        if self.challenger is not None:
            self.challenger.engine.erase_categories(categories)

    def configure(self, spec: Spec) -> int:
        """Change settings that do not require relearning the rows; return the new version."""
        self.spec.check_change(spec)
        if spec.allowed_labels is not None and spec.allowed_labels != self.spec.allowed_labels:
            missing = set(class_counts(self.learner)) - spec.allowed_labels
            if missing:
                raise ParameterError(
                    f"classes must contain the class {min(missing)!r}, which the model has learned.",
                    source="the spec",
                )
        _copy_parameters(spec.make_learner(own_window=self.has_own_window), self.learner)
        self.spec, self._usual_names = spec, None
        return self._next()

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _labels(self, batch: ColumnBatch) -> NDArray[Any]:
        values = batch.columns[self.spec.target]
        known = getattr(self.learner, "classes_", np.empty(0))
        is_usual = values.dtype == np.float64 and known.dtype.kind == "i"
        if is_usual and len(known) <= _MAX_CLASSES_TO_COMPARE and (values[:, None] == known).any(1).all():
            return values.astype(np.int64)
        numbers = {} if self._text_labels else self.spec.integer_classes
        # The column contains integers as text if one of its rows has a text label.
        if numbers and values.dtype == object:
            found = [numbers.get(text or "") for text in as_texts(values)]
            if None not in found:
                return np.array(found, dtype=np.int64)
        labels = LabelReader(self.spec.target).read(values, REQUEST, 0)
        return labels.astype(str) if self._text_labels and labels.dtype.kind != "U" else labels

    def _encoded(self, batch: ColumnBatch) -> tuple[Any, NDArray[Any]]:
        """Return encoded rows, padded to the current number of features of the learner, and their labels."""
        labels = self._labels(batch)
        X = encoded_chunk(self, batch, labels).rows_for(self.learner)
        if isinstance(X, ColumnBatch):
            return X, labels
        return padded(X, max(self.n_features, X.shape[1])), labels

    # -- properties ---------------------------------------------------------------------------------

    def published(self) -> PublishedModel:
        """Return a read-only copy."""
        return PublishedModel(self)

    def digest(self) -> str:
        """Return a hash of the learned state. Models with equal digests have equal states."""
        return digest_of(self.learner)

    def classes(self) -> dict[str, float]:
        """Return the number of rows of each class, if the learner counts them."""
        return class_counts(self.learner)

    def column_kinds(self) -> dict[str, str]:
        """Return the kind of each feature column. The result is empty before the first rows are learned."""
        if not self.encoder.is_fitted:
            return {}
        kinds = dict.fromkeys(self.encoder.columns_, "number")
        kinds.update(dict.fromkeys(self.encoder.categorical_, "category"))
        kinds.update(dict.fromkeys(self.encoder.times_, "time"))
        return kinds

    # -- saving and loading -------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the complete state in a form that :func:`steelyard.persistence.encode` accepts."""
        rival = self.challenger
        return {
            "spec": self.spec.as_dict(),
            "version": self.version,
            "n_rows": self.n_rows,
            "n_learned": self.n_learned,
            "text_labels": self._text_labels,
            "encoder": to_bytes(self.encoder),
            "learner": to_bytes(self.learner),
            "gauge": self.monitor.state(),
            "newest": self._newest,
            "challenger": None
            if rival is None
            else {"engine": rival.engine.state(), "gauge": rival.monitor.state(), "since": rival.since},
            "challenger_ended": self.challenger_ended,
        }

    @classmethod
    def from_state(cls, name: str, state: Mapping[str, Any]) -> Engine:
        """Restore a model from :meth:`state`."""
        engine = cls(name, Spec.from_store(state["spec"]))
        engine.version = int(state["version"])
        engine.n_rows, engine.n_learned = int(state["n_rows"]), int(state["n_learned"])
        engine._text_labels = state["text_labels"]
        engine.encoder = from_bytes(state["encoder"])
        engine.learner = from_bytes(state["learner"])
        engine.has_own_window = getattr(engine.learner, "window", "auto") != "auto"
        engine._newest = float(state.get("newest", -math.inf))
        engine.monitor = QualityMonitor.from_state(state["gauge"])
        rival = state.get("challenger")
        if rival is not None:
            monitor = QualityMonitor.from_state(rival["gauge"])
            engine.challenger = Challenger(cls.from_state(name, rival["engine"]), monitor, rival["since"])
        engine.challenger_ended = state.get("challenger_ended")
        return engine


def _copy_parameters(source: Any, learner: Any) -> None:
    parameters = source.get_params(deep=False)
    inner = parameters.pop("estimator", None)
    for target in ("estimator", "estimator_"):
        if inner is not None and hasattr(learner, target):
            _copy_parameters(inner, getattr(learner, target))
    learner.set_params(**parameters)
