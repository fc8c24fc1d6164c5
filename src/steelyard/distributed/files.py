"""Training without an engine: every machine writes its statistics to a file, and the files are combined.

On the command line this is ``steelyard statistics`` and ``steelyard merge``. Every part carries an id that
follows from its rows, so a part that was copied, or made twice from the same rows, is not counted twice. A
part may hold rows that come and rows that go: one file a machine for a window that slides.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

from sklearn.base import BaseEstimator

from steelyard._concurrency import lock_of, shallow_copy, snapshot_view, state_without_lock, transactional
from steelyard.distributed.partitions import as_column, as_rows, n_rows
from steelyard.exceptions import DataError, FileFormatError
from steelyard.persistence import from_bytes, load, save, storable, to_bytes
from steelyard.tables.row_digest import RowDigest

__all__ = ["RowDigest", "StatisticsPart", "combine", "read", "statistics", "unlearned", "update", "write"]


@storable("StatisticsPart")
class StatisticsPart(BaseEstimator):
    """What one machine, or several together, learned of their rows, and which rows these were.

    Parameters
    ----------
    model : ProximalSVC or another storable model with ``merge``
        The model that has learned the rows.
    retired : StatisticsPart, optional
        The same of rows that are to go. They are taken out where the parts meet a model (:func:`update`).

    Attributes
    ----------
    sources : dict of str to str
        Id of every part that is in, and where it came from.
    """

    __getstate__ = state_without_lock

    def __init__(self, model: Any, retired: StatisticsPart | None = None) -> None:
        self.model = model
        self.retired = retired

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

    @transactional
    def merge(self, other: StatisticsPart) -> Self:
        """Take in another part, at one moment; one that is in already, alone or with others, is refused."""
        other = snapshot_view(other)
        self._refuse_twice(other)
        retired = self.retired
        if other.retired is not None:
            retired = other.retired if retired is None else _twin(retired).merge(other.retired)
        if other.sources:
            # What merges replaces what it has by the sum: a twin of the model does so unseen.
            self.model = shallow_copy(self.model).merge(other.model) if self.sources else _twin(other.model)
            self.sources_ = {**self.sources, **other.sources}
        self.retired = retired
        return self

    def _refuse_twice(self, other: StatisticsPart) -> None:
        twice = [part for part in other.sources if part in self.sources]
        if twice:
            mine, theirs = self.sources[twice[0]], other.sources[twice[0]]
            raise DataError(
                f"the part {twice[0]} of {theirs!r} is there already, from {mine!r}; its rows would "
                "count twice, so nothing was combined.",
                source="combine",
                hint="give every part once; a pattern such as part*.stats may match copies",
            )
        mine, theirs = _ledger_of(self.model), _ledger_of(other.model)
        if mine and theirs and len(mine) and len(theirs) and (mine.holds(theirs) or theirs.holds(mine)):
            raise DataError(
                f"all {min(len(mine), len(theirs)):,} rows of one of two parts are inside the other, as "
                "their ledgers say; they would count twice, so nothing was combined.",
                source="combine",
                hint="leave the smaller part out",
            )

    def _get_state(self) -> dict[str, Any]:
        return {"sources": [[part, source] for part, source in self.sources.items()]}

    def _set_state(self, state: dict[str, Any]) -> None:
        self.sources_ = {str(part): str(source) for part, source in state["sources"]}


def statistics(
    model: Any, chunks: Iterable[Sequence[Any]], *, forget: Iterable[Sequence[Any]] = (), source: str = ""
) -> StatisticsPart:
    """Learn the rows of this machine, and apart from them those that are to go.

    Parameters
    ----------
    model : ProximalSVC
        Taught in place. Parameters that decide which statistics are kept (``C="auto"`` or a number, the
        feature map) must be the same on all machines; the others count only after combining. A feature
        map must be decided by its seed (numbers for ``gamma``) or settled before.
    chunks : iterable of (X, y) or (X, y, sample_weight)
        The rows, in pieces of any size, so that they need not fit into memory together.
    retire : iterable of the same, optional
        Rows that were learned before, here or elsewhere, and are to be unlearned. For them the model should
        be :func:`unlearned` of one that has them, so that they go as they came, to the last bit.
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
    leaving = _twin(model)  # before it has learned anything
    digest = _learn(model, chunks, source)
    gone = _learn(leaving, forget, f"{source}, to retire")
    retired = StatisticsPart(leaving).note(gone, source) if gone.n_rows else None
    return StatisticsPart(model, retired).note(digest, source)


