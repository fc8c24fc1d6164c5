"""What all engines share: rows of a partition become statistics, statistics add up, models take them in.

A worker's share of the work is a learner of its own that sees one partition. What it has learned crosses
the network as its message, a :class:`~steelyard.proximal.FoldedStatistics` without the feature map; messages
add up in any order, and the models on the client take in the sum. No rows, no message.
What a worker must know is a :class:`Kind` of statistics: models that differ only in what becomes of the
statistics (C, weights, thresholds) share one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from steelyard._threads import one_thread
from steelyard.base import check_parameters
from steelyard.exceptions import DataError, DataTypeError, NotFittedError, ParameterError
from steelyard.features import RandomFeatures
from steelyard.proximal import FoldedStatistics, ProximalSVC, Quantizer
from steelyard.proximal.state.row_ledger import RowLedger

__all__ = [
    "GRID_ROWS",
    "MAP_ROWS",
    "Kind",
    "Message",
    "Models",
    "Pass",
    "add_up",
    "as_column",
    "as_rows",
    "check_fitted",
    "fold_probe",
    "learn_partition",
    "learn_rows",
    "merge_parts",
    "message_of",
    "n_rows",
    "stacked",
]

Models = TypeVar("Models", ProximalSVC, Sequence[ProximalSVC])

Message = FoldedStatistics | None  # None of no rows

GRID_ROWS = 256  # rows that settle a grid, as on one machine
MAP_ROWS = 2000  # rows of the first partition that settle a feature map whose widths follow the data


@dataclass(frozen=True, eq=False)
class Kind:
    """Which statistics are wanted: all that a worker needs to know about a model.

    Attributes
    ----------
    n_folds : int
        Into how many parts rows are sorted, by their values.
    feature_map : RandomFeatures or None
        The map in front. If it is decided by its seed alone, every worker settles it for itself.
    grid : Quantizer or None
        The steps in which values are counted; without a map, all workers must have the same.
    ledger : bool
        Whether the rows are noted.
    n_features : int or None
        Width of the rows, if the model knows it already.
    feature_names : ndarray or None
        Their names, likewise.
    """

    n_folds: int
    feature_map: RandomFeatures | None = None
    quantizer: Quantizer | None = None
    track_rows: bool = False
    n_features: int | None = None
    feature_names: Any = None

    @classmethod
    def of(cls, model: ProximalSVC, method: str) -> Kind:
        """The kind of statistics that a model takes in; ``fit`` begins anew."""
        try:
            held = model.statistics()
        except NotFittedError as error:
            if method in {"forget", "update"}:
                raise error.with_source(f"ProximalSVC.{method}") from error
            held = None
        if method == "fit" or held is None:
            n_folds = model.n_folds if model.C == "auto" else 1
            return cls(n_folds, model.feature_map, model.quantizer, model.track_rows)
        known = method == "forget" or held.statistics.is_settled
        quantizer = held.statistics.quantizer if known else model.quantizer
        return cls(held.n_folds, held.feature_map, quantizer, held.ledger is not None, **held.features)

    @property
    def needs_rows(self) -> bool:
        """Whether the map, or the grid where there is no map, can be settled only by rows."""
        if self.feature_map is None:
            return self.quantizer is None
        return not self.feature_map.is_settled and self.feature_map.gamma == "rows"

    def settled(self, rows: Any) -> Kind:
        """The same with its map and grid settled as a learner that first sees these rows would do it."""
        if not self.needs_rows:
            return self
        if self.feature_map is not None:
            return replace(self, feature_map=self.feature_map.settled(rows))
        labels = np.zeros(n_rows(rows), dtype=np.int64)
        return replace(self, quantizer=ProximalSVC().fit(rows, labels).quantizer_)

    def with_map(self, total: FoldedStatistics) -> FoldedStatistics:
        """A sum of messages with the map that all workers had."""
        if self.feature_map is None:
            return total
        return total.with_map(self.feature_map.settled_for(total.n_features))

    def learner(self) -> ProximalSVC:
        """A learner that has learned nothing yet and keeps such statistics."""
        learner = ProximalSVC(
            C="auto" if self.n_folds > 1 else 1.0,
            feature_map=self.feature_map,
            quantizer=self.quantizer,
            track_rows=self.track_rows,
        )
        learner.n_folds = self.n_folds
        if self.n_features is None:
            return learner
        nothing = FoldedStatistics.start(self.n_features, self.n_folds, self.feature_map, self.quantizer)
        return learner.merge(nothing.signed(self.feature_names, RowLedger() if self.track_rows else None))

    def equals(self, other: Kind) -> bool:
        """Whether one set of statistics serves both."""
        return (
            self.n_folds == other.n_folds
            and self.n_features == other.n_features
            and np.array_equal(self.feature_names, other.feature_names)
            and self.quantizer == other.quantizer
            and self.track_rows == other.track_rows
            and _same_map(self.feature_map, other.feature_map)
        )


class Pass:
    """One pass over all rows for one or several models.

    Parameters
    ----------
    models : ProximalSVC or sequence of ProximalSVC
        Whom the rows are for.
    method : {"fit", "partial_fit", "forget", "update"}
        What the models do with them. A partition answers an update with two parts for each kind, of the rows
        to add and of those to retire.

    Attributes
    ----------
    kinds : list of Kind
        The distinct kinds of statistics that the models need.
    """

    def __init__(self, models: ProximalSVC | Sequence[ProximalSVC], method: str) -> None:
        self.models = _model_list(models, method)
        self.method = method
        self.kinds: list[Kind] = []
        self._which: list[int] = []
        for model in self.models:
            check_parameters(model)
            kind = Kind.of(model, method)
            known = [place for place, other in enumerate(self.kinds) if other.equals(kind)]
            self._which.append(known[0] if known else len(self.kinds))
            if not known:
                self.kinds.append(kind)

    @property
    def n_sides(self) -> int:
        """How many sums there are for each kind: of rows that come and, in an update, of rows that go."""
        return 2 if self.method == "update" else 1

    def settle_maps(self, first_rows: Callable[[], Any]) -> None:
        """Settle feature maps that are not settled yet, by rows that are asked for only if needed."""
        if not any(kind.needs_rows for kind in self.kinds):
            return
        # Whatever is wrong with the first rows, also in an engine's own words, is told by the worker who
        # meets it, with the partition.
        with suppress(Exception):
            rows = first_rows()
            if rows is not None:
                self.kinds = [kind.settled(rows) for kind in self.kinds]

    def finish(self, totals: Sequence[Message]) -> None:
        """Let the models take in the sums of all messages, one for each kind: all models or none.

        After an update the sums of what retires follow those of what is added.
        """
        if all(total is None for total in totals):
            raise DataError(
                "there was no row in any partition; nothing was changed.",
                source=self.method,
                hint="look at the filter, or the list of files, that chose the rows",
            )
        mapped = [
            None if total is None else self.kinds[place % len(self.kinds)].with_map(total)
            for place, total in enumerate(totals)
        ]
        nothing: list[Message] = [None] * len(self.kinds)
        if self.method == "forget":
            mapped = nothing + mapped
        come, go = mapped[: len(self.kinds)], mapped[len(self.kinds) :] or nothing
        changed = [
            self._changed(model, come[place], go[place])
            for model, place in zip(self.models, self._which, strict=True)
        ]
        for model, twin in zip(self.models, changed, strict=True):
            model.__dict__ = twin.__dict__

    def _changed(self, model: ProximalSVC, added: Message, retired: Message) -> ProximalSVC:
        """The model after both; rows that come and go in the same call are fine."""
        if self.method == "fit":
            assert added is not None
            return ProximalSVC(**model.get_params(deep=False)).merge(added)
        twin = copy.copy(model)
        try:
            if added is not None:
                twin.merge(added)
            if retired is not None:
                twin.subtract(retired)
        except DataError as error:
            raise error.with_source(self.method) from error
        return twin


def learn_partition(kinds: Sequence[Kind], X: Any, y: Any, sample_weight: Any, where: str) -> list[Message]:
    """What there is to learn of the rows of one partition, for each kind."""
    learners = [kind.learner() for kind in kinds]
    _check_width(kinds, as_rows(X), where)
    learn_rows(learners, X, y, sample_weight, where)
    return [message_of(learner) for learner in learners]


def message_of(learner: ProximalSVC) -> Message:
    """What a worker sends of what its learner has learned; nothing if it has seen no rows."""
    try:
        message = learner.statistics()
    except NotFittedError:
        return None
    return message.without_map() if message.statistics.classes else None


def check_fitted(model: ProximalSVC, method: str) -> None:
    """Refuse a model that has seen no rows."""
    try:
        model.statistics()
    except NotFittedError as error:
        raise error.with_source(f"ProximalSVC.{method}") from error


def _check_width(kinds: Sequence[Kind], X: Any, where: str) -> None:
    """Refuse rows of another width than those that settled the grid."""
    width = X.shape[1] if len(getattr(X, "shape", ())) == 2 else None
    for kind in kinds:
        if kind.quantizer is None or kind.feature_map is not None or kind.n_features is not None:
            continue  # nobody, or the learner itself, knows the width
        if width not in {None, kind.quantizer.n_features}:
            raise DataError(
                f"the partitions have different features, {kind.quantizer.n_features} and {width}; nothing was "
                "changed.",
                source=where,
            )


def learn_rows(learners: Iterable[ProximalSVC], X: Any, y: Any, sample_weight: Any, where: str) -> None:
    """Let learners see some rows; what is wrong with these is said with the place where they are."""
    X = as_rows(X)
    if n_rows(X) == 0:
        return
    with one_thread():  # the engine runs as many partitions at once as there are cores
        for learner in learners:
            try:
                learner.partial_fit(X, as_column(y), sample_weight=as_column(sample_weight))
            except (DataError, DataTypeError) as error:
                raise error.with_source(where) from error


def merge_parts(partitions: Sequence[Sequence[Message]]) -> list[Message]:
    """The messages of several partitions as one for each kind; those given are left as they are."""
    with one_thread():
        return [add_up(messages) for messages in zip(*partitions, strict=True)]


def add_up(messages: Iterable[Message]) -> Message:
    """The sum of all messages that there are."""
    total: Message = None
    for message in messages:
        if message is not None:
            total = message if total is None else total + message
    return total


def fold_probe(model: ProximalSVC, folds: int) -> ProximalSVC:
    """A model whose statistics are kept by folds, for cross-validation."""
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise ParameterError(
            f"folds must be a whole number from 2 on; got {folds!r}.", source="cross_validate"
        )
    check_parameters(model)
    probe = ProximalSVC(**{**model.get_params(deep=False), "C": "auto"})
    probe.n_folds = folds
    return probe


def as_rows(X: Any) -> Any:
    """A partition as learners take it: Arrow tables become data frames, all else is left."""
    if type(X).__module__.partition(".")[0] == "pyarrow":
        return X.to_pandas()
    return X


def as_column(values: Any) -> Any:
    """Labels or weights of a partition as an array."""
    if type(values).__module__.partition(".")[0] == "pyarrow":
        return values.to_numpy(zero_copy_only=False) if hasattr(values, "type") else values.to_numpy()
    return values


def n_rows(X: Any) -> int:
    """Number of rows of whatever a partition is."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def stacked(pieces: Sequence[Any]) -> Any:
    """Rows of several partitions one below the other."""
    if len(pieces) == 1:
        return pieces[0]
    if any(map(sp.issparse, pieces)):
        return sp.vstack(pieces, format="csr")
    if hasattr(pieces[0], "iloc"):
        import pandas as pd

        return pd.concat(pieces, ignore_index=True)
    return np.concatenate(pieces)


def _model_list(models: Any, method: str) -> list[ProximalSVC]:
    listed = list(models) if isinstance(models, Sequence) else [models]
    for model in listed:
        if not isinstance(model, ProximalSVC):
            raise DataTypeError(
                f"expected a ProximalSVC or a list of them; got {type(model).__name__}.",
                source=method,
                hint="only learners whose statistics add up can be trained in many places at once",
            )
    if not listed:
        raise DataError("the list of models is empty.", source=method)
    return listed


def _same_map(a: RandomFeatures | None, b: RandomFeatures | None) -> bool:
    if a is None or b is None or a is b:
        return a is b
    if a.is_settled and b.is_settled:
        return a.same_map(b)
    return a.is_settled == b.is_settled and repr(a.get_params()) == repr(b.get_params())
