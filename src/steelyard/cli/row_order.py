"""Order of rows in prequential runs: shuffled rows, rows sorted by label, labels delayed by a time span."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.streams.chunks import Chunk
    from steelyard.tables import TableStream

__all__ = ["delayed_by_time", "ordered_chunks", "parse_delay", "shuffle_option"]

_MIN_EXPECTED_CHANGES = 20  # shorter tables are not checked
_SORTED_RATIO = 0.05  # rows are sorted if labels change less often than this fraction of the expected changes

shuffle_option = click.option(
    "--shuffle",
    type=click.IntRange(0),
    metavar="SEED",
    help="Read all rows into memory and shuffle them, for tables sorted by label.",
)


def ordered_chunks(stream: TableStream, shuffle: int | None) -> Iterable[Chunk]:
    """Return the chunks of a table, shuffled with a seed, or checked for rows sorted by label."""
    return _checked(stream) if shuffle is None else _shuffled(stream, shuffle)


def _shuffled(stream: TableStream, seed: int) -> Iterator[Chunk]:
    import numpy as np

    from steelyard.streams.chunks import Chunk, padded
    from steelyard.tables.frames import concat_tables

    chunks = list(stream)
    last = chunks[-1]
    X = np.concatenate([padded(chunk.X, last.X.shape[1]) for chunk in chunks])
    y = np.concatenate([chunk.y for chunk in chunks])
    order = np.random.default_rng(seed).permutation(len(y))
    shuffled = Chunk(
        X[order],
        y[order],
        fixed=None if last.fixed is None else np.concatenate([chunk.fixed for chunk in chunks])[order],
        codes=None if last.codes is None else np.concatenate([chunk.codes for chunk in chunks])[order],
        table=last.table,
        columns=None if last.columns is None else concat_tables([chunk.columns for chunk in chunks]),
    )
    shuffled.columns = shuffled.columns_at(order)
    for begin in range(0, len(shuffled), stream.chunk):
        yield shuffled.take(begin, begin + stream.chunk)


def _checked(stream: TableStream) -> Iterator[Chunk]:
    """Yield the chunks and add a notice at the end if the rows are sorted by label."""
    import numpy as np

    counts, n_changes, previous = np.zeros(0), 0, None
    for chunk in stream:
        codes = chunk.codes
        assert codes is not None  # the table has a target
        found = np.bincount(codes, minlength=len(counts)).astype(float)
        found[: len(counts)] += counts
        counts = found
        n_changes += int(np.count_nonzero(codes[1:] != codes[:-1]))
        n_changes += previous is not None and bool(codes[0] != previous)
        previous = codes[-1]
        yield chunk
    n_rows = int(counts.sum())
    # In random order, neighbouring rows differ with probability 1 - sum of squared class shares.
    expected = (n_rows - 1) * (1 - float(np.square(counts / max(n_rows, 1)).sum()))
    if expected >= _MIN_EXPECTED_CHANGES and n_changes < _SORTED_RATIO * expected:
        message = (
            f"the rows are sorted by label: the label changes {n_changes:,} times in {n_rows:,} rows, and "
            f"about {expected:,.0f} times in random order, so the measures are misleading (--shuffle SEED)"
        )
        stream.notices.append(message)
        stream.on_notice(message)


def parse_delay(text: str) -> tuple[int, float | None]:
    """Return the delay of labels in rows, and in seconds if it is a time span such as 3d or 12h."""
    from steelyard.windowing.sliding import window_size

    if text.isdecimal():
        return int(text), None
    try:
        size = window_size(text)
    except ValueError:
        size = 0
    if isinstance(size, int):
        raise click.UsageError(
            f"--delay expects a number of rows or a time span such as 3d or 12h; got {text!r}."
        )
    return 0, size.total_seconds()


def delayed_by_time(
    chunks: Iterable[Chunk], evaluator: PrequentialEvaluator, seconds: float
) -> Iterator[Chunk]:
    """Yield the chunks, and set ``evaluator.delay`` to the number of rows whose labels have not arrived.

    Labels arrive in the order of the rows, each ``seconds`` after its row. At the end ``evaluator.delay`` is
    the largest number of rows that waited.
    """
    waiting: deque[float] = deque()
    longest = 0
    for chunk in chunks:
        assert chunk.time is not None  # the command requires --time
        waiting.extend(chunk.time.tolist())
        while waiting and waiting[0] <= chunk.time[-1] - seconds:
            waiting.popleft()
        evaluator.delay = len(waiting)
        longest = max(longest, len(waiting))
        yield chunk
    evaluator.delay = longest
