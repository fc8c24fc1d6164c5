"""Parser of message payloads: JSON, CSV and Arrow, detected by their first bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from steelyard.brokers.interface import Message
from steelyard.exceptions import DataError, SteelyardError
from steelyard.service import rows as wire
from steelyard.tables.columns import ColumnBatch

_ARROW_STREAM = b"\xff\xff\xff\xff"
_MAX_ROWS = 200_000  # maximum number of rows in a message
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

    ``header`` names the columns of CSV messages. Without it, each CSV message starts with a header line.

    A message that lacks a required column is unusable. This is checked before messages are joined, because a
    joined batch has missing values where one of its messages lacks a column.
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
