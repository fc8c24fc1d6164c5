"""Test, then train: every row is predicted before its label is learned, for several models at once."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.evaluation.contributions import ContributionTrack
from steelyard.evaluation.results import PrequentialResult
from steelyard.evaluation.sources import as_stream
from steelyard.evaluation.tracking import METRICS, Tracker
from steelyard.exceptions import ParameterError, SteelyardError
from steelyard.metrics.formulas import rarer_of_two
from steelyard.params import Integer
from steelyard.streams.answers import Answers, ask, is_ready, teach
from steelyard.streams.chunks import Chunk, RowStream
from steelyard.streams.labels import Codes, LabelTable

__all__ = ["Event", "PrequentialEvaluator", "prequential"]

_MAX_MOMENTS = 1001
_MEMORY_SECONDS = 0.1  # between two questions to the system, which take longer than a small chunk
DEFAULT_METRICS = (
    "sensitivity",
    "specificity",
    "g_mean",
    "macro_recall",
    "f1",
    "rs",
    "auc",
    "imbalance_ratio",
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened on the way.

    Attributes
    ----------
    row : int
        How many rows had come before.
    kind : str
        ``"class"`` (a label came for the first time) or ``"drift"`` (a model saw the concept change).
    text : str
        What happened, in words.
    model : str or None
        The model that it happened to; None for the stream itself.
    """

    row: int
    kind: str
    text: str
    model: str | None = None


class Candidate:
    """One model of the race, with its measures and the time it took."""

    def __init__(self, name: str, model: Any, metrics: tuple[str, ...], window: int, seed: int) -> None:
        self.name = name
        self.model = model
        self.tracker = Tracker(metrics, window, seed)
        self.seconds = 0.0
        self.n_learned = 0
        self.carried_by = ContributionTrack()
        self._n_drifts = 0

    @property
    def rows_per_second(self) -> float:
        """The model's own speed, tests and lessons together."""
        return max(self.n_learned, self.tracker.n_scored) / max(self.seconds, 1e-9)

    def test(self, chunk: Chunk) -> Answers | None:
        """Predict rows; a model that has learned nothing yet has no answer."""
        if not is_ready(self.model):
            return None
        begin = time.perf_counter()
        answers = ask(self.model, chunk)
        self.seconds += time.perf_counter() - begin
        return answers

    def train(self, chunk: Chunk) -> None:
        """Learn rows."""
        begin = time.perf_counter()
        teach(self.model, chunk)
        self.seconds += time.perf_counter() - begin
        self.n_learned += len(chunk)

    def new_drifts(self) -> list[int]:
        """Rows at which the model itself has seen the concept change, told once."""
        drifts = getattr(self.model, "drifts_", ())
        new, self._n_drifts = list(drifts[self._n_drifts :]), len(drifts)
        return new


