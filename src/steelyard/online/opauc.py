"""OPAUC: one-pass AUC maximisation from class means and covariances."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._shared_text import expand_shared_text
from steelyard._types import FloatArray
from steelyard.base import Traits
from steelyard.online.linear_machines import Arrays, LinearLearner, Shapes
from steelyard.online.targets import Signs
from steelyard.params import Constraint, NonNegative, Positive
from steelyard.persistence import storable

__all__ = ["OPAUC"]


@expand_shared_text
@storable("OPAUC")
class OPAUC(LinearLearner):
    r"""Linear ranking by gradient steps on the squared pairwise loss against all rows of the other class.

    Parameters
    ----------
    learning_rate : float, default=0.001
        Size of a step; too large for large features, and weights run away.
    regularization : float, default=0.0001
        Weight of the squared norm.

    Attributes
    ----------
    classes_, coef_, intercept_
        As in all online linear learners.
    n_features_in_, feature_names_in_
        As in all learners.

    See Also
    --------
    steelyard.ProximalSVC : ``objective="auc"`` has the exact minimiser of the same loss at every moment.

    Notes
    -----
    For a sample :math:`(x, y)`, with :math:`c` and :math:`S` the mean and covariance of the other class,

    .. math::

        w \leftarrow w - \eta \bigl(\lambda w - y (x - c) + (x - c)(x - c)^\top w + S w\bigr) .

    Nothing happens while the other class has no rows. For a class that comes late the rows before it are
    the other class. Ranking needs no intercept; labels are cut halfway between the scores of the class means.

    References
    ----------
    W. Gao, R. Jin, S. Zhu, Z.-H. Zhou: One-pass AUC optimization. ICML 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.online import OPAUC
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(500) < 0.3).astype(int)
    >>> X = rng.normal(size=(500, 2)) + 3.0 * y[:, None]
    >>> bool(OPAUC().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        "learning_rate": Positive(),
        "regularization": NonNegative(),
    }
    _traits = Traits(exact=False, bounded_memory=True)

    def __init__(self, learning_rate: float = 0.001, regularization: float = 0.0001) -> None:
        self.learning_rate = learning_rate
        self.regularization = regularization

    def _shapes(self, n_features: int) -> Shapes:
        return {
            "weights": ((n_features,), np.float64),
            "means": ((2, n_features), np.float64),
            "covariances": ((2, n_features, n_features), np.float64),
            "seen": ((2,), np.uint64),
        }

    def _add_target(self) -> None:
        """A class that comes late has all rows before it on its other side: their statistics are known."""
        super()._add_target()
        if len(self._targets) == 1:
            return
        new, first = self._targets[-1], self._targets[0]
        shares = first["seen"] / first["seen"].sum()
        mean = shares @ first["means"]
        apart = first["means"] - mean
        new["means"][0] = mean
        new["covariances"][0] = (
            np.einsum("c,cij->ij", shares, first["covariances"]) + (apart.T * shares) @ apart
        )
        new["seen"][0] = first["seen"].sum()

    def _learn_arrays(self, arrays: dict[str, Any], X: NDArray[Any], signs: Signs) -> None:
        _native.opauc_sweep(
            X,
            signs,
            **arrays,
            learning_rate=float(self.learning_rate),
            regularization=float(self.regularization),
        )

    def _target_cuts(self) -> FloatArray:
        return np.array([self._cut(arrays) for arrays in self._targets])

    def _cut(self, arrays: Arrays) -> float:
        if not arrays["seen"].all():
            return 0.0
        return float(arrays["means"].mean(axis=0) @ arrays["weights"])
