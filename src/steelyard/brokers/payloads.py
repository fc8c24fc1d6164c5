"""Parser of message payloads: JSON, CSV and Arrow, detected by their first bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from steelyard.brokers.interface import Message
from steelyard.exceptions import DataError, SteelyardError
from steelyard.service import rows as wire
from steelyard.tables.columns import ColumnBatch

_ARROW_STREAM = b"\xff\xff\xff\xff"
_MAX_ROWS = 200_000  # maximum number of rows in a message
_LIMITS = wire.RequestLimits(rows=_MAX_ROWS)


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


def payload_kind(payload: bytes) -> str:
    """Return the format of a payload: "arrow", "json" or "csv"."""
    if payload.startswith(_ARROW_STREAM):
        return "arrow"
    return "json" if payload.lstrip()[:1] in {b"{", b"["} else "csv"


def parse(
    messages: Sequence[Message],
    text_columns: Sequence[str],
    header: str | None = None,
    required: Sequence[str] = (),
) -> tuple[list[ParsedMessages], list[BadMessage]]:
    """Parse messages into rows; return the parsed messages and the unusable messages.

    ``header`` names the columns of CSV messages. Without it, each CSV message starts with a header line.

    A message that lacks a required column is unusable. This is checked before messages are joined, because a
    joined batch has missing values where one of its messages lacks a column.
    """
    parsed: list[ParsedMessages] = []
    bad: list[BadMessage] = []
    first_line = None if header is None else header.encode() + b"\n"
    for kind, group in groupby(messages, key=lambda message: payload_kind(message.payload)):
        same = list(group)
        if kind == "json":
            found = list(_json(same, bad))
        else:
            found = list(_tables(same, bad, kind, text_columns, first_line))
        found = [entry for entry in found if _has_columns(entry, required, bad)]
        if not found:
            continue
        kept, counts = [message for message, _, _ in found], [count for _, count, _ in found]
        try:
            batch = _joined(kind, [rows for _, _, rows in found], text_columns)
        except DataError as error:  # one message is bad, so each message is parsed separately
            if len(kept) == 1:
                bad.append(BadMessage.of(kept[0], error))
                continue
            for message in kept:
                ones, bad_ones = parse([message], text_columns, header, required)
                parsed += ones
                bad += bad_ones
        else:
            parsed.append(ParsedMessages(kept, counts, batch))
    return parsed, bad


def _has_columns(entry: tuple[Message, int, Any], required: Sequence[str], bad: list[BadMessage]) -> bool:
    """Return whether a message has the required columns; if not, add it to the bad messages."""
    message, _, rows = entry
    if not required:
        return True
    names = rows.columns if isinstance(rows, ColumnBatch) else set().union(*rows)
    absent = next((name for name in required if name not in names), None)
    if absent is not None:
        bad.append(BadMessage(message, f"the column {absent!r} is missing."))
    return absent is None


def _joined(kind: str, parts: Sequence[Any], text_columns: Sequence[str]) -> ColumnBatch:
    if kind == "json":
        return wire.from_records([record for rows in parts for record in rows], text_columns, _LIMITS)
    return wire.joined(parts)


def _json(messages: Sequence[Message], bad: list[BadMessage]) -> Iterator[tuple[Message, int, Any]]:
    for message in messages:
        try:
            value = wire.decoded_json(message.payload, _LIMITS)
        except DataError as error:
            bad.append(BadMessage.of(message, error))
            continue
        rows = value.get("rows", value) if isinstance(value, dict) else value
        rows = rows if isinstance(rows, list) else [value]
        if not rows or len(rows) > _MAX_ROWS or not all(isinstance(row, dict) for row in rows):
            bad.append(BadMessage(message, f"expected 1 to {_MAX_ROWS:,} rows as JSON objects."))
            continue
        yield message, len(rows), rows


def _tables(
    messages: Sequence[Message],
    bad: list[BadMessage],
    kind: str,
    text_columns: Sequence[str],
    first_line: bytes | None,
) -> Iterator[tuple[Message, int, Any]]:
    for message in messages:
        payload = message.payload
        if kind == "csv" and first_line is not None:
            payload = first_line + payload
        try:
            batch = wire.from_body(payload, kind, text_columns, limits=_LIMITS)
        except DataError as error:
            bad.append(BadMessage.of(message, error))
            continue
        yield message, batch.n_rows, batch
