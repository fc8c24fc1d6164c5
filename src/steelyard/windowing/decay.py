"""Exponential decay of the weights of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._concurrency import shallow_copy
from steelyard._deprecation import renamed_parameters
from steelyard._types import FloatArray
from steelyard.params import Positive, parameter, parametrized
from steelyard.persistence import storable
from steelyard.windowing.base import WindowWrapper

_MIN_CLASS_WEIGHT = 1e-9  # a class is removed when the total weight of its rows is below this


@renamed_parameters(learner="estimator")
@storable("ExponentialDecay", former_name="Fading", former_parameters={"learner": "estimator"})
@parametrized()
class ExponentialDecay(WindowWrapper):
    r"""Exponential decay: the weight of a row is halved after ``half_life`` further rows.

    Parameters
    ----------
    estimator : ProximalSVC
        Any learner that has ``decay`` and ``merge``.
    half_life : float, default=10000
        Number of rows after which the weight of a row is halved.

    Attributes
    ----------
    estimator_ : ProximalSVC
        The fitted estimator.

    Notes
    -----
    A row of age :math:`a`, the newest having age 0, has the weight :math:`2^{-a/\text{half\_life}}`. The
    statistics are exactly those of rows with these weights, independent of chunk borders. Balanced class
    weights depend only on proportions within each class, so a class without new rows keeps its influence; it
    is removed when its rows together weigh less than 1e-9.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> from steelyard.windowing import ExponentialDecay
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, size=300)
    >>> model = ExponentialDecay(ProximalSVC(), half_life=50)
    >>> model = model.partial_fit(X[:90], y[:90]).partial_fit(X[90:], y[90:])
    >>> weights = 0.5 ** (np.arange(299, -1, -1) / 50)
    >>> expected = ProximalSVC().fit(X, y, sample_weight=weights)
    >>> bool(np.allclose(model.estimator_.coef_, expected.coef_))
    True
    """

    _full_after_rows = 0  # the state contains no rows, so its size is constant

    estimator: Any
    half_life: float = parameter(10_000, Positive())

    def _check_params(self) -> None:
        self._check_methods("decay", "merge")
        super()._check_params()

    def _learn_rows(self, rows: FloatArray, labels: NDArray[Any], *, is_first: bool) -> None:
        """Reduce the weights of earlier rows, then add the new rows."""
        weights = np.exp2(-np.arange(len(labels) - 1, -1, -1) / self.half_life)
        is_relevant = weights >= _MIN_CLASS_WEIGHT * 1e-3
        new = self._new_estimator(rows).fit(
            rows[is_relevant], labels[is_relevant], sample_weight=weights[is_relevant]
        )
        if not is_first:
            decayed = shallow_copy(self.estimator_)  # works on a copy, because merging may raise an error
            decayed.decay(float(np.exp2(-len(labels) / self.half_life)), drop_below=_MIN_CLASS_WEIGHT)
            new.merge(decayed)
        self.estimator_ = new
