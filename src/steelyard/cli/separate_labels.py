"""Labels in a separate file, joined to the rows by an id column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.exceptions import DataError

if TYPE_CHECKING:
    from steelyard.streams.chunks import Chunk
    from steelyard.tables import TableStream

_CHUNK_ROWS = 10_000


def parse_labels(texts: Iterable[str]) -> list[Any]:
    """Return labels as a table reader does: as integers if all texts are integers, otherwise as text."""
    texts = list(texts)
    are_integers = all(re.fullmatch(r"-?\d{1,18}", text) for text in texts)
    return [int(text) if are_integers else text for text in texts]


def read_labels(path: Path, id_column: str, target: str) -> dict[str, Any]:
    """Return the labels in a file as a dictionary by row id. Rows without a label are omitted."""
    from steelyard.tables import open_stream

    stream = open_stream(
        str(path), None, features=target, categorical=target, missing="zero", chunk=_CHUNK_ROWS
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
