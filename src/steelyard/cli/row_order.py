"""Order of rows and labels in prequential runs: shuffled rows, and labels delayed by a time span."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.streams.chunks import Chunk
    from steelyard.tables import TableStream

shuffle_option = click.option(
    "--shuffle",
    type=click.IntRange(0),
    metavar="SEED",
    help="Read all rows into memory and shuffle them, for tables sorted by label.",
)


def ordered_chunks(stream: TableStream, shuffle: int | None) -> Iterable[Chunk]:
    """Return the chunks of a table, shuffled if a seed is given."""
    return stream if shuffle is None else _shuffled(stream, shuffle)


def _shuffled(stream: TableStream, seed: int) -> Iterator[Chunk]:
    import numpy as np

    chunks = list(stream)
    rows = _joined(chunks)
    unlabelled = [chunk.unlabelled for chunk in chunks if chunk.unlabelled is not None]
    rows = rows.select(np.random.default_rng(seed).permutation(len(rows)))
    for begin in range(0, len(rows), stream.chunk):
        part = rows.take(begin, begin + stream.chunk)
        if unlabelled and begin + stream.chunk >= len(rows):
            part.unlabelled = _joined(unlabelled)
        yield part


def _joined(chunks: list[Chunk]) -> Chunk:
    """Return several chunks of a table as one chunk."""
    from steelyard.streams.chunks import concatenated
    from steelyard.tables.frames import concat_tables

    rows = concatenated(chunks)
    if any(chunk.columns is not None for chunk in chunks):
        parts = [chunk.X if chunk.columns is None else chunk.columns for chunk in chunks]
        rows.columns = concat_tables(parts)
    return rows


def parse_seconds(text: str) -> float | None:
    """Return a time span such as 3d or 12h in seconds, or None for another text."""
    from steelyard.windowing.sliding import window_size

    try:
        size = window_size(text)
    except ValueError:
        return None
    return None if isinstance(size, int) else size.total_seconds()


def parse_delay(text: str) -> tuple[int, float | None]:
    """Return the delay of labels in rows, and in seconds if it is a time span such as 3d or 12h."""
    if text.isdecimal():
        return int(text), None
    seconds = parse_seconds(text)
    if seconds is None:
        raise click.UsageError(
            f"--delay expects a number of rows or a time span such as 3d or 12h; got {text!r}."
        )
    return 0, seconds


def delayed_by_time(
    chunks: Iterable[Chunk], evaluator: PrequentialEvaluator, seconds: float
) -> Iterator[Chunk]:
    """Yield the chunks and set ``evaluator.delay`` to the number of rows whose labels have not arrived.

    Labels arrive in the order of the rows, each ``seconds`` after its row. At the end ``evaluator.delay`` is
    set to the largest number of rows that waited for their labels at the same time.
    """
    waiting: deque[float] = deque()
    longest = 0
    for chunk in chunks:
        assert chunk.time is not None  # the command requires --time
        if not len(chunk):
            yield chunk  # no row of this chunk has a label
            continue
        waiting.extend(chunk.time.tolist())
        while waiting and waiting[0] <= chunk.time[-1] - seconds:
            waiting.popleft()
        evaluator.delay = len(waiting)
        longest = max(longest, len(waiting))
        yield chunk
    evaluator.delay = longest
