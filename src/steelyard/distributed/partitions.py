"""Code shared by all engines: compute the statistics of partitions, add them, merge them into models.

A worker fits one learner per partition and sends its statistics without the feature map. Such messages can be
added in any order, and the client merges the sum into the models. An empty partition sends no message.
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
from steelyard._validation import check_started
from steelyard.base import check_parameters
from steelyard.exceptions import DataError, DataTypeError, ParameterError, SteelyardError
from steelyard.features import RandomFeatures
from steelyard.proximal import FoldedStatistics, ProximalSVC, Quantizer
from steelyard.proximal.row_ledger import RowLedger

Models = TypeVar("Models", ProximalSVC, Sequence[ProximalSVC])

Message = FoldedStatistics | None  # None for an empty partition

MAP_ROWS = 2000  # maximum number of rows of a partition to which a feature map is fitted


@dataclass(frozen=True, eq=False)
class StatisticsConfig:
    """Configuration of the statistics that a worker computes for a model."""

    n_folds: int  # number of folds; a hash of the row selects its fold
    # Feature map. If it depends on its seed alone, every worker generates the same map.
    feature_map: RandomFeatures | None = None
    # Quantizer; without a feature map, all workers must use the same quantizer.
    quantizer: Quantizer | None = None
    track_rows: bool = False  # whether to keep a ledger, the record of the hashes of the learned rows
    n_features: int | None = None  # number of features, if the model knows it
    feature_names: Any = None  # names of the features, if the model knows them

    @classmethod
    def of(cls, model: ProximalSVC, method: str) -> StatisticsConfig:
        """Return the configuration for a model. With the method "fit", earlier statistics are discarded."""
        if method in {"forget", "update"}:
            check_started(model, method)
        if method == "fit" or not model.__sklearn_is_fitted__():
            n_folds = model.n_folds if model.C == "auto" else 1
            return cls(n_folds, model.feature_map, model.quantizer, model.track_rows)
        current = model.statistics()
        known = method == "forget" or current.statistics.is_frozen
        quantizer = current.statistics.quantizer if known else model.quantizer
        return cls(
            current.n_folds, current.feature_map, quantizer, current.ledger is not None, **current.features
        )

    @property
    def needs_rows(self) -> bool:
        """Return whether the feature map (without one, the quantizer) must first be fitted on rows."""
        if self.feature_map is None:
            return self.quantizer is None
        return not self.feature_map.is_fitted and self.feature_map.gamma == "rows"

    def fitted(self, rows: Any) -> StatisticsConfig:
        """Return a copy whose feature map or quantizer is fitted on ``rows``, as a learner would fit it."""
        if not self.needs_rows:
            return self
        if self.feature_map is not None:
            return replace(self, feature_map=self.feature_map.fitted_on(rows))
        fresh = ProximalSVC().fit(rows, np.zeros(n_rows(rows), dtype=np.int64))
        return replace(self, quantizer=fresh.quantizer_, **fresh.statistics().features)

    def with_map(self, total: FoldedStatistics) -> FoldedStatistics:
        """Return a sum of messages with the feature map of the workers added."""
        if self.feature_map is None:
            return total
        return total.with_map(self.feature_map.fitted_for(total.n_features))

    def learner(self) -> ProximalSVC:
        """Return a learner without rows that computes statistics for this configuration."""
        learner = ProximalSVC(
            C="auto" if self.n_folds > 1 else 1.0,
            feature_map=self.feature_map,
            quantizer=self.quantizer,
            track_rows=self.track_rows,
            n_folds=max(self.n_folds, 2),
        )
        if self.n_features is None:
            return learner
        message = FoldedStatistics.start(self.n_features, self.n_folds, self.feature_map, self.quantizer)
        message.ledger = RowLedger() if self.track_rows else None
        message.feature_names = self.feature_names
        return learner.merge(message)

    @property
    def key(self) -> tuple[Any, ...]:
        """Value that is equal for configurations that can share statistics."""
        names = None if self.feature_names is None else tuple(self.feature_names)
        feature_map, map_key = self.feature_map, ""
        if feature_map is not None:
            map_key = feature_map.digest() if feature_map.is_fitted else repr(feature_map.get_params())
        return self.n_folds, map_key, self.quantizer, self.track_rows, self.n_features, names


class Pass:
    """One pass over all rows that updates one or several models.

    The method is "fit", "partial_fit", "forget" or "update". For an update, a partition sends two messages
    per configuration: one for the rows to add and one for the rows to forget.
    """

    def __init__(self, models: ProximalSVC | Sequence[ProximalSVC], method: str) -> None:
        self.models = list(models) if isinstance(models, Sequence) else [models]
        self.method = method
        if not self.models:
            raise DataError("the list of models is empty.", source=method)
        self.configs: list[StatisticsConfig] = []  # the distinct configurations of the models
        self._config_index: list[int] = []
        numbers: dict[tuple[Any, ...], int] = {}
        for model in self.models:
            if not isinstance(model, ProximalSVC):
                raise DataTypeError(
                    f"expected a ProximalSVC or a list of ProximalSVC; got {type(model).__name__}.",
                    source=method,
                    hint="only learners with additive statistics can be trained on partitions",
                )
            check_parameters(model)
            config = StatisticsConfig.of(model, method)
            self._config_index.append(numbers.setdefault(config.key, len(numbers)))
            if len(numbers) > len(self.configs):
                self.configs.append(config)

    def fit_maps(self, first_rows: Callable[[], Any]) -> None:
        """Fit feature maps and quantizers; ``first_rows`` is called only if rows are needed."""
        if not any(config.needs_rows for config in self.configs):
            return
        # An error in the first rows is reported by the worker that reads them, with the partition number.
        with suppress(Exception):
            rows = first_rows()
            if rows is not None:
                self.configs = [config.fitted(rows) for config in self.configs]

    def finish(self, totals: Sequence[Message]) -> None:
        """Merge sums into the models atomically: one per configuration, then those of rows to forget."""
        if all(total is None for total in totals):
            raise DataError(
                "all partitions are empty; nothing was changed.",
                source=self.method,
                hint="check the filter or the list of files",
            )
        mapped = [
            None if total is None else self.configs[index % len(self.configs)].with_map(total)
            for index, total in enumerate(totals)
        ]
        none: list[Message] = [None] * len(self.configs)
        if self.method == "forget":
            mapped = none + mapped
        added, removed = mapped[: len(self.configs)], mapped[len(self.configs) :] or none
        updated = [
            self._updated(model, added[index], removed[index])
            for model, index in zip(self.models, self._config_index, strict=True)
        ]
        for model, copied in zip(self.models, updated, strict=True):
            model.__dict__ = copied.__dict__

    def _updated(self, model: ProximalSVC, added: Message, removed: Message) -> ProximalSVC:
        """Return a copy of the model with rows first added, then removed."""
        if self.method == "fit":
            assert added is not None
            return ProximalSVC(**model.get_params(deep=False)).merge(added)
        updated = copy.copy(model)
        try:
            if added is not None:
                updated.merge(added)
            if removed is not None:
                updated.subtract(removed)
        except DataError as error:
            raise error.with_source(self.method) from error
        return updated


def learn_partition(
    configs: Sequence[StatisticsConfig], X: Any, y: Any, sample_weight: Any, where: str
) -> list[Message]:
    """Return the statistics of one partition for each configuration. Errors mention its name, ``where``."""
    learners = [config.learner() for config in configs]
    learn_rows(learners, X, y, sample_weight, where)
    return [message_of(learner) for learner in learners]


def message_of(learner: ProximalSVC) -> Message:
    """Return the statistics that a worker sends, or None if its learner has seen no rows."""
    if not learner.__sklearn_is_fitted__():
        return None
    message = learner.statistics()
    return message.without_map() if message.statistics.classes else None


def learn_rows(learners: Iterable[ProximalSVC], X: Any, y: Any, sample_weight: Any, where: str) -> None:
    """Fit learners on rows; error messages contain ``where``, the location of the rows."""
    X = as_rows(X)
    if n_rows(X) == 0:
        return
    with one_thread():  # the engine runs one partition per core
        for learner in learners:
            try:
                learner.partial_fit(X, y, sample_weight=sample_weight)
            except (DataError, DataTypeError) as error:
                raise error.with_source(where) from error


def merge_parts(partitions: Sequence[Sequence[Message]]) -> list[Message]:
    """Return the sum of the messages of several partitions for each configuration."""
    with one_thread():
        return [add_up(messages) for messages in zip(*partitions, strict=True)]


def add_up(messages: Iterable[Message]) -> Message:
    """Return the sum of all messages that are not None."""
    total: Message = None
    for message in messages:
        if message is not None:
            total = message if total is None else total + message
    return total


def fold_probe(model: ProximalSVC, folds: int) -> ProximalSVC:
    """Return an unfitted model that computes statistics per fold, for cross-validation."""
    least = 3 if model.C == "auto" else 2  # C is selected by the folds that remain for training
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < least:
        with_auto = ' with C="auto"' if least == 3 else ""
        raise ParameterError(
            f"folds must be an integer of at least {least}{with_auto}; got {folds!r}.",
            source="cross_validate",
        )
    check_parameters(model)
    return ProximalSVC(**{**model.get_params(deep=False), "C": "auto", "n_folds": folds})


def no_rows_error() -> ParameterError:
    """Return the error for an update without rows."""
    return ParameterError("rows to add, rows to forget, or both are required; got neither.", source="update")


def as_triple(rows: Any, what: str, source: str, error: type[SteelyardError] = DataTypeError) -> Any:
    """Return (X, y) or (X, y, sample_weight) as a triple; raise an error that calls it ``what``."""
    if not isinstance(rows, tuple) or len(rows) not in {2, 3}:
        raise error(
            f"{what} must be a tuple (X, y) or (X, y, sample_weight); got {type(rows).__name__}.",
            source=source,
        )
    return rows if len(rows) == 3 else (*rows, None)


def as_rows(X: Any) -> Any:
    """Convert Arrow tables to data frames; return other types unchanged."""
    if type(X).__module__.partition(".")[0] == "pyarrow":
        return X.to_pandas()
    return X


def n_rows(X: Any) -> int:
    """Return the number of rows of a partition of any type."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def stacked(pieces: Sequence[Any]) -> Any:
    """Concatenate the rows of several partitions."""
    if len(pieces) == 1:
        return pieces[0]
    if any(map(sp.issparse, pieces)):
        return sp.vstack(pieces, format="csr")
    if hasattr(pieces[0], "iloc"):
        import pandas as pd

        return pd.concat(pieces, ignore_index=True)
    return np.concatenate(pieces)
