"""Training without an engine: every machine writes its statistics to a file, and the files are combined.

The commands are ``steelyard statistics`` and ``steelyard merge``. Every part has an id computed from its
rows, so a copied part is not counted twice. A part may contain rows to add and rows to forget.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

from sklearn.base import BaseEstimator

from steelyard._concurrency import lock_of, shallow_copy, snapshot_view, state_without_lock, transactional
from steelyard.distributed.partitions import as_rows, n_rows
from steelyard.exceptions import DataError, FileFormatError
from steelyard.persistence import from_bytes, load, save, storable, to_bytes
from steelyard.tables.row_digest import RowDigest

__all__ = ["RowDigest", "StatisticsPart", "combine", "read", "statistics", "unlearned", "update", "write"]


@storable("StatisticsPart")
class StatisticsPart(BaseEstimator):
    """Statistics computed on one or several machines, with the ids of the parts they consist of.

    Parameters
    ----------
    model : ProximalSVC or another storable model with ``merge``
        The model that has learned the rows.
    retired : StatisticsPart, optional
        Statistics of the rows to forget; :func:`update` subtracts them from a model.

    Attributes
    ----------
    sources : dict of str to str
        Origin of every contained part, by its id.
    """

    __getstate__ = state_without_lock

    def __init__(self, model: Any, retired: StatisticsPart | None = None) -> None:
        self.model = model
        self.retired = retired

    @property
    def sources(self) -> dict[str, str]:
        """Return the origin of every part that is contained, by part id."""
        return self.__dict__.setdefault("sources_", {})

    def note(self, digest: RowDigest, source: str) -> Self:
        """Record the id and the origin of learned rows; a part without rows has no id."""
        if digest.n_rows:
            self.sources[digest.id] = source
        return self

    @transactional
    def merge(self, other: StatisticsPart) -> Self:
        """Add another part atomically; raise DataError if this part already contains it."""
        other = snapshot_view(other)
        self._check_not_contained(other)
        retired = self.retired
        if other.retired is not None:
            retired = other.retired if retired is None else _copy(retired).merge(other.retired)
        if other.sources:
            # merge() replaces attributes and never modifies them in place, so a shallow copy is sufficient.
            self.model = shallow_copy(self.model).merge(other.model) if self.sources else _copy(other.model)
            self.sources_ = {**self.sources, **other.sources}
        self.retired = retired
        return self

    def _check_not_contained(self, other: StatisticsPart) -> None:
        duplicates = [part for part in other.sources if part in self.sources]
        if duplicates:
            mine, theirs = self.sources[duplicates[0]], other.sources[duplicates[0]]
            raise DataError(
                f"the part {duplicates[0]} of {theirs!r} is already contained as a part of {mine!r}; "
                "its rows would count twice, so nothing was combined.",
                source="combine",
                hint="give every part once; a pattern such as part*.stats may match copies",
            )
        mine, theirs = _ledger_of(self.model), _ledger_of(other.model)
        if mine and theirs and len(mine) and len(theirs) and (mine.contains(theirs) or theirs.contains(mine)):
            raise DataError(
                f"all {min(len(mine), len(theirs)):,} rows of one part are contained in another part; "
                "they would count twice, so nothing was combined.",
                source="combine",
                hint="omit the smaller part",
            )

    def _get_state(self) -> dict[str, Any]:
        return {"sources": [[part, source] for part, source in self.sources.items()]}

    def _set_state(self, state: dict[str, Any]) -> None:
        self.sources_ = {str(part): str(source) for part, source in state["sources"]}


def statistics(
    model: Any, chunks: Iterable[Sequence[Any]], *, forget: Iterable[Sequence[Any]] = (), source: str = ""
) -> StatisticsPart:
    """Compute the statistics of rows to add and, separately, of rows to forget.

    Parameters
    ----------
    model : ProximalSVC
        Fitted in place. Parameters that determine the statistics (``C="auto"`` or a number, the feature map)
        must be equal on all machines; the others matter only after combining. A feature map must depend on
        its seed alone (numeric ``gamma``), or it must be fitted already.
    chunks : iterable of (X, y) or (X, y, sample_weight)
        The rows, in chunks of any size.
    forget : iterable of (X, y) or (X, y, sample_weight), optional
        Rows to forget, which were learned on this or another machine. To remove them exactly, pass
        ``unlearned(fitted)`` as ``model``, where ``fitted`` has learned these rows.
    source : str
        Name of the rows in error messages, such as a file name.

    Returns
    -------
    StatisticsPart
        Part for :func:`write`.

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
    forgetting = _copy(model)  # a copy of the model before it learns
    digest = _learn(model, chunks, source)
    forgotten = _learn(forgetting, forget, f"{source}, to forget")
    retired = StatisticsPart(forgetting).note(forgotten, source) if forgotten.n_rows else None
    return StatisticsPart(model, retired).note(digest, source)


