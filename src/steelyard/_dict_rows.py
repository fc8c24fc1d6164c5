"""Rows as dictionaries, processed one at a time as in river."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from steelyard._concurrency import snapshot_view, transactional
from steelyard._types import FloatArray
from steelyard.base import GrowingMixin, Label, Learner
from steelyard.exceptions import DataError


class DictRowsMixin(GrowingMixin, Learner):
    """Mixin that adds ``learn_one`` and ``predict_one`` to a learner whose features can grow.

    The first row determines the feature names. A missing feature is zero. A new feature is appended, exactly
    as if its value had been zero in all earlier rows.
    """

    _keys: dict[Hashable, int]  # column index of every feature name

    @transactional
    def learn_one(self, x: Mapping[Hashable, float], y: Label, w: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Values by feature name; missing features are zero, new features are appended.
        y : label
            The label of the row.
        w : float, default=1.0
            Weight of the row.
        """
        if not self._is_started():
            self._keys = {name: column for column, name in enumerate(x)}
        keys = self._known_keys("learn_one")
        if not x.keys() <= keys.keys():
            new = [name for name in x if name not in keys]
            keys = keys | {name: len(keys) + offset for offset, name in enumerate(new)}
            self.grow(len(keys))
            self._keys = keys
        weights = None if w == 1.0 else np.array([w])
        self.partial_fit(dict_row(x, keys, self, "learn_one"), np.array([y]), sample_weight=weights)

    def predict_one(self, x: Mapping[Hashable, float]) -> Label | None:
        """Return the predicted label of one row, or None before the first row is learned.

        Parameters
        ----------
        x : dict
            Values by feature name; missing features are zero, unknown features are ignored.

        Returns
        -------
        label or None
        """
        learner = snapshot_view(self)
        if not learner._is_started():
            return None
        keys = learner._known_keys("predict_one")
        label: Label = learner.predict(dict_row(x, keys, self, "predict_one")).tolist()[0]
        return label

    def _known_keys(self, method: str) -> dict[Hashable, int]:
        keys: dict[Hashable, int] | None = self.__dict__.get("_keys")
        if keys is None or len(keys) != self.__dict__.get("n_features_in_", len(keys)):
            raise DataError(
                "this learner has learned arrays or tables, so its features have no dictionary keys.",
                source=f"{type(self).__name__}.{method}",
                hint="learn all rows with learn_one(), or use partial_fit() and predict()",
            )
        return keys


def dict_row(
    x: Mapping[Hashable, Any], keys: Mapping[Hashable, int], learner: object, method: str
) -> FloatArray:
    """Return a row with the values of known features; a missing feature is zero."""
    # Fast path: the row has the known features in the same order.
    if len(x) == len(keys) and list(x) == list(keys):
        try:
            values = np.array(list(x.values()), dtype=np.float64)
            if values.ndim == 1:
                return values[None]
        except (TypeError, ValueError):
            pass  # the following loop reports wrong types and shapes
    row = np.zeros((1, len(keys)))
    for name, value in x.items():
        column = keys.get(name)
        if column is None:
            continue
        try:
            row[0, column] = value
        except (TypeError, ValueError):
            raise DataError(
                f"expected a number for {name!r}; got {value!r}.",
                source=f"{type(learner).__name__}.{method}",
                hint="encode categories, for example with preprocessing.OneHotEncoder() of river",
            ) from None
    return row
