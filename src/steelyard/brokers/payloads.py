"""Messages as rows: payloads in JSON, CSV and Arrow, and topics as tables for ``steelyard stream``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from steelyard.brokers.interface import Address, Message, open_source
from steelyard.exceptions import DataError, SteelyardError
from steelyard.service import rows as wire
from steelyard.tables.columns import ColumnBatch, Columns, Place
from steelyard.tables.source import TableSource

_ARROW_STREAM = b"\xff\xff\xff\xff"
_MAX_ROWS = 200_000  # maximum number of rows in a message
_READ_SECONDS = 0.2
_MAX_MESSAGES = 1_000
_LIMITS = wire.Limits(rows=_MAX_ROWS)


class BadMessage(NamedTuple):
    """An unusable message and the reason."""

    message: Message
    reason: str

    @classmethod
    def of(cls, message: Message, error: SteelyardError) -> BadMessage:
        """Return an unusable message with the text of ``error``, without the prefix "the request"."""
        return cls(message, error.summary.removeprefix("the request").lstrip(":, "))


class ParsedMessages(NamedTuple):
    """Rows of messages that all have the same format."""

    messages: list[Message]
    counts: list[int]  # number of rows in each message
    batch: ColumnBatch

    def ids(self) -> list[str]:
        """Return the stable id of each row: the message id, and the row number if there are several rows."""
        return [
            message.id if count == 1 else f"{message.id}/{row}"
            for message, count in zip(self.messages, self.counts, strict=True)
            for row in range(count)
        ]


def parse(
    messages: Sequence[Message],
    text_columns: Sequence[str],
    header: str | None = None,
    required: Sequence[str] = (),
) -> tuple[list[ParsedMessages], list[BadMessage]]:
    """Parse messages into rows; return the parsed messages and the unusable messages.

    ``header`` names the columns of CSV messages. Without it, each CSV message starts with a header line. A
    message that lacks a required column is unusable.
    """
    parsed: list[ParsedMessages] = []
    bad: list[BadMessage] = []
    for kind, group in groupby(messages, key=lambda message: _payload_kind(message.payload)):
        found: list[tuple[Message, Any]] = []
        for message in group:
            try:
                found.append((message, _rows_of(message.payload, kind, text_columns, header, required)))
            except DataError as error:
                bad.append(BadMessage.of(message, error))
        if not found:
            continue
        kept, parts = [message for message, _ in found], [rows for _, rows in found]
        try:
            if kind == "json":
                batch = wire.from_records([row for rows in parts for row in rows], text_columns, _LIMITS)
            else:
                batch = wire.joined(parts)
        except DataError as error:  # one message is bad, so each message is parsed separately
            if len(kept) == 1:
                bad.append(BadMessage.of(kept[0], error))
                continue
            for message in kept:
                ones, bad_ones = parse([message], text_columns, header, required)
                parsed += ones
                bad += bad_ones
        else:
            counts = [len(rows) if kind == "json" else rows.n_rows for rows in parts]
            parsed.append(ParsedMessages(kept, counts, batch))
    return parsed, bad


def _payload_kind(payload: bytes) -> str:
    if payload.startswith(_ARROW_STREAM):
        return "arrow"
    return "json" if payload.lstrip()[:1] in {b"{", b"["} else "csv"


def _rows_of(
    payload: bytes, kind: str, text_columns: Sequence[str], header: str | None, required: Sequence[str]
) -> Any:
    """Return the rows of a message: a list of records for JSON, otherwise a batch."""
    rows: Any
    if kind == "json":
        value = wire.decoded_json(payload, _LIMITS)
        rows = value.get("rows", value) if isinstance(value, dict) else value
        rows = rows if isinstance(rows, list) else [value]
        if not rows or len(rows) > _MAX_ROWS or not all(isinstance(row, dict) for row in rows):
            raise DataError(f"expected 1 to {_MAX_ROWS:,} rows as JSON objects.")
        names = set().union(*rows) if required else set()
    else:
        payload = payload if header is None or kind == "arrow" else header.encode() + b"\n" + payload
        rows = wire.from_body(payload, kind, text_columns, limits=_LIMITS)
        names = set(rows.columns)
    absent = next((name for name in required if name not in names), None)
    if absent is not None:
        raise DataError(f"the column {absent!r} is missing.")
    return rows


class TopicTable(TableSource):
    """Reader of a topic with the same interface as the readers of tables.

    The columns are those of the first messages. With ``until=end``, reading ends at the last message that the
    topic had when it was opened.
    """

    live = True

    def __init__(self, address: Address) -> None:
        super().__init__(Place(str(address)))
        self.bytes_source = self  # TableStream calls bytes_source.stop() to end a live feed
        self._address, self._source = address, open_source(address)
        self._stopped = threading.Event()
        self._ends = address.options.get("until") == "end"
        try:
            self._n_left = self._count() if self._ends else None
            self._first, sample = self._read_first()
        except BaseException:
            self._source.close()
            raise
        self._sample = sample.columns
        self.names = list(self._sample)

    def _count(self) -> int:
        """Return the number of messages until the end of the topic."""
        count = self._source.lag()
        if count is None:
            raise DataError("this broker does not report the end of a topic.", source=self.place.source)
        return count

    def _read_first(self) -> tuple[list[Message], ColumnBatch]:
        """Read until a message can be parsed; return all messages read and the parsed rows."""
        first: list[Message] = []
        while messages := self._read():
            first += messages
            parsed, bad = parse(messages, (), self._address.options.get("columns"))
            if parsed:
                return first, wire.joined([one.batch for one in parsed])
            if len(first) >= _MAX_MESSAGES:
                raise DataError(bad[0].reason, source=f"{self.place.source}, message {bad[0].message.id}")
        raise DataError("there are no rows.", source=self.place.source)

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        return {
            name: "text" if name in columns.categorical or self._sample[name].dtype == object else "number"
            for name in wanted
        }

    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        texts = [name for name in wanted if kinds[name] == "text"]
        messages = self._first
        while messages:
            parsed, bad = parse(messages, texts, self._address.options.get("columns"))
            for one in parsed:
                yield _with_columns(one.batch, wanted, texts, self.place)
            for bad_one in bad:
                source = f"{self.place.source}, message {bad_one.message.id}"
                self.reject(DataError(bad_one.reason, source=source))
            messages = self._read()

    def _read(self) -> list[Message]:
        while not self._stopped.is_set() and (self._n_left is None or self._n_left > 0):
            limit = _MAX_MESSAGES if self._n_left is None else min(self._n_left, _MAX_MESSAGES)
            messages = self._source.read(limit, _READ_SECONDS)
            if messages:
                self._source.acknowledge(messages)
                self._n_left = None if self._n_left is None else self._n_left - len(messages)
                return messages
        return []

    def fingerprint(self) -> str | None:
        """Return None, because a topic is not a file."""
        return None

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self._source.close()


def _with_columns(
    batch: ColumnBatch, wanted: Sequence[str], texts: Sequence[str], place: Place
) -> ColumnBatch:
    """Return the wanted columns, converted to their kinds. Absent columns are filled with missing values."""
    for name in wanted:
        values = batch.columns.get(name)
        if values is not None and values.dtype == object and name not in texts:
            raise DataError(
                f"column {name!r} had numbers and now has text, such as {values[0]!r}.",
                source=place.source,
                hint=f"--categorical {name}",
            )
    return wire.with_all_columns(batch, {name: name in texts for name in wanted})
