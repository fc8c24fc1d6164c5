"""Rows as dictionaries, one at a time: the calls that river's users know."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from steelyard._concurrency import snapshot_view, transactional
from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.exceptions import DataError

__all__ = ["DictRowsMixin"]


class DictRowsMixin:
    """``learn_one`` and ``predict_one`` for a learner that can grow.

    The first row names the features. A name that is missing later stands for zero; one that comes later makes
    the learner grow, exactly as if all rows before had had a zero there.
    """

    _keys: dict[Hashable, int]  # the place of every feature, by name

    @transactional
    def learn_one(self, x: Mapping[Hashable, float], y: Label, w: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Values by name; names that are missing stand for zero, new ones make the learner grow.
        y : label
            The label of the row.
        w : float, default=1.0
            How often the row counts.
        """
        learner: Any = self
        if not learner._is_started():
            self._keys = {name: place for place, name in enumerate(x)}
        keys = self._named("learn_one")
        if not x.keys() <= keys.keys():
            new = [name for name in x if name not in keys]
            keys = keys | {name: len(keys) + place for place, name in enumerate(new)}
            learner.grow(len(keys))
            self._keys = keys
        weights = None if w == 1.0 else np.array([w])
        learner.partial_fit(_row(x, keys), np.array([y]), sample_weight=weights)

    def predict_one(self, x: Mapping[Hashable, float]) -> Label | None:
        """The label of one row; None before anything was learned.

        Parameters
        ----------
        x : dict
            Values by name; names that are missing stand for zero, unknown ones are passed over.

        Returns
        -------
        label or None
        """
        learner: Any = snapshot_view(self)
        if not learner._is_started():
            return None
        label: Label = learner.predict(_row(x, learner._named("predict_one"))).tolist()[0]
        return label

    def _named(self, method: str) -> dict[Hashable, int]:
        keys = self.__dict__.get("_keys")
        if keys is None or len(keys) != self.__dict__.get("n_features_in_", len(keys)):
            raise DataError(
                "this learner has learned arrays or tables, whose columns are not called by these names.",
                source=f"{type(self).__name__}.{method}",
                hint="learn all rows with learn_one(), or use partial_fit() and predict()",
            )
        names: dict[Hashable, int] = keys
        return names


def _row(x: Mapping[Hashable, float], keys: Mapping[Hashable, int]) -> FloatArray:
    if len(x) == len(keys) and list(x) == list(keys):  # as the first row was named, and most are
        as_named = np.array(list(x.values()), dtype=np.float64)
        if as_named.ndim == 1:  # a value that is no number is told below
            return as_named[None]
    row = np.zeros((1, len(keys)))
    values = row[0]
    for name, value in x.items():
        place = keys.get(name)
        if place is not None:
            values[place] = value
    return row