def _learn(model: Any, chunks: Iterable[Sequence[Any]], source: str) -> RowDigest:
    digest = RowDigest()
    for number, chunk in enumerate(chunks):
        X, y = as_rows(chunk[0]), chunk[1]
        sample_weight = chunk[2] if len(chunk) > 2 else None
        if n_rows(X) == 0:
            continue
        try:
            model.partial_fit(X, y, sample_weight=sample_weight)
        except DataError as error:
            raise error.with_source(f"statistics: {source or 'rows'}, chunk {number}") from error
        digest.add(X, y, sample_weight)
    return digest


def unlearned(model: Any) -> Any:
    """Return a model without rows that has the same features, feature map, quantizer and folds.

    Its statistics use the same quantizer, so rows can be added to the model and removed from it exactly.

    Parameters
    ----------
    model : ProximalSVC
        A fitted model; it is not changed.

    Returns
    -------
    ProximalSVC
    """
    return _copy(model).subtract(model)


def update(model: Any, parts: Iterable[StatisticsPart | str | os.PathLike[str]]) -> Any:
    """Update a model atomically with parts: learn their rows to add, and forget their rows to forget.

    Parameters
    ----------
    model : ProximalSVC or TableModel
        A fitted model; changed in place.
    parts : iterable of StatisticsPart or path
        As for :func:`combine`.

    Returns
    -------
    ProximalSVC or TableModel
        ``model``.

    Raises
    ------
    DataError
        If two parts contain the same rows, or rows to forget were never learned.

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
        changed = _copy(model)
        if total.sources:
            changed.merge(total.model)
        if total.retired is not None:
            changed.subtract(total.retired.model)
        model.__dict__ = {**changed.__dict__, "_lock": lock}  # the new state is published atomically
    return model


def combine(parts: Iterable[StatisticsPart | str | os.PathLike[str]]) -> StatisticsPart:
    """Combine several parts into one.

    Parameters
    ----------
    parts : iterable of StatisticsPart or path
        Parts or files of parts; combined parts may be combined again.

    Returns
    -------
    StatisticsPart
        Its ``model`` equals a fit on all added rows. Rows to forget stay in ``retired`` until :func:`update`
        subtracts them from a model.

    Raises
    ------
    DataError
        If two parts contain the same rows, or the parts are incompatible.
    """
    total: StatisticsPart | None = None
    for item in parts:
        part = item if isinstance(item, StatisticsPart) else read(item)
        if total is None:
            total = StatisticsPart(_copy(part.model), part.retired)
            total.sources_ = dict(part.sources)
        else:
            total.merge(part)
    if total is None:
        raise DataError("there are no parts.", source="combine")
    return total


def _ledger_of(model: Any) -> Any:
    """Return the row ledger (record of the learned rows) of a model or of its estimator, or None."""
    state = getattr(getattr(model, "estimator", model), "_state", None)
    return getattr(state, "ledger", None)


def _copy(model: Any) -> Any:
    """Return an independent copy of a model."""
    return from_bytes(to_bytes(model))


def write(part: StatisticsPart, path: str | os.PathLike[str]) -> None:
    """Write a part to a file atomically."""
    save(part, path)


def read(path: str | os.PathLike[str]) -> StatisticsPart:
    """Read a part from a file; raise FileFormatError if the file contains something else."""
    part = load(path)
    if not isinstance(part, StatisticsPart):
        raise FileFormatError(
            f"{os.fspath(path)} contains a {type(part).__name__}, not statistics.",
            source="combine",
            hint="files to combine are written by `steelyard statistics`",
        )
    return part
