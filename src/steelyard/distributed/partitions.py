"""What all engines share: rows of a partition become statistics, statistics add up, models take them in.

A worker's share of the work is a learner of its own that sees one partition. What it has learned crosses
the network as a :class:`Part`; parts add up in any order, and the models on the client take in the sum.
What a worker must know is a :class:`Kind` of statistics: models that differ only in what becomes of the
statistics (C, weights, thresholds) share one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from steelyard._threads import one_thread
from steelyard.base import Batch
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.features import RandomFeatures
from steelyard.persistence import decode, encode
from steelyard.proximal import ProximalSVC
from steelyard.proximal.rule.validation import validate_folds
from steelyard.proximal.state.folds import FoldedStatistics
from steelyard.proximal.state.grid import Grid
from steelyard.proximal.state.ledger import Ledger

__all__ = [
    "MAP_ROWS",
    "Kind",
    "Models",
    "Part",
    "Pass",
    "as_column",
    "as_rows",
    "fold_probe",
    "learn_partition",
    "learn_rows",
    "merge_parts",
    "n_rows",
    "validated",
]

Models = TypeVar("Models", ProximalSVC, Sequence[ProximalSVC])

MAP_ROWS = 2000  # rows of the first partition that settle a feature map whose widths follow the data


@dataclass(frozen=True)
class Part:
    """What was learned of some rows: all that crosses the network.

    Attributes
    ----------
    n_features : int or None
        Width of the rows; None where there were none.
    feature_names : ndarray or None
        Their names.
    statistics : FoldedStatistics or None
        Statistics of the (mapped) rows, by folds, without the map.
    ledger : Ledger or None
        Which rows these are, where that is noted.
    """

    n_features: int | None = None
    feature_names: Any = None
    statistics: FoldedStatistics | None = None
    ledger: Ledger | None = None

    @classmethod
    def of(cls, learner: ProximalSVC) -> Part:
        """What a learner has learned; nothing if it has seen no rows."""
        if not learner._is_started() or not learner._state.statistics.classes:
            return cls()
        names = vars(learner).get("feature_names_in_")
        state = learner._state
        return cls(
            learner.n_features_in_,
            names,
            FoldedStatistics(state.statistics, state.n_folds),
            learner._ledger,
        )

    def __add__(self, other: Part) -> Part:
        if self.n_features is None or other.n_features is None:
            return other if self.n_features is None else self
        if self.n_features != other.n_features or not np.array_equal(self.feature_names, other.feature_names):
            raise DataError(
                f"the partitions have different features, {self.n_features} and {other.n_features}, or the "
                "same by other names; nothing was changed."
            )
        assert self.statistics is not None
        assert other.statistics is not None
        ledger = self.ledger and other.ledger and self.ledger.merged(other.ledger)
        return replace(self, statistics=self.statistics.merged(other.statistics), ledger=ledger)

    def to_bytes(self) -> bytes:
        """A compact message: one triangle for each class and fold."""
        names = None if self.feature_names is None else [str(name) for name in self.feature_names]
        state = None if self.statistics is None else self.statistics.get_state()
        ledger = None if self.ledger is None else self.ledger.to_array()
        tree = {"n_features": self.n_features, "feature_names": names, "statistics": state, "ledger": ledger}
        return encode(tree)

    @classmethod
    def from_bytes(cls, data: bytes) -> Part:
        """The part that :meth:`to_bytes` wrote."""
        tree: Mapping[str, Any] = decode(data)
        names, state = tree["feature_names"], tree["statistics"]
        return cls(
            tree["n_features"],
            None if names is None else np.array(names, dtype=object),
            None if state is None else FoldedStatistics.from_state(state, state["statistics"]["n_features"]),
            None if tree["ledger"] is None else Ledger.of(tree["ledger"]),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Part.from_bytes, (self.to_bytes(),)


@dataclass(frozen=True, eq=False)
class Kind:
    """Which statistics are wanted: all that a worker needs to know about a model.

    Attributes
    ----------
    n_folds : int
        Into how many parts rows are sorted, by their values.
    feature_map : RandomFeatures or None
        The map in front. If it is decided by its seed alone, every worker settles it for itself.
    grid : Grid or None
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
    grid: Grid | None = None
    ledger: bool = False
    n_features: int | None = None
    feature_names: Any = None

    @classmethod
    def of(cls, model: ProximalSVC, method: str) -> Kind:
        """The kind of statistics that a model takes in; ``fit`` begins anew."""
        if method == "fit" or not model._is_started():
            n_folds = model._n_folds if model.C == "auto" else 1
            return cls(n_folds, model.feature_map, model.grid, model.ledger)
        names, state = vars(model).get("feature_names_in_"), model._state
        known = method == "forget" or state.statistics.is_settled
        grid = state.statistics.grid if known else model.grid
        ledger = model._ledger is not None
        return cls(state.n_folds, state.feature_map, grid, ledger, model.n_features_in_, names)

    @property
    def needs_rows(self) -> bool:
        """Whether the map, or the grid where there is no map, can be settled only by rows."""
        if self.feature_map is None:
            return self.grid is None
        return not self.feature_map.is_settled and self.feature_map.gamma == "rows"

    def settled(self, rows: Any) -> Kind:
        """The same with its map and grid settled as a learner that first sees these rows would do it."""
        if not self.needs_rows:
            return self
        probe = ProximalSVC(feature_map=self.feature_map)
        labels = np.zeros(n_rows(rows), dtype=np.int64)
        if self.feature_map is None:
            return replace(self, grid=probe.fit(rows, labels).grid_)
        probe._start(probe._check_batch(rows, labels, None, "fit", reset=True))
        return replace(self, feature_map=probe._state.feature_map)

    def learner(self, part: Part | None = None) -> ProximalSVC:
        """A learner that has learned this part, or nothing, and keeps such statistics."""
        learner = ProximalSVC(
            C="auto" if self.n_folds > 1 else 1.0,
            feature_map=self.feature_map,
            grid=self.grid,
            ledger=self.ledger,
        )
        learner._n_folds = self.n_folds
        known = self if part is None or part.n_features is None else part
        if known.n_features is None:
            return learner
        learner.n_features_in_ = known.n_features
        if known.feature_names is not None:
            learner.feature_names_in_ = known.feature_names
        learner._start(Batch(np.zeros((1, known.n_features)), [], np.zeros(0, dtype=np.int32), None))
        if part is not None and part.statistics is not None:
            known_map = learner._state.feature_map
            held = part.statistics
            learner._state = FoldedStatistics(held.statistics, self.n_folds, known_map)
            learner._ledger = part.ledger
        return learner

    def equals(self, other: Kind) -> bool:
        """Whether one set of statistics serves both."""
        return (
            self.n_folds == other.n_folds
            and self.n_features == other.n_features
            and np.array_equal(self.feature_names, other.feature_names)
            and self.grid == other.grid
            and self.ledger == other.ledger
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
            model._check_params()
            if method in {"forget", "update"}:
                model._check_started(method)
            kind = Kind.of(model, method)
            known = [place for place, other in enumerate(self.kinds) if other.equals(kind)]
            self._which.append(known[0] if known else len(self.kinds))
            if not known:
                self.kinds.append(kind)

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

    def finish(self, totals: Sequence[Part]) -> None:
        """Let the models take in the sums of all parts, one for each kind: all models or none.

        After an update the sums of what retires follow those of what is added.
        """
        retired: Sequence[Part] = ()
        if self.method == "update":
            totals, retired = totals[: len(self.kinds)], totals[len(self.kinds) :]
        given = [part.n_features for part in (*totals, *retired)]
        if all(width is None for width in given):
            raise DataError(
                "there was no row in any partition; nothing was changed.",
                who=self.method,
                hint="look at the filter, or the list of files, that chose the rows",
            )
        learners = [kind.learner(total) for kind, total in zip(self.kinds, totals, strict=True)]
        leaving = [kind.learner(total) for kind, total in zip(self.kinds, retired, strict=False)]
        changed = [
            self._updated(model, learners[place], leaving[place])
            if leaving
            else self._changed(model, learners[place])
            for model, place in zip(self.models, self._which, strict=True)
        ]
        for model, twin in zip(self.models, changed, strict=True):
            model.__dict__ = twin.__dict__

    def _updated(self, model: ProximalSVC, added: ProximalSVC, retired: ProximalSVC) -> ProximalSVC:
        """The model after both; rows that come and go in the same call are fine."""
        twin = copy.copy(model)
        try:
            if added._is_started() and added._state.statistics.classes:
                twin.merge(added)
            if retired._is_started() and retired._state.statistics.classes:
                twin.unmerge(retired)
        except DataError as error:
            raise error.told_by(self.method) from error
        return twin

    def _changed(self, model: ProximalSVC, total: ProximalSVC) -> ProximalSVC:
        if self.method == "fit":
            return ProximalSVC(**model.get_params(deep=False)).merge(total)
        twin = copy.copy(model)
        try:
            return twin.unmerge(total) if self.method == "forget" else twin.merge(total)
        except DataError as error:
            raise error.told_by(self.method) from error


def learn_partition(kinds: Sequence[Kind], X: Any, y: Any, sample_weight: Any, where: str) -> list[Part]:
    """What there is to learn of the rows of one partition, for each kind."""
    learners = [kind.learner() for kind in kinds]
    _check_width(kinds, as_rows(X), where)
    learn_rows(learners, X, y, sample_weight, where)
    return [Part.of(learner) for learner in learners]


def _check_width(kinds: Sequence[Kind], X: Any, where: str) -> None:
    """Refuse rows of another width than those that settled the grid."""
    width = X.shape[1] if len(getattr(X, "shape", ())) == 2 else None
    for kind in kinds:
        if kind.grid is None or kind.feature_map is not None or kind.n_features is not None:
            continue  # nobody, or the learner itself, knows the width
        if width not in {None, kind.grid.n_features}:
            raise DataError(
                f"the partitions have different features, {kind.grid.n_features} and {width}; nothing was "
                "changed.",
                who=where,
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
                raise error.told_by(where) from error


def merge_parts(partitions: Sequence[Sequence[Part]]) -> list[Part]:
    """The parts of several partitions as one for each kind; those given are left as they are."""
    with one_thread():
        return [sum(parts, Part()) for parts in zip(*partitions, strict=True)]


def fold_probe(model: ProximalSVC, folds: int) -> ProximalSVC:
    """A model whose statistics are kept by folds, for cross-validation."""
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise ParameterError(f"folds must be a whole number from 2 on; got {folds!r}.", who="cross_validate")
    model._check_params()
    probe = ProximalSVC(**{**model.get_params(deep=False), "C": "auto"})
    probe._n_folds = folds
    return probe


def validated(probe: ProximalSVC, model: ProximalSVC) -> dict[str, Any]:
    """What the folds of a probe say of the model."""
    return validate_folds(probe.set_params(C=model.C)._rule(), probe._state.folds)


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


def _model_list(models: Any, method: str) -> list[ProximalSVC]:
    listed = list(models) if isinstance(models, Sequence) else [models]
    for model in listed:
        if not isinstance(model, ProximalSVC):
            raise DataTypeError(
                f"expected a ProximalSVC or a list of them; got {type(model).__name__}.",
                who=method,
                hint="only learners whose statistics add up can be trained in many places at once",
            )
    if not listed:
        raise DataError("the list of models is empty.", who=method)
    return listed


def _same_map(a: RandomFeatures | None, b: RandomFeatures | None) -> bool:
    if a is None or b is None or a is b:
        return a is b
    if a.is_settled and b.is_settled:
        return a.same_map(b)
    return a.is_settled == b.is_settled and repr(a.get_params()) == repr(b.get_params())