class PrequentialEvaluator:
    """Several models on one stream; :func:`prequential` runs it to the end.

    Parameters
    ----------
    models : mapping of str to learner
        The models by name. They are taught, not copied.
    metrics, window, warmup, delay, positive, every, seed
        As for :func:`prequential`. A ``positive`` in text also means the label that is written so.
    learns : bool, default=True
        Whether rows are learned after they were tested.
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
        learns: bool = True,
    ) -> None:
        _check_options(
            models, metrics, learns=learns, window=window, warmup=warmup, delay=delay, every=every, seed=seed
        )
        self.window, self.warmup, self.delay, self.seed = window, warmup, delay, seed
        self.every = every or max(1, window // 2)
        self.candidates = [
            Candidate(name, model, tuple(metrics), window, seed) for name, model in models.items()
        ]
        self.metrics = tuple(metrics)
        self.n_rows = 0
        self.n_learned = 0
        self.events: list[Event] = []
        self.started = time.perf_counter()
        self.started_at = datetime.now(UTC)
        self.label_table = LabelTable()
        self._label_counts = np.zeros(0, dtype=np.int64)
        self._given = positive
        self.learns = learns
        self.moments: list[tuple[int, float]] = []  # rows that had come, and the time of the last
        self._waiting: deque[Chunk] = deque()
        self._last_record = 0
        self._memory = -math.inf, math.nan  # when it was last asked for, and what it was

    # -- classes ------------------------------------------------------------------------------------

    @property
    def labels(self) -> dict[Any, int]:
        """Rows of each class that has come."""
        pairs = zip(self.label_table.labels, self._label_counts.tolist(), strict=False)
        return {label: n for label, n in pairs if n}

    @property
    def positive(self) -> Any:
        """The positive class: the one that was named, else the rarer of two as of all rows so far."""
        if self._given is None:
            return rarer_of_two(self.labels)
        code = self.label_table.find(self._given)
        return self._given if code is None else self.label_table.labels[code]

    @property
    def positive_code(self) -> int | None:
        """The number of the positive class; one that has not come yet stands after those that have."""
        positive = self.positive
        if positive is None:
            return None
        code = self.label_table.find(positive)
        return len(self.label_table) if code is None else code

    def _speaks_for(self) -> int | None:
        """The class whose scores are kept: with two classes either will do, for they mirror each other."""
        if self._given is not None:
            return self.positive_code
        return 1 if np.count_nonzero(self._label_counts) <= 2 else None

    def _count(self, codes: Codes) -> None:
        counts = np.bincount(codes, minlength=len(self.label_table))
        known = self._label_counts
        if len(known) < len(counts):
            known = np.pad(known, (0, len(counts) - len(known)))
        for code in np.flatnonzero(known < np.minimum(counts, 1)).tolist():
            row = self.n_rows + int((codes == code).argmax())
            if row:
                label = self.label_table.labels[code]
                self.events.append(Event(row, "class", f"class {label!r} came for the first time"))
        self._label_counts = known + counts

    # -- the loop -----------------------------------------------------------------------------------

    def run(
        self, chunks: Iterable[Chunk], after: Callable[[PrequentialEvaluator], None] | None = None
    ) -> None:
        """Test and train to the end of the chunks; whatever ends them, what came is learned and measured."""
        iterator = iter(chunks)
        try:
            for chunk in iterator:
                self.step(chunk)
                if after is not None:
                    after(self)
        finally:
            if isinstance(iterator, Generator):
                iterator.close()  # and with it the file, also when an error keeps this frame alive
            self.finish()

    def step(self, chunk: Chunk) -> None:
        """Test all models on these rows, then teach them what labels have arrived."""
        if not len(self.label_table) and chunk.table is not None:
            self.label_table = chunk.table  # the stream has numbered its labels
        for part in self._parts(chunk):
            codes = part.numbered(self.label_table)
            self._count(codes)
            tested = self.n_rows >= self.warmup
            answers = [candidate.test(part) if tested else None for candidate in self.candidates]
            self._measure(codes, answers)
            self._note_time(part)
            if self.learns:
                self._waiting.append(part)
                self._teach(self.n_rows - self.delay)

    def _note_time(self, chunk: Chunk) -> None:
        if chunk.time is None or not len(chunk):
            return
        if not self.moments:
            self.moments.append((0, float(chunk.time[0])))
        self.moments.append((self.n_rows, float(chunk.time[-1])))
        if len(self.moments) > _MAX_MOMENTS:  # the first and the last stay
            self.moments = [self.moments[0], *self.moments[2::2]]

    def _measure(self, codes: Codes, answers: list[Answers | None]) -> None:
        """Count the answers, and keep the measures wherever ``every`` rows are full, not where chunks end."""
        speaks_for = self._speaks_for()
        for begin in range(0, len(codes), self.window):
            part = slice(begin, min(len(codes), begin + self.window))
            for candidate, answer in zip(self.candidates, answers, strict=True):
                if answer is not None:
                    whole = len(answer) == part.stop - part.start
                    candidate.tracker.update(
                        codes[part], answer if whole else answer.some(part), self.label_table, speaks_for
                    )
            until = self.n_rows + part.stop - part.start
            while (row := (self.n_rows // self.every + 1) * self.every) <= until:
                self.n_rows = row
                self._record(until - row)
            self.n_rows = until

    def finish(self) -> None:
        """Teach what labels are still on their way, and note the last measures."""
        self._teach(self.n_rows)
        if self.n_rows > self._last_record:
            self._record()

    def _parts(self, chunk: Chunk) -> Iterable[Chunk]:
        """The chunk, cut where the warm-up ends."""
        cut = self.warmup - self.n_rows
        return [chunk.take(0, cut), chunk.take(cut, len(chunk))] if 0 < cut < len(chunk) else [chunk]

    def _teach(self, until: int) -> None:
        """Teach the rows whose labels have arrived by now."""
        while self._waiting and self.n_learned < until:
            chunk = self._waiting[0]
            n_arrived = until - self.n_learned
            if n_arrived < len(chunk):
                chunk, self._waiting[0] = chunk.take(0, n_arrived), chunk.take(n_arrived, len(chunk))
            else:
                self._waiting.popleft()
            for candidate in self.candidates:
                candidate.train(chunk)
                self.events += [
                    Event(
                        row, "drift", "the model found that an older memory no longer helps", candidate.name
                    )
                    for row in candidate.new_drifts()
                ]
            self.n_learned += len(chunk)

    def _record(self, ago: int = 0) -> None:
        """Keep the measures as they were so many rows ago, which is less than a window."""
        now = time.perf_counter()
        if now - self._memory[0] > _MEMORY_SECONDS:
            self._memory = now, resident_megabytes()
        memory = self._memory[1]
        self._last_record = self.n_rows
        for candidate in self.candidates:
            candidate.carried_by.take(self.n_rows, candidate.model)
        thinned = [
            candidate.tracker.record(self.n_rows, ago, self.label_table, candidate.rows_per_second, memory)
            for candidate in self.candidates
            if candidate.tracker.n_scored
        ]
        if any(thinned):
            self.every *= 2

    def result(self, stream: RowStream | None = None) -> PrequentialResult:
        """What was measured so far."""
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
    progress: Callable[[PrequentialEvaluator], None] | None = None,
) -> PrequentialResult:
    """Test-then-train: each chunk is predicted by every model before the models learn it.

    Parameters
    ----------
    models : learner or mapping of str to learner
        The models; they are taught.
    stream : stream, array-like, table, path or iterable
        The rows: a stream of :mod:`steelyard.streams` or anything that gives chunks; an array or data frame
        with its labels in ``y``; a data frame or the path of a file with its labels in the column
        ``target``; or pairs of a mapping and a label, such as a data set of river.
    y : array-like of shape (n_rows,), optional
        The labels of rows in an array or data frame.
    target : str, optional
        The column of labels in a data frame or file.
    chunk : int, optional
        Rows that are tested before the first of them is learned, so labels come up to so many rows late;
        100 by default. A stream has chunks of its own.
    metrics : sequence of str
        Out of sensitivity, specificity, g_mean, macro_recall, f1, rs (sensitivity over specificity),
        accuracy, auc, pmauc and imbalance_ratio. With more than two classes and no positive one,
        sensitivity and f1 are means over the classes, and specificity, rs and auc are nan; pmauc, which is of
        all pairs of classes, is nan for more than 30.
    window : int, default=1000
        Rows over which the running measures are taken.
    warmup : int, default=0
        So many rows are learned before any are tested. Rows that come before a model knows any class are
        not counted for it.
    delay : int, default=0
        A label arrives when so many further rows have come: 0 is at once, before the next row.
    positive : label, optional
        The positive class; by default the rarer of two, as of all rows. It is settled when measures are
        read, so the first rows decide nothing. With more classes and none named, all count alike.
    every : int, optional
        Rows from one line of the table to the next; half a window by default. A long stream has its older
        lines thinned out, so memory stays bounded.
    seed : int, default=0
        For the bands and the sample of scores.
    progress : callable, optional
        Called with the race after every chunk.

    Returns
    -------
    PrequentialResult
        A table of measures over time, totals, samples of scores, and the models.

    Raises
    ------
    SteelyardError
        Whatever went wrong in the stream; ``error.result`` holds what was measured before.

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
    )
    chunks = as_stream(stream, y, target=target, chunk=chunk)
    known = chunks if isinstance(chunks, RowStream) else None
    try:
        evaluator.run(chunks, progress)
    except SteelyardError as error:
        error.result = evaluator.result(known)  # type: ignore[attr-defined]
        raise
    return evaluator.result(known)


def resident_megabytes() -> float:
    """Memory that this process has now; nan where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return float("nan")
    return pages * 4096 / 2**20


def _check_options(
    models: Mapping[str, Any], metrics: Sequence[str], *, learns: bool, **numbers: int | None
) -> None:
    if not models:
        raise ParameterError("at least one model is needed; got none.", source="prequential")
    batch_only = [name for name, model in models.items() if not hasattr(model, "partial_fit")]
    if batch_only and learns:
        raise ParameterError(
            f"the model {batch_only[0]!r} learns whole tables only (no partial_fit()), so "
            "it cannot follow a stream.",
            source="prequential",
            hint="fit() it on a table instead; `steelyard fit` does so",
        )
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ParameterError(
            f"metrics must be out of {', '.join(METRICS)}; got {unknown[0]!r}.", source="prequential"
        )
    for name, number in numbers.items():
        least = 1 if name in {"window", "every"} else 0
        if number is not None and not Integer(least).accepts(number):
            raise ParameterError(
                f"{name} must be {Integer(least).description}; got {number!r}.", source="prequential"
            )
