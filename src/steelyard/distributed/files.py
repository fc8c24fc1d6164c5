"""Training without an engine: every machine writes its statistics to a file, and the files are combined.

On the command line this is ``steelyard statistics`` and ``steelyard merge``. Every part carries an id that
follows from its rows, so a part that was copied, or made twice from the same rows, is not counted twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

from sklearn.base import BaseEstimator

from steelyard.distributed.partitions import as_column, as_rows, n_rows
from steelyard.exceptions import DataError, FileFormatError
from steelyard.persistence import from_bytes, load, save, storable, to_bytes
from steelyard.tables.row_digest import RowDigest

__all__ = ["RowDigest", "StatisticsPart", "combine", "read", "statistics", "write"]


@storable("StatisticsPart")
class StatisticsPart(BaseEstimator):
    """What one machine, or several together, learned of their rows, and which rows these were.

    Parameters
    ----------
    model : ProximalSVC or another storable model with ``merge``
        The model that has learned the rows.

    Attributes
    ----------
    sources : dict of str to str
        Id of every part that is in, and where it came from.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def sources(self) -> dict[str, str]:
        """Id of every part that is in, and where it came from."""
        found: dict[str, str] = self.__dict__.setdefault("sources_", {})
        return found

    def note(self, digest: RowDigest, source: str) -> Self:
        """Remember that these rows are in; a part without rows has no id."""
        if digest.n_rows:
            self.sources[digest.id] = source
        return self

    def merge(self, other: StatisticsPart) -> Self:
        """Take in another part; one that is in already, alone or with others, is refused."""
        twice = [part for part in other.sources if part in self.sources]
        if twice:
            mine, theirs = self.sources[twice[0]], other.sources[twice[0]]
            raise DataError(
                f"the part {twice[0]} of {theirs!r} is there already, from {mine!r}; its rows would "
                "count twice, so nothing was combined.",
                who="combine",
                hint="give every part once; a pattern such as part*.stats may match copies",
            )
        if other.sources:
            if self.sources:
                self.model.merge(other.model)
            else:
                self.model = _twin(other.model)
            self.sources.update(other.sources)
        return self

    def _get_state(self) -> dict[str, Any]:
        return {"sources": [[part, source] for part, source in self.sources.items()]}

    def _set_state(self, state: dict[str, Any]) -> None:
        self.sources_ = {str(part): str(source) for part, source in state["sources"]}


def statistics(model: Any, chunks: Iterable[Sequence[Any]], *, source: str = "") -> StatisticsPart:
    """Learn the rows of this machine.

    Parameters
    ----------
    model : ProximalSVC
        Taught in place. Parameters that decide which statistics are kept (``C="auto"`` or a number, the
        feature map) must be the same on all machines; the others count only after combining. A feature
        map must be decided by its seed (numbers for ``gamma``) or settled before.
    chunks : iterable of (X, y) or (X, y, sample_weight)
        The rows, in pieces of any size, so that they need not fit into memory together.
    source : str
        What to call these rows in messages, such as the name of their file.

    Returns
    -------
    StatisticsPart
        To be written with :func:`write`.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> from steelyard.distributed import files
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(90, 2)), np.arange(90) % 3
    >>> parts = [files.statistics(ProximalSVC(), [(X[i::2], y[i::2])], source=str(i)) for i in range(2)]
    >>> model = files.combine(parts).model
    >>> bool(np.allclose(model.coef_, ProximalSVC().fit(X, y).coef_, rtol=1e-10))
    True
    """
    digest = RowDigest()
    for number, chunk in enumerate(chunks):
        X, y, *weight = (as_rows(chunk[0]), *map(as_column, chunk[1:]))
        if n_rows(X) == 0:
            continue
        sample_weight = weight[0] if weight else None
        try:
            model.partial_fit(X, y, sample_weight=sample_weight)
        except DataError as error:
            raise error.told_by(f"statistics: {source or 'rows'}, chunk {number}") from error
        digest.add(X, y, sample_weight)
    return StatisticsPart(model).note(digest, source)


def combine(parts: Iterable[StatisticsPart | str | os.PathLike[str]]) -> StatisticsPart:
    """Bring parts together.

    Parameters
    ----------
    parts : iterable of StatisticsPart or path
        Parts, or files with parts; combined parts may be combined again.

    Returns
    -------
    StatisticsPart
        Its ``model`` is the one that a single machine would have learned of all rows.

    Raises
    ------
    DataError
        If the same rows are in two of the parts, or the parts do not fit together.
    """
    total: StatisticsPart | None = None
    for item in parts:
        part = item if isinstance(item, StatisticsPart) else read(item)
        if total is None:
            total = StatisticsPart(_twin(part.model))
            total.sources_ = dict(part.sources)
        else:
            total.merge(part)
    if total is None:
        raise DataError("there are no parts.", who="combine")
    return total


def _twin(model: Any) -> Any:
    """A model that can be merged into without changing this one."""
    return from_bytes(to_bytes(model))


def write(part: StatisticsPart, path: str | os.PathLike[str]) -> None:
    """Write a part to a file, whole or not at all."""
    save(part, path)


def read(path: str | os.PathLike[str]) -> StatisticsPart:
    """Read a part; anything else is refused with a sentence."""
    part = load(path)
    if not isinstance(part, StatisticsPart):
        raise FileFormatError(
            f"{os.fspath(path)} holds a {type(part).__name__}, not statistics.",
            who="combine",
            hint="files to combine are written by `steelyard statistics`",
        )
    return part
