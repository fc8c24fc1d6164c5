"""Prequential (test-then-train) evaluation: each row is predicted before its label is learned."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from steelyard._labels import Codes, LabelEncoder, positive_class
from steelyard._types import FloatArray
from steelyard._validation import call_of
from steelyard.evaluation.contributions import MAX_FEATURES, FeatureStrengths
from steelyard.evaluation.peers import as_stream_learner
from steelyard.evaluation.results import PrequentialResult
from steelyard.evaluation.tracking import METRICS, Tracker
from steelyard.exceptions import DataError, DataTypeError, ParameterError, SteelyardError
from steelyard.params import Integer, check_value
from steelyard.proximal.drift_report import renamed_event
from steelyard.streams.chunks import ArrayStream, Chunk, RowStream
from steelyard.streams.predictions import Predictions, is_ready, learn_chunk, predict_chunk
from steelyard.tables.columns import Columns
from steelyard.tables.encoding import TableEncoder
from steelyard.tables.source import LABEL, RecordSource
from steelyard.tables.table_stream import TableStream, open_stream

SampleCost = Callable[[Chunk], FloatArray]  # returns the cost of missing each row of a chunk
_CHUNK_ROWS = 100  # default number of rows per chunk
_MAX_TIMES = 1001
_MAX_ALARMS = 5  # number of alarms per model that the report explains
_MEMORY_FILE = Path("/proc/self/statm")  # the second number is the resident memory in pages
_PAGE_BYTES = 4096
# Minimum time between two measurements of the memory, which take longer than a small chunk.
_MEMORY_INTERVAL_SECONDS = 0.1
DEFAULT_METRICS = (
    "sensitivity", "specificity", "g_mean", "macro_recall", "f1", "rs", "auc", "imbalance_ratio",
    "average_precision", "precision_at_k", "recall_at_k", "log_loss", "brier",
    "expected_calibration_error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """Event during an evaluation: a new class or a concept drift.

    Attributes
    ----------
    row : int
        Row at which the event occurred, counted from 0.
    kind : str
        ``"class"`` (first row of a class) or ``"drift"`` (a model detected concept drift).
    text : str
        Description of the event.
    model : str or None
        Name of the model that detected the drift; None for a new class.
    change : dict or None
        Row, cause and columns of a drift, if the model reports them.
    """

    row: int
    kind: str
    text: str
    model: str | None = None
    change: Mapping[str, Any] | None = field(default=None, compare=False)

    def described(self, feature_names: Sequence[str]) -> str:
        """Return the text with feature names in place of numbers such as x14."""
        return self.renamed(feature_names).text

    def renamed(self, feature_names: Sequence[str]) -> Event:
        """Return the event with feature names in place of numbers in its text and its change."""
        if self.change is None:
            return self
        change = renamed_event(self.change, feature_names)
        return replace(self, text=str(change["text"]), change=dict(change))


@dataclass(eq=False)
class Candidate:
    """Model under evaluation, with its measures and its running time."""

    name: str
    model: Any
    tracker: Tracker
    sample_cost: SampleCost | None  # only for models whose threshold minimises costs
    seconds: float = 0.0
    n_predicted: int = 0  # number of predicted rows, including rows without a label
    n_learned: int = 0
    unlabelled: Counter[Any] = field(default_factory=Counter)  # predicted labels of rows without a label
    feature_strengths: FeatureStrengths = field(default_factory=FeatureStrengths)
    # Last rows that were predicted as positive: the chunk, and the index of the row in the chunk.
    alarms: deque[tuple[Chunk, int]] = field(default_factory=lambda: deque(maxlen=_MAX_ALARMS))
    _n_drifts: int = 0
    _n_changes: int = 0

    @property
    def rows_per_second(self) -> float:
        """Rows per second, counting the time of both prediction and learning."""
        return max(self.n_learned, self.n_predicted) / max(self.seconds, 1e-9)

    def predict(self, chunk: Chunk, positive: Any = None) -> Predictions | None:
        """Return the predictions for a chunk, or None if the model has not learned anything yet.

        The last rows predicted as ``positive`` are stored to be explained, unless they are very wide.
        """
        if not is_ready(self.model):
            return None
        begin = time.perf_counter()
        cost = None if self.sample_cost is None else self.sample_cost(chunk)
        predictions = predict_chunk(
            self.model, chunk, probabilities=self.tracker.wants_probabilities, sample_cost=cost
        )
        self.seconds += time.perf_counter() - begin
        self.n_predicted += len(chunk)
        if positive in predictions.predicted and chunk.X.shape[1] <= MAX_FEATURES:
            found = np.flatnonzero(predictions.indices == predictions.predicted.index(positive))
            self.alarms.extend((chunk, row) for row in found[-_MAX_ALARMS:].tolist())
        return predictions

    def learn(self, chunk: Chunk) -> list[Event]:
        """Learn a chunk and return the drifts that the model detected."""
        begin = time.perf_counter()
        options = {} if self.sample_cost is None else {"sample_cost": self.sample_cost(chunk)}
        learn_chunk(self.model, chunk, **options)
        self.seconds += time.perf_counter() - begin
        self.n_learned += len(chunk)
        drifts, found = getattr(self.model, "drifts_", ()), getattr(self.model, "drift_events_", ())
        new, changes = drifts[self._n_drifts :], found[self._n_changes :]
        self._n_drifts, self._n_changes = len(drifts), len(found)
        return [
            *(Event(row, "drift", "the model detected concept drift", self.name) for row in new),
            *(Event(change["row"], "drift", change["text"], self.name, change) for change in changes),
        ]


class PrequentialEvaluator:
    """Prequential evaluation of several models on one stream, which :func:`prequential` runs to the end.

    Parameters
    ----------
    models : mapping of str to learner
        The models by name, as for :func:`prequential`. They are trained in place, not copied.
    metrics, window, warmup, delay, positive, every, seed, k
        As for :func:`prequential`. If ``positive`` is a string, it also matches labels such as integers whose
        text is equal to it.
    learns : bool, default=True
        Whether models learn each row after it was tested.
    sample_cost : callable, optional
        Function that returns the cost of missing each row of a chunk, for models whose threshold minimises
        costs.
    explains : bool, default=True
        Whether to record the strength of each feature over time, which only reports show and which explains
        rows of every model at up to 64 points of the stream.
    """

    def __init__(
        self,
        models: Mapping[str, Any],
        *,
        metrics: Sequence[str] = DEFAULT_METRICS,
        window: int = 1000,
        warmup: int = 0,
        delay: int = 0,
        positive: Any = None,
        every: int | None = None,
        seed: int = 0,
        k: int = 100,
        learns: bool = True,
        sample_cost: SampleCost | None = None,
        explains: bool = True,
    ) -> None:
        numbers = {"window": window, "warmup": warmup, "delay": delay, "every": every, "seed": seed, "k": k}
        _check_options(models, metrics, learns=learns, **numbers)
        self.window, self.warmup, self.delay, self.seed, self.k = window, warmup, delay, seed, k
        self.every = every or max(1, window // 2)
        self.metrics = tuple(metrics)
        self.candidates = []
        for name, given in models.items():
            model = as_stream_learner(given) if learns else given
            cost = sample_cost if getattr(model, "takes_cost", False) else None
            self.candidates.append(Candidate(name, model, Tracker(self.metrics, window, seed, k), cost))
        self.learns, self.explains = learns, explains
        self.n_rows = self.n_learned = self.n_unlabelled = 0
        self.n_label_changes = 0  # number of rows whose label differs from that of the row before
        self._last_code: int | None = None
        self.events: list[Event] = []
        self.started = time.perf_counter()
        self.started_at = datetime.now(UTC)
        self.label_table = LabelEncoder()
        self.times: list[tuple[int, float]] = []  # pairs (number of rows read, time of the last row)
        self.labels: dict[Any, int] = {}  # number of rows of each class so far
        # The parameter `positive`, otherwise 1, True or the rarer of two classes, or None.
        self.positive = self._given_positive = positive
        self._unlearned: deque[Chunk] = deque()  # tested rows whose labels have not arrived yet
        self._last_record = 0
        self._last_chunk: Chunk | None = None
        self._memory = -math.inf, math.nan  # time of the last measurement, and resident megabytes

    # -- test-then-train loop -----------------------------------------------------------------------

    def run(
        self, chunks: Iterable[Chunk], after: Callable[[PrequentialEvaluator], None] | None = None
    ) -> None:
        """Test and train until the chunks end or raise an error. All rows that were read are learned."""
        iterator = iter(chunks)
        try:
            for chunk in iterator:
                self.step(chunk)
                if after is not None:
                    after(self)
        finally:
            if isinstance(iterator, Generator):
                iterator.close()  # closes the file even if an exception keeps this frame alive
            self.finish()

    def step(self, chunk: Chunk) -> None:
        """Predict a chunk with all models, measure the predictions, then learn the rows with known labels.

        Rows without labels are predicted and counted, but neither measured nor learned.
        """
        if not len(self.label_table) and chunk.table is not None:
            self.label_table = chunk.table  # the labels of the stream are already encoded
        if chunk.unlabelled is not None:
            self.n_unlabelled += len(chunk.unlabelled)
            for candidate in self.candidates:
                found = candidate.predict(chunk.unlabelled)
                labels = [] if found is None else found.labels.tolist()
                candidate.unlabelled.update(label for label in labels if label is not None)
        if not len(chunk):
            return
        n_warmup = self.warmup - self.n_rows
        is_split = 0 < n_warmup < len(chunk)
        for rows in [chunk.take(0, n_warmup), chunk.take(n_warmup, len(chunk))] if is_split else [chunk]:
            codes = rows.codes_in(self.label_table)
            self._count_rows(codes, rows.time)
            is_tested = self.n_rows >= self.warmup
            predictions = [
                candidate.predict(rows, self.positive) if is_tested else None for candidate in self.candidates
            ]
            self._last_chunk = rows
            self._measure(codes, predictions, rows.time)
            if self.learns:
                self._unlearned.append(rows)
                self._learn(self.n_rows - self.delay)

    def finish(self) -> None:
        """Learn the rows with delayed labels, and record the last measures."""
        self._learn(self.n_rows)
        if self.n_rows > self._last_record:
            self._record()

    def _learn(self, until: int) -> None:
        """Learn all rows before row ``until``."""
        while self._unlearned and self.n_learned < until:
            chunk = self._unlearned.popleft()
            n_arrived = until - self.n_learned
            if n_arrived < len(chunk):
                self._unlearned.appendleft(chunk.take(n_arrived, len(chunk)))
                chunk = chunk.take(0, n_arrived)
            for candidate in self.candidates:
                self.events += candidate.learn(chunk)
            self.n_learned += len(chunk)

    def _measure(
        self, codes: Codes, predictions: list[Predictions | None], time: FloatArray | None = None
    ) -> None:
        """Count predictions, and record the measures every ``every`` rows, also within a chunk."""
        # The class whose scores are stored: the given positive class or the second of two.
        if self._given_positive is not None:
            scored_class = self.positive_code
        else:
            scored_class = 1 if len(self.labels) <= 2 else None
        begin = 0
        while begin < len(codes):
            end = min(len(codes), begin + self.every - self.n_rows % self.every)
            part = slice(begin, end)
            for candidate, predicted in zip(self.candidates, predictions, strict=True):
                if predicted is not None:
                    rows = predicted if end - begin == len(codes) else predicted.take(part)
                    times = None if time is None else time[part]
                    candidate.tracker.update(codes[part], rows, self.label_table, scored_class, times)
            self.n_rows += end - begin
            begin = end
            if self.n_rows % self.every == 0:
                self._record()

    def _record(self) -> None:
        """Record the measures of the window that ends at the last row."""
        now = time.perf_counter()
        if now - self._memory[0] > _MEMORY_INTERVAL_SECONDS:
            with suppress(OSError):  # not every system has the file
                pages = int(_MEMORY_FILE.read_text(encoding="ascii").split()[1])
                self._memory = now, pages * _PAGE_BYTES / 2**20
        self._last_record = self.n_rows
        is_thinned = False
        for candidate in self.candidates:
            if self.explains:
                candidate.feature_strengths.record(self.n_rows, candidate.model, self._last_chunk)
            if candidate.tracker.n_scored:
                is_thinned |= candidate.tracker.record(
                    self.n_rows, self.label_table, candidate.rows_per_second, self._memory[1]
                )
        if is_thinned:
            self.every *= 2

    # -- class labels -------------------------------------------------------------------------------

    @property
    def positive_code(self) -> int | None:
        """Code of the positive class, or the next free code if the class has not appeared yet."""
        if self.positive is None:
            return None
        code = self.label_table.find(self.positive)
        return len(self.label_table) if code is None else code

    def _count_rows(self, codes: Codes, time: FloatArray | None) -> None:
        """Count the labels of the next rows and their changes; note new classes, positive class and time."""
        counts = np.bincount(codes)
        for code in np.flatnonzero(counts).tolist():
            label = self.label_table.labels[code]
            if label not in self.labels:
                row = self.n_rows + int((codes == code).argmax())
                if row:
                    self.events.append(Event(row, "class", f"first row of class {label!r}"))
            self.labels[label] = self.labels.get(label, 0) + int(counts[code])
        self.n_label_changes += int(np.count_nonzero(codes[1:] != codes[:-1]))
        self.n_label_changes += self._last_code is not None and bool(codes[0] != self._last_code)
        self._last_code = int(codes[-1])
        if self._given_positive is None:
            self.positive = positive_class(self.labels)
        elif (given := self.label_table.find(self._given_positive)) is not None:
            self.positive = self.label_table.labels[given]
        if time is not None:
            if not self.times:
                self.times.append((0, float(time[0])))
            self.times.append((self.n_rows + len(codes), float(time[-1])))
            if len(self.times) > _MAX_TIMES:  # drops every other entry except the first and the last
                self.times = [self.times[0], *self.times[2::2]]

    def result(self, stream: RowStream | None = None) -> PrequentialResult:
        """Return the results so far."""
        return PrequentialResult(self, stream)


def prequential(
    models: Any,
    stream: Any,
    y: Any = None,
    *,
    target: str | None = None,
    chunk: int | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    window: int = 1000,
    warmup: int = 0,
    delay: int = 0,
    positive: Any = None,
    every: int | None = None,
    seed: int = 0,
    k: int = 100,
    progress: Callable[[PrequentialEvaluator], None] | None = None,
) -> PrequentialResult:
    """Evaluate models prequentially: each chunk is predicted by every model before the models learn it.

    Parameters
    ----------
    models : learner or mapping of str to learner
        The models; they are trained in place. A classifier of another package that has no ``partial_fit``,
        such as LightGBM or a forest, is refitted on the last 5,000 rows after every 500 rows
        (:class:`~steelyard.windowing.Refit`, whose parameters change both numbers).
    stream : stream, array-like, table, path or iterable
        The rows: a stream of :mod:`steelyard.streams` or another iterable of chunks; an array or data frame
        with its labels in ``y``; a data frame or the path of a file with its labels in the column
        ``target``; or (mapping, label) pairs, such as a river dataset. Rows without a label are predicted but
        not learned.
    y : array-like of shape (n_rows,), optional
        The labels of rows in an array or data frame.
    target : str, optional
        The column of labels in a data frame or file.
    chunk : int, optional
        Number of rows that are predicted together before they are learned; 100 by default. It must be None
        for a stream, which has its own chunk size.
    metrics : sequence of str
        Names out of sensitivity, specificity, g_mean, macro_recall, f1, rs (sensitivity over specificity),
        accuracy, cohen_kappa, imbalance_ratio, auc, pmauc, average_precision, precision_at_k, recall_at_k,
        log_loss, brier and expected_calibration_error. With more than two classes and no positive class,
        sensitivity and f1 are means over the classes, the measures of calibration cover all classes, and
        other measures that need a positive class are nan; pmauc is nan for more than 30 classes. Measures of
        probabilities are nan for models without ``predict_proba``.
    window : int, default=1000
        Number of most recent rows from which the running measures are computed.
    warmup : int, default=0
        Number of rows that are learned before the first row is tested. Rows that a model could not predict,
        because it had not learned anything yet, are not measured.
    delay : int, default=0
        Number of rows by which labels are late; with 0 a label arrives before the next row.
    positive : label, optional
        The positive class; by default 1 or True if the other class is 0, -1 or False, otherwise the rarer of
        two classes over all rows, determined when measures are read. If there are more classes and none is
        given, all classes count equally.
    every : int, optional
        Number of rows between two lines of the result table; half a window by default. For long streams
        every other line is dropped repeatedly, so memory is bounded.
    seed : int, default=0
        Seed of the confidence bands and of the sample of scores.
    k : int, default=100
        Number of highest scores for precision_at_k and recall_at_k in each window. If the stream has times,
        the totals are means over days.
    progress : callable, optional
        Called with the :class:`PrequentialEvaluator` after every chunk.

    Returns
    -------
    PrequentialResult
        Measures over time, totals, samples of scores, and the models.

    Raises
    ------
    SteelyardError
        An error in the stream; ``error.result`` contains the results for the rows before it.

    Examples
    --------
    >>> from steelyard import ProximalSVC
    >>> from steelyard.evaluation import prequential
    >>> from steelyard.streams import Gaussians, ImbalanceSchedule
    >>> stream = Gaussians(5000, schedule=ImbalanceSchedule.constant(0.05), seed=2)
    >>> models = {"balanced": ProximalSVC(), "plain": ProximalSVC(class_weight=None)}
    >>> result = prequential(models, stream)
    >>> for row in result.summary():
    ...     print(f"{row['model']:<9}{row['g_mean']:.2f}")
    balanced 0.82
    plain    0.00
    """
    evaluator = PrequentialEvaluator(
        models if isinstance(models, Mapping) else {type(models).__name__: models},
        metrics=metrics,
        window=window,
        warmup=warmup,
        delay=delay,
        positive=positive,
        every=every,
        seed=seed,
        k=k,
    )
    chunks = _as_stream(stream, y, target=target, chunk=chunk)
    row_stream = chunks if isinstance(chunks, RowStream) else None
    try:
        evaluator.run(chunks, progress)
    except SteelyardError as error:
        error.result = evaluator.result(row_stream)  # type: ignore[attr-defined]
        raise
    if positive is not None and evaluator.labels and evaluator.label_table.find(positive) is None:
        warnings.warn(
            f"prequential: positive={positive!r} is the label of no row; the labels are "
            f"{list(evaluator.labels)[:5]}.",
            UserWarning,
            stacklevel=2,
        )
    return evaluator.result(row_stream)


def _as_stream(data: Any, y: Any = None, *, target: str | None = None, chunk: int | None = None) -> Any:
    """Return a stream of chunks from the arguments of :func:`prequential`."""
    n_rows = chunk or _CHUNK_ROWS
    if y is not None and target is not None:
        raise ParameterError("labels are either y or the column target; got both.", source="prequential")
    if y is not None and not hasattr(data, "columns"):
        return ArrayStream(data, y, chunk=n_rows)
    if y is not None:
        if LABEL in data.columns:
            raise DataError(
                f"X must not have a column {LABEL!r} if the labels are passed as y.",
                source="prequential",
                hint=f"use target={LABEL!r} instead of y, or rename the column",
            )
        data, target = {**{str(name): data[name] for name in data.columns}, LABEL: y}, LABEL
    if target is not None:
        return open_stream(data, target, chunk=n_rows, unlabelled="keep")
    if isinstance(data, RowStream):
        if chunk is not None:
            raise ParameterError("a stream has its own chunk size; chunk must be None.", source="prequential")
        return data
    if isinstance(data, str | os.PathLike) or hasattr(data, "columns"):
        raise ParameterError(
            "a file or table needs target, the name of the column that holds the labels; got None.",
            source="prequential",
        )
    if isinstance(data, Iterable) and not isinstance(data, Mapping):
        return _of_items(data, chunk)
    raise DataTypeError(
        "expected a stream, rows with labels y, a table or file with target, or pairs of a mapping and a "
        f"label; got {type(data).__name__}.",
        source="prequential",
    )


def _of_items(items: Iterable[Any], chunk: int | None) -> Any:
    iterator = iter(items)
    first = next(iterator, None)
    if first is None:
        return ()
    all_items = chain([first], iterator)
    if isinstance(first, Chunk):
        return all_items
    if isinstance(first, tuple) and len(first) == 2 and isinstance(first[0], Mapping):
        source = RecordSource(all_items, type(items).__name__)
        return TableStream(source, Columns(LABEL), encoder=TableEncoder(), chunk=chunk or _CHUNK_ROWS)
    raise DataTypeError(
        f"expected chunks, or pairs of a mapping and a label; got {type(first).__name__}.",
        source="prequential",
        hint="an array needs labels: prequential(model, X, y)",
    )


def _check_options(
    models: Mapping[str, Any], metrics: Sequence[str], *, learns: bool, **numbers: int | None
) -> None:
    source = "prequential"
    if not models:
        raise ParameterError("expected at least one model; got none.", source=source)
    for name, model in models.items():
        if isinstance(model, type):
            raise ParameterError(
                f"expected a model; got the class {model.__name__}.",
                source=source,
                hint=f"create an instance: {call_of(model)}",
            )
        if learns and not (hasattr(model, "partial_fit") or hasattr(model, "fit")):
            raise ParameterError(
                f"the model {name!r} has neither partial_fit() nor fit(), so it cannot learn.", source=source
            )
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ParameterError(
            f"metrics must be among {', '.join(METRICS)}; got {unknown[0]!r}.", source=source
        )
    for name, number in numbers.items():
        if number is not None:
            check_value(name, number, Integer(1 if name in {"window", "every", "k"} else 0), source)
