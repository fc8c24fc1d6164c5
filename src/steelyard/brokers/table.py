"""Topics as tables, for ``steelyard stream``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

from steelyard.brokers.interface import Address, Message, open_source
from steelyard.brokers.payloads import parse
from steelyard.exceptions import DataError
from steelyard.service import rows as wire
from steelyard.tables.columns import ColumnBatch, Columns, Place
from steelyard.tables.source import TableSource

_READ_SECONDS = 0.2
_MAX_MESSAGES = 1_000


class TopicTable(TableSource):
    """Reader of a topic with the same interface as the readers of tables.

    The columns are those of the first messages. The topic is read from its start, or with ``start=end`` from
    now on. Reading ends when the reader is stopped; with ``until=end``, it ends at the last message that the
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
                self.bad_rows.handle(DataError(bad_one.reason, source=source))
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
