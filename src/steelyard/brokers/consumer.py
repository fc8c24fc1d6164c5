"""Topics of a served model, and the consumer that reads messages and passes them to the writer.

The transaction that saves the rows also saves the position, where the topic is opened again after an error.
Predictions and dead letters are sent before the commit; a crash may repeat them with the same ids.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from steelyard.brokers.interface import Address, BrokerError, Message, Sink, Source, open_sink, open_source
from steelyard.brokers.payloads import BadMessage, ParsedMessages, parse
from steelyard.exceptions import DataError, ParameterError, SteelyardError
from steelyard.service import rows as wire
from steelyard.service.commands import Consume, Origin
from steelyard.service.errors import Conflict, PositionMoved, QueueFullError, Unavailable
from steelyard.service.model_owner import location
from steelyard.service.published import PublishedModel
from steelyard.service.queue import RequestFuture
from steelyard.service.rows import has_values
from steelyard.service.session import pending_rows
from steelyard.service.spec import Spec
from steelyard.service.stores import PendingRow
from steelyard.service.writer import Writer
from steelyard.streams.predictions import Predictions
from steelyard.tables.columns import ColumnBatch
from steelyard.windowing.sliding import window_size

_log = logging.getLogger("steelyard.service")
_READ_SECONDS = 0.5  # maximum time that a read waits for the first message
_CHECK_SECONDS = 1.0  # interval at which the lag is measured and unused labels are sent
_FIRST_BACKOFF_SECONDS = 0.2
_MAX_BACKOFF_SECONDS = 30.0
_JOIN_SECONDS = 15.0
_BATCH_BYTES = 16 << 20  # approximate maximum size of a batch of messages
_FIRST_MESSAGES = 64  # size of the first batch, because the length of messages is not known yet
_RATE_SECONDS = 10.0  # averaging time of the throughput
# Tables with the topics of a model in its configuration file, and their settings.
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "source": ("address", "batch"),
    "labels": ("address", "wait"),
    "sink": ("address", "only"),
    "dead_letter": ("address",),
}
_MAX_BATCH_ROWS = 100_000
_MAX_UNUSED_LABELS = 1_000
_PAUSE_SECONDS = 0.2  # pause before a retry if the queue is full or too many rows are waiting for labels


Parsed = tuple[list[ParsedMessages], list[BadMessage]]  # usable and unusable messages


@dataclass(frozen=True)
class Feed:
    """Topics of one model."""

    source: Address  # topic that contains the rows
    # Topic that contains labels. They are joined to the rows by the ``id`` column of the model.
    labels: Address | None = None
    sink: Address | None = None  # topic to which predictions are sent
    # Topic to which unusable messages are sent. Without this topic, an unusable message stops the feed.
    dead_letter: Address | None = None
    batch: int = 5_000  # maximum number of messages in one transaction
    # Time that a label waits for its row before the label is sent to the dead-letter topic.
    wait_seconds: float = 86_400.0
    alarms_only: bool = False  # whether to send only predictions of classes other than the most frequent one


def split_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], Feed | None]:
    """Separate the topics from the other settings of a model.

    Addresses may contain credentials, so they are not part of the spec, which is kept in the store and
    returned by the service.
    """
    rest = {name: value for name, value in values.items() if name not in _OPTIONS}
    tables = {name: values[name] for name in _OPTIONS if name in values}
    if not tables:
        return rest, None
    if "source" not in tables:
        raise _error(f"[{next(iter(tables))}] needs a [source] with the address of the rows.")
    addresses = {name: _address(name, table) for name, table in tables.items()}
    batch = tables["source"].get("batch", Feed.batch)
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= _MAX_BATCH_ROWS:
        raise _error(f"batch must be a number of messages up to {_MAX_BATCH_ROWS:,}; got {batch!r}.")
    wait = tables.get("labels", {}).get("wait", "1d")
    size = window_size(wait) if isinstance(wait, str) else None
    if not isinstance(size, timedelta):
        raise _error(f'wait must be a time such as "1d" or "12h"; got {wait!r}.')
    only = tables.get("sink", {}).get("only", "predictions")
    if only not in {"predictions", "alarms"}:
        raise _error(f'only must be "predictions" or "alarms"; got {only!r}.')
    feed = Feed(**addresses, batch=batch, wait_seconds=size.total_seconds(), alarms_only=only == "alarms")
    if feed.labels is not None:
        spec = Spec.from_mapping(rest)
        if spec.id is None or spec.rows == "none":
            raise _error(
                "[labels] needs the setting id, the column by which labels are joined, and stored rows."
            )
    return rest, feed


def _address(name: str, table: Any) -> Address:
    if not isinstance(table, Mapping) or not isinstance(table.get("address"), str):
        raise _error(f"[{name}] needs the address of a topic.")
    unknown = [key for key in table if key not in _OPTIONS[name]]
    if unknown:
        raise _error(f"[{name}] has no setting {unknown[0]!r}; it has {', '.join(_OPTIONS[name])}.")
    return Address.parse(table["address"])


def _error(message: str) -> ParameterError:
    return ParameterError(message, source="the file of the model")


class StoppedError(Exception):
    """Raised when the service is stopping."""


class _Batch(NamedTuple):
    """Messages that are applied in one transaction, or in several transactions if some are refused."""

    messages: list[Message]
    request: Consume | None  # submitted request
    refusal: SteelyardError | None  # reason why there is no request


class Consumer:
    """Thread that consumes one topic of a feed for a model: its "source" or its "labels"."""

    def __init__(self, writer: Writer, model: str, feed: Feed, role: str) -> None:
        self.writer, self.model, self.feed, self.role = writer, model, feed, role
        self.address: Address = getattr(feed, role)
        self.topic = f"{role} {self.address.name}"
        self.state, self.error = "waiting", ""
        self.lag: int | None = None
        self.n_messages = self.n_rows = self.n_dead_letters = 0
        self.rows_per_second = 0.0
        self._measured = (time.monotonic(), 0)
        self._next_check = 0.0
        self._mean_bytes = _BATCH_BYTES / _FIRST_MESSAGES
        self._positions: dict[str, str] = {}
        self._sinks: dict[Address, Sink] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # -- starting and stopping ---------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"steelyard-{self.role}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the current batch and stop; return when the thread has ended."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def describe(self) -> dict[str, Any]:
        """Return state and counts for the API and the web page, without secrets."""
        return {
            "role": self.role,
            "address": str(self.address),
            "state": self.state,
            "error": self.error,
            "lag": self.lag,
            "messages": self.n_messages,
            "rows": self.n_rows,
            "dead_letters": self.n_dead_letters,
            "rows_per_second": round(self.rows_per_second, 1),
        }

    def _run(self) -> None:
        backoff = _FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            if not (self.writer.is_alive and self.writer.leads):
                self.state = "follows"  # the process that holds the write lock consumes the topic
                self._stopping.wait(1.0)
                continue
            n_before = self.n_messages
            try:
                self._consume()
            except StoppedError:
                break
            except PositionMoved:
                pass  # these messages were already consumed, so continue after them
            except Exception as error:  # noqa: BLE001  the thread must survive; it opens the topic again
                reason = str(error) if isinstance(error, SteelyardError) else location(error)
                if reason != self.error:
                    _log.error("%s of model %r: %s", self.topic, self.model, reason)
                self.state, self.error = "retries", reason
                self._close_sinks()
            backoff = _FIRST_BACKOFF_SECONDS if self.n_messages > n_before else backoff
            self._stopping.wait(backoff)
            backoff = min(2 * backoff, _MAX_BACKOFF_SECONDS)
        self._close_sinks()
        self.state = "stopped"

    def _close_sinks(self) -> None:
        sinks, self._sinks = self._sinks, {}
        for sink in sinks.values():
            sink.close()

    # -- consuming a topic --------------------------------------------------------------------------

    def _consume(self) -> None:
        """Consume the topic from the stored position until an error occurs or the service stops."""
        self._positions = self.writer.store.positions(self.model, self.topic)
        with closing(open_source(self.address, self._positions)) as source:
            if self.error:
                _log.warning("%s of model %r is read again", self.topic, self.model)
            if source.missed:
                _log.error("%s of model %r: %s", self.topic, self.model, source.missed)
            self.state, self.error = "reads", source.missed or ""
            batch: _Batch | None = None
            while True:
                if not self.writer.leads:
                    return
                is_stopping = self._stopping.is_set()
                limit = max(1, min(self.feed.batch, int(_BATCH_BYTES / max(self._mean_bytes, 1.0))))
                messages = [] if is_stopping else source.read(limit, _READ_SECONDS)
                parsed = self._parse(messages) if messages else ([], [])
                if batch is not None:
                    self._finish(source, batch)  # the next batch was parsed while this one was committed
                    source.acknowledge(batch.messages)
                    batch = None
                if is_stopping:
                    raise StoppedError
                if messages:
                    batch = self._begin(source, messages, parsed)
                if time.monotonic() >= self._next_check:
                    self._next_check = time.monotonic() + _CHECK_SECONDS
                    self._measure(source)
                    self._send_unused_labels()

    def _parse(self, messages: list[Message]) -> Parsed:
        size = sum(len(message.payload) for message in messages) / len(messages)
        self._mean_bytes = 0.5 * (self._mean_bytes + size)
        published = self.published()
        text_columns, columns = published.text_columns, published.spec.columns
        required = list(columns) if isinstance(columns, Mapping) else []
        if self.role == "labels":
            text_columns, required = [*text_columns, str(published.spec.id)], []
        return parse(messages, text_columns, self.address.options.get("columns"), required)

    def published(self) -> PublishedModel:
        """Return the published model; raise Unavailable if it was deleted."""
        found = self.writer.published.get(self.model)
        if found is None:
            raise Unavailable(
                f"there is no model {self.model!r}.",
                hint="restart the service with the file that describes the model",
            )
        return found

    def _measure(self, source: Source) -> None:
        now, (begin, n_before) = time.monotonic(), self._measured
        self.lag = source.lag()
        rate = (self.n_rows - n_before) / max(now - begin, 1e-9)
        weight = min(1.0, (now - begin) / _RATE_SECONDS) if n_before else 1.0
        self.rows_per_second += weight * (rate - self.rows_per_second)
        self._measured = (now, self.n_rows)

    # -- requests to the writer ---------------------------------------------------------------------

    def request(self, messages: Sequence[Message], **content: Any) -> Consume:
        """Return a request that applies ``content`` and moves the stored position past ``messages``."""
        after = {message.part: message.position for message in messages if message.position}
        moves = {part: (self._positions.get(part), position) for part, position in after.items()}
        last = messages[-1].id if messages else ""
        origin = Origin(None, str(self.address), last)
        return Consume(self.model, self.topic, moves, **content, origin=origin)

    def submit(self, request: Consume) -> Consume:
        """Submit a request to the writer; wait while the queue is full."""
        while True:
            try:
                self.writer.submit(request)
            except QueueFullError:
                self._pause()
            else:
                return request

    def wait_for(self, request: Consume) -> None:
        """Wait until a request is durable; submit it again while too many rows are waiting for labels."""
        while True:
            try:
                response = request.future.result()
            except Conflict as error:
                if isinstance(error, PositionMoved) or not request.remember or not self._is_full(request):
                    raise
                self.state, self.error = "waits for labels", str(error)
                self._pause()
                request = self.submit(replace(request, future=RequestFuture()))
                continue
            self._positions.update({part: position for part, (_, position) in request.moves.items()})
            counted = ("labelled",) if self.role == "labels" else ("learned", "remembered")
            self.n_rows += sum(response[name] for name in counted)
            self.state = "reads"
            return

    def _is_full(self, request: Consume) -> bool:
        limit = min(self.writer.max_remembered, self.published().spec.limit("waiting"))
        return self.writer.waiting_labels().get(self.model, 0) + len(request.remember) > limit

    def _pause(self) -> None:
        if self._stopping.wait(_PAUSE_SECONDS):
            raise StoppedError

    # -- batches of messages ------------------------------------------------------------------------

    def _begin(self, source: Source, messages: list[Message], parsed: Parsed) -> _Batch:
        """Send predictions and dead letters, and submit the rows of messages to the writer."""
        try:
            request = self._request(source, messages, *parsed)
        except (DataError, Conflict) as error:  # a row was refused, and _finish() identifies its message
            return _Batch(messages, None, error)
        return _Batch(messages, self.submit(request), None)

    def _request(
        self, source: Source, messages: list[Message], parsed: list[ParsedMessages], bad: list[BadMessage]
    ) -> Consume:
        if len(parsed) > 1 and len(messages) > 1:  # _finish() splits the batch until each part has one format
            raise DataError("the messages have several formats.")
        content: dict[str, Any] = {"skips_known": not source.has_positions}
        for one in parsed:
            content |= self._labels(one) if self.role == "labels" else self._rows(one)
        self.send_dead_letters(bad)
        return self.request(messages, **content)

    def _finish(self, source: Source, batch: _Batch) -> None:
        """Wait until all messages are durable. Refused messages become dead letters."""
        try:
            if batch.refusal is not None:
                raise batch.refusal
            assert batch.request is not None
            self.wait_for(batch.request)
        except (Unavailable, PositionMoved, BrokerError):
            raise
        except SteelyardError as error:
            n_messages = len(batch.messages)
            if n_messages > 1:  # the halves of a refused batch are applied separately
                half = n_messages // 2
                for part in (batch.messages[:half], batch.messages[half:]):
                    self._finish(source, self._begin(source, part, self._parse(part)))
                return
            self.send_dead_letters([BadMessage.of(batch.messages[0], error)])
            self.wait_for(self.submit(self.request(batch.messages)))
        self.n_messages += len(batch.messages)

    def _labels(self, parsed: ParsedMessages) -> dict[str, Any]:
        """Return the content of a request: the labels by row id."""
        spec, batch = self.published().spec, parsed.batch
        assert spec.id is not None
        for name in (spec.id, spec.target):
            if name not in batch.columns:
                raise DataError(
                    f"labels need the columns {spec.id!r} and {spec.target!r}; this message has no {name!r}."
                )
        ids, labels = wire.identifiers(batch, spec.id), batch.columns[spec.target].tolist()
        if any(row_id is None for row_id in ids) or any(label is None or label != label for label in labels):  # noqa: PLR0124  nan
            raise DataError("an id or a label is missing.")
        return {"labels": {row_id: _plain(label) for row_id, label in zip(ids, labels, strict=True)}}

    def _rows(self, parsed: ParsedMessages) -> dict[str, Any]:
        """Send predictions; return the content of a request: rows to learn, and rows that wait for labels."""
        published, batch = self.published(), parsed.batch
        needs_predictions = published.is_ready and (self.feed.sink or self.feed.labels)
        predictions = published.predict(batch)[0] if needs_predictions else None
        self._send_predictions(published, parsed, predictions)
        target = published.spec.target
        if target not in batch.columns:
            return {"remember": self._pending(published, batch, predictions)}
        is_missing = ~has_values(batch.columns[target])
        if not is_missing.any():
            return {"learn": batch}
        unlabelled = batch.without(target).select(is_missing)
        predictions = None if predictions is None else predictions.take(is_missing)
        waiting = self._pending(published, unlabelled, predictions)
        learn = None if is_missing.all() else batch.select(~is_missing)
        return {"learn": learn, "remember": waiting}

    def _pending(
        self, published: PublishedModel, batch: ColumnBatch, predictions: Predictions | None
    ) -> list[PendingRow]:
        if self.feed.labels is None:
            if self.feed.sink is None:
                raise DataError(
                    f"the column {published.spec.target!r} is missing.",
                    hint="rows without labels need a [labels] topic or a [sink] topic",
                )
            return []  # without a label topic, rows are only predicted
        if published.spec.id not in batch.columns:
            raise DataError(f"a row without a label needs the id column {published.spec.id!r}.")
        return pending_rows(published.spec, batch, predictions, self.writer.clock())

    def _send_predictions(
        self, published: PublishedModel, parsed: ParsedMessages, predictions: Predictions | None
    ) -> None:
        feed = self.feed
        if feed.sink is None or predictions is None:
            return
        usual = published.most_frequent_class if feed.alarms_only else None
        labels, scores = predictions.labels.tolist(), predictions.scores.tolist()
        classes = [str(label) for label in predictions.classes]
        column = published.spec.id if published.spec.id in parsed.batch.columns else None
        row_ids = wire.texts(parsed.batch, column)
        outgoing = []
        for row, name in enumerate(parsed.ids()):
            if feed.alarms_only and str(labels[row]) == usual:
                continue
            content = {
                "id": name,
                "row": row_ids[row],
                "label": labels[row],
                "scores": dict(zip(classes, scores[row], strict=True)),
                "model": published.name,
                "version": published.version,
            }
            outgoing.append((name, msgspec.json.encode(content)))
        self.send(feed.sink, outgoing)

    # -- sending messages --------------------------------------------------------------------------------

    def send(self, address: Address | None, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send messages to a topic of the feed; connect if necessary."""
        if address is None or not messages:
            return
        if address not in self._sinks:
            self._sinks[address] = open_sink(address)
        self._sinks[address].send(messages)

    def send_dead_letters(self, bad: Sequence[BadMessage]) -> None:
        """Send unusable messages to the dead-letter topic; raise DataError if there is none."""
        if not bad:
            return
        if self.feed.dead_letter is None:
            first = bad[0]
            raise DataError(
                f"message {first.message.id} cannot be used: {first.reason} Later messages are not read.",
                source=str(self.address),
                hint="a [dead_letter] topic lets the feed continue without such messages",
            )
        letters = []
        for message, reason in bad:
            text = message.payload.decode("utf-8", errors="backslashreplace")
            letter = {"id": message.id, "topic": str(self.address), "reason": reason, "payload": text}
            letters.append((f"{message.id}/dead", msgspec.json.encode(letter)))
        self.send(self.feed.dead_letter, letters)
        self.n_dead_letters += len(letters)
        template = "%s of model %r: number of messages sent to the dead-letter topic: %d; the first is %s"
        _log.warning(template, self.topic, self.model, len(letters), bad[0].message.id)

    def _send_unused_labels(self) -> None:
        """Send labels that were refused or have waited too long for their rows to the dead-letter topic."""
        if self.role != "labels" or self.feed.dead_letter is None:
            return
        before = self.writer.clock() - self.feed.wait_seconds
        unused = self.writer.store.unused_labels(self.model, before, _MAX_UNUSED_LABELS)
        if not unused:
            return
        bad = [
            BadMessage(
                Message(msgspec.json.encode({"id": one.id, "label": one.label}), f"{self.topic}/{one.id}"),
                one.reason or "no row with this id has arrived",
            )
            for one in unused
        ]
        self.send_dead_letters(bad)
        self.wait_for(self.submit(self.request([], unused=[one.id for one in unused])))


def _plain(label: Any) -> Any:
    return int(label) if isinstance(label, float) and label.is_integer() else label


def consumers_of(writer: Writer, feeds: dict[str, Feed]) -> list[Consumer]:
    return [
        Consumer(writer, model, feed, role)
        for model, feed in feeds.items()
        for role in ("source", "labels")
        if getattr(feed, role) is not None
    ]
