"""Test, then train: every row is predicted before its label is learned, for several models at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.base import encode_labels
from steelyard.evaluation.results import PrequentialResult
from steelyard.evaluation.tracking import METRICS, Tracker
from steelyard.exceptions import ParameterError, SteelyardError
from steelyard.params import Integer
from steelyard.streams.answers import ask, is_ready, teach
from steelyard.streams.chunks import Chunk, RowStream

__all__ = ["Race", "prequential"]

_MAX_RECORDS = 2000  # of each model; with more, every other one is let go
DEFAULT_METRICS = ("sensitivity", "specificity", "g_mean", "f1", "rs", "auc", "imbalance_ratio")


class Contender:
    """One model of the race, with its measures and the time it took."""

    def __init__(self, name: str, model: Any, metrics: tuple[str, ...], window: int, seed: int) -> None:
        self.name = name
        self.model = model
        self.tracker = Tracker(metrics, window, seed)
        self.seconds = 0.0
        self.n_learned = 0
        self.records: list[dict[str, Any]] = []

    def test(self, chunk: Chunk, positive: Any) -> None:
        """Predict rows and count; a model that has learned nothing yet has no answer."""
        if not is_ready(self.model):
            return
        begin = time.perf_counter()
        answers = ask(self.model, chunk)
        self.seconds += time.perf_counter() - begin
        answered = (
            np.array([label is not None for label in answers.labels])
            if answers.labels.dtype == object
            else None
        )
        if answered is not None and not answered.all():
            chunk, answers = _some(chunk, answered), _some_answers(answers, answered)
        if len(chunk):
            self.tracker.update(chunk.y, answers, positive)

    def train(self, chunk: Chunk) -> None:
        """Learn rows."""
        begin = time.perf_counter()
        teach(self.model, chunk)
        self.seconds += time.perf_counter() - begin
        self.n_learned += len(chunk)


class Race:
    """Several models on one stream; :func:`prequential` runs it to the end.

    Parameters
    ----------
    models : mapping of str to learner
        The models by name. They are taught, not copied.
    metrics, window, warmup, delay, positive, every, seed
        As for :func:`prequential`.
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
    ) -> None:
        _check_options(models, metrics, window=window, warmup=warmup, delay=delay, every=every, seed=seed)
        self.window, self.warmup, self.delay = window, warmup, delay
        self.positive = positive
        self._positive_given = positive is not None
        self.every = every or max(1, window // 2)
        self.contenders = [
            Contender(name, model, tuple(metrics), window, seed) for name, model in models.items()
        ]
        self.metrics = tuple(metrics)
        self.n_rows = 0
        self.n_learned = 0
        self.labels: dict[Any, int] = {}
        self.started = time.perf_counter()
        self._waiting: deque[Chunk] = deque()
        self._next_record = self.every
        self._last_record = 0

    def set_positive(self, label: Any) -> None:
        """Say which class is the positive one, before the first row."""
        self.positive, self._positive_given = label, label is not None

    def step(self, chunk: Chunk) -> None:
        """Test all models on these rows, then teach them what labels have arrived."""
        for part in self._parts(chunk):
            self._learn_about_labels(part)
            self.n_rows += len(part)
            if self.n_rows > self.warmup:
                for contender in self.contenders:
                    contender.test(part, self.positive)
            self._waiting.append(part)
            self._teach(self.n_rows - self.delay)
        if self.n_rows >= self._next_record:
            self._record()
            self._next_record = (self.n_rows // self.every + 1) * self.every

    def finish(self) -> None:
        """Teach what labels are still on their way, and note the last measures."""
        self._teach(self.n_rows)
        if self.n_rows > self._last_record:
            self._record()

    def _parts(self, chunk: Chunk) -> Iterable[Chunk]:
        """The chunk, cut where the warm-up ends."""
        cut = self.warmup - self.n_rows
        return [chunk.take(0, cut), chunk.take(cut, len(chunk))] if 0 < cut < len(chunk) else [chunk]

    def _learn_about_labels(self, chunk: Chunk) -> None:
        labels, codes = encode_labels(chunk.y)
        for label, n in zip(labels, np.bincount(codes).tolist(), strict=True):
            self.labels[label] = self.labels.get(label, 0) + n
        if not self._positive_given:
            # The rarer of two; with more classes they all count alike.
            if len(self.labels) == 2 and self.positive is None:
                self.positive = min(self.labels, key=self.labels.__getitem__)
            elif len(self.labels) > 2:
                self.positive = None

    def _teach(self, until: int) -> None:
        """Teach the rows whose labels have arrived by now."""
        while self._waiting and self.n_learned < until:
            chunk = self._waiting[0]
            n_arrived = until - self.n_learned
            if n_arrived < len(chunk):
                chunk, self._waiting[0] = chunk.take(0, n_arrived), chunk.take(n_arrived, len(chunk))
            else:
                self._waiting.popleft()
            for contender in self.contenders:
                contender.train(chunk)
            self.n_learned += len(chunk)

    def _record(self) -> None:
        memory = resident_megabytes()
        self._last_record = self.n_rows
        for contender in self.contenders:
            if not contender.tracker.n_scored:
                continue
            counts = contender.tracker.window_counts()
            contender.records.append(
                {
                    "row": self.n_rows,
                    "model": contender.name,
                    **contender.tracker.running(),
                    "rows_per_second": contender.n_learned / max(contender.seconds, 1e-9),
                    "memory_mb": memory,
                    "class_counts": counts,
                }
            )
            if len(contender.records) > _MAX_RECORDS:
                contender.records = contender.records[1::2]
                self.every *= 1 if contender is not self.contenders[-1] else 2

    def result(self, stream: RowStream | None = None) -> PrequentialResult:
        """What was measured so far."""
        return PrequentialResult(self, stream)


def prequential(
    models: Any,
    stream: Iterable[Chunk],
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    window: int = 1000,
    warmup: int = 0,
    delay: int = 0,
    positive: Any = None,
    every: int | None = None,
    seed: int = 0,
    progress: Callable[[Race], None] | None = None,
) -> PrequentialResult:
    """Test-then-train: each chunk is predicted by every model before the models learn it.

    Parameters
    ----------
    models : learner or mapping of str to learner
        The models; they are taught.
    stream : iterable of Chunk
        The rows.
    metrics : sequence of str
        Out of sensitivity, specificity, g_mean, f1, rs (sensitivity over specificity), accuracy, auc,
        pmauc and imbalance_ratio. With more than two classes and no positive one, sensitivity and f1 are
        means over the classes, and specificity, rs and auc are nan.
    window : int, default=1000
        Rows over which the running measures are taken.
    warmup : int, default=0
        So many rows are learned before any are tested. Rows that come before a model knows any class are
        not counted for it.
    delay : int, default=0
        A label arrives when so many further rows have come: 0 is at once, before the next row.
    positive : label, optional
        The positive class; by default the rarer of two when both have come.
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
    race = Race(
        models if isinstance(models, Mapping) else {type(models).__name__: models},
        metrics=metrics,
        window=window,
        warmup=warmup,
        delay=delay,
        positive=positive,
        every=every,
        seed=seed,
    )
    known = stream if isinstance(stream, RowStream) else None
    try:
        for chunk in stream:
            race.step(chunk)
            if progress is not None:
                progress(race)
    except SteelyardError as error:
        race.finish()
        error.result = race.result(known)  # type: ignore[attr-defined]
        raise
    race.finish()
    return race.result(known)


def resident_megabytes() -> float:
    """Memory that this process has now; nan where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return float("nan")
    return pages * 4096 / 2**20


def _some(chunk: Chunk, mask: Any) -> Chunk:
    return Chunk(chunk.X[mask], chunk.y[mask], chunk.first_row)


def _some_answers(answers: Any, mask: Any) -> Any:
    labels = np.array(answers.labels[mask].tolist())
    return type(answers)(labels, answers.classes, answers.scores[mask])


def _check_options(models: Mapping[str, Any], metrics: Sequence[str], **numbers: int | None) -> None:
    if not models:
        raise ParameterError("at least one model is needed; got none.", who="prequential")
    batch_only = [name for name, model in models.items() if not hasattr(model, "partial_fit")]
    if batch_only:
        raise ParameterError(
            f"the model {batch_only[0]!r} learns whole tables only (no partial_fit()), so "
            "it cannot follow a stream.",
            who="prequential",
            hint="fit() it on a table instead; `steelyard fit` does so",
        )
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ParameterError(
            f"metrics must be out of {', '.join(METRICS)}; got {unknown[0]!r}.", who="prequential"
        )
    for name, number in numbers.items():
        least = 1 if name in {"window", "every"} else 0
        if number is not None and not Integer(least).accepts(number):
            raise ParameterError(
                f"{name} must be {Integer(least).description}; got {number!r}.", who="prequential"
            )
