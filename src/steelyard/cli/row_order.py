"""Rows and labels of prequential runs: shuffled rows, delayed labels, and labels in a separate file."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.exceptions import DataError

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.streams.chunks import Chunk
    from steelyard.tables import TableStream

_LABEL_CHUNK_ROWS = 10_000  # rows of the file of labels that are read at a time
shuffle_option = click.option(
    "--shuffle",
    type=click.IntRange(0),
    metavar="SEED",
    help="Read all rows into memory and shuffle them, for tables sorted by label.",
)


def shuffled(stream: TableStream, seed: int) -> Iterator[Chunk]:
    """Read all rows of a table and yield them in random order."""
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


# -- labels in a separate file ------------------------------------------------------------------------


def parse_labels(texts: Iterable[str]) -> list[Any]:
    """Return labels as a table reader does: as integers if all texts are integers or all are booleans."""
    texts = list(texts)
    if {text.lower() for text in texts} <= {"true", "false"}:
        return [int(text.lower() == "true") for text in texts]
    are_integers = all(re.fullmatch(r"-?\d{1,18}", text) for text in texts)
    return [int(text) if are_integers else text for text in texts]


def read_labels(path: Path, id_column: str, target: str) -> dict[str, Any]:
    """Return the labels in a file as a dictionary by row id. Rows without a label are omitted."""
    from steelyard.tables import open_stream

    stream = open_stream(
        str(path), None, features=target, categorical=target, missing="zero", chunk=_LABEL_CHUNK_ROWS
    ).keep([id_column, target])
    found = {
        key: label
        for chunk in stream
        for key, label in zip(chunk.kept[id_column].tolist(), chunk.kept[target].tolist(), strict=True)
        if label not in {None, ""}
    }
    return dict(zip(found, parse_labels(found.values()), strict=True))


def join_labels(
    stream: TableStream, labels: Mapping[str, Any], id_column: str, target: str
) -> Iterator[Chunk]:
    """Yield the chunks with labels joined by id; rows without a label are in ``chunk.unlabelled``."""
    import numpy as np

    from steelyard.streams.chunks import Chunk

    for chunk in stream:
        if target in stream.encoder.columns_:
            raise DataError(
                f"the label column {target!r} is in the file of --labels and also in SOURCE, where it would "
                "be a feature.",
                source=stream.name,
                hint=f"--drop {target}",
            )
        found = [labels.get(key) for key in chunk.kept[id_column].tolist()]
        known = np.array([label is not None for label in found])
        filler = next((label for label in found if label is not None), 0)
        y = np.array([filler if label is None else label for label in found])
        yield Chunk(chunk.X, y, chunk.first_row, chunk.time, chunk.fixed, columns=chunk.columns).split(known)