def _learn(model: Any, chunks: Iterable[Sequence[Any]], source: str) -> RowDigest:
    digest = RowDigest()
    for number, chunk in enumerate(chunks):
        X, y, *weight = (as_rows(chunk[0]), *map(as_column, chunk[1:]))
        if n_rows(X) == 0:
            continue
        sample_weight = weight[0] if weight else None
        try:
            model.partial_fit(X, y, sample_weight=sample_weight)
        except DataError as error:
            raise error.with_source(f"statistics: {source or 'rows'}, chunk {number}") from error
        digest.add(X, y, sample_weight)
    return digest


def unlearned(model: Any) -> Any:
    """A model with the features, map, grid and folds of this one that has learned no rows.

    Statistics that it makes are counted in the same steps, so rows that they add to the model, or take out of
    it, come and go to the last bit.

    Parameters
    ----------
    model : ProximalSVC
        A model that has learned rows; it stays as it is.

    Returns
    -------
    ProximalSVC
    """
    return _twin(model).subtract(model)


def update(model: Any, parts: Iterable[StatisticsPart | str | os.PathLike[str]]) -> Any:
    """Let a model take in parts: the rows that came are learned and those to retire unlearned, all or none.

    Parameters
    ----------
    model : ProximalSVC or TableModel
        A model that has learned rows; changed in place.
    parts : iterable of StatisticsPart or path
        As for :func:`combine`.

    Returns
    -------
    ProximalSVC or TableModel
        ``model``.

    Raises
    ------
    DataError
        If the same rows are in two of the parts, or rows are to retire that were never learned.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> from steelyard.distributed import files
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(900, 2)), np.arange(900) % 3
    >>> model = ProximalSVC().fit(X[:600], y[:600])
    >>> change = files.statistics(files.unlearned(model), [(X[600:], y[600:])], forget=[(X[:300], y[:300])])
    >>> files.update(model, [change]).digest() == ProximalSVC(quantizer=model.quantizer_).fit(
    ...     X[300:], y[300:]
    ... ).digest()
    True
    """
    total = combine(parts)
    lock = lock_of(model)
    with lock:
        changed = _twin(model)
        if total.sources:
            changed.merge(total.model)
        if total.retired is not None:
            changed.subtract(total.retired.model)
        model.__dict__ = {**changed.__dict__, "_lock": lock}  # the one moment
    return model


def combine(parts: Iterable[StatisticsPart | str | os.PathLike[str]]) -> StatisticsPart:
    """Bring parts together.

    Parameters
    ----------
    parts : iterable of StatisticsPart or path
        Parts, or files with parts; combined parts may be combined again.

    Returns
    -------
    StatisticsPart
        Its ``model`` is the one that a single machine would have learned of all rows that came. Rows to
        retire stay beside it, in ``retired``, until :func:`update` takes them out of a model.

    Raises
    ------
    DataError
        If the same rows are in two of the parts, or the parts do not fit together.
    """
    total: StatisticsPart | None = None
    for item in parts:
        part = item if isinstance(item, StatisticsPart) else read(item)
        if total is None:
            total = StatisticsPart(_twin(part.model), part.retired)
            total.sources_ = dict(part.sources)
        else:
            total.merge(part)
    if total is None:
        raise DataError("there are no parts.", source="combine")
    return total


def _ledger_of(model: Any) -> Any:
    """Which rows a model, or the learner of one of tables, has learned; None where it keeps no ledger."""
    return getattr(getattr(model, "learner", model), "_ledger", None)


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
            source="combine",
            hint="files to combine are written by `steelyard statistics`",
        )
    return part
