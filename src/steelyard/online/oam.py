"""OAM: online AUC maximisation with two reservoirs."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._shared_text import expand_shared_text
from steelyard._types import FloatArray
from steelyard.base import Traits
from steelyard.online.linear_machines import Arrays, LinearLearner, Shapes
from steelyard.online.targets import Signs, draw_seed, stored_seed
from steelyard.params import MAX_COUNT, Constraint, Integer, Positive, RandomSeed
from steelyard.persistence import storable
from steelyard.thresholds import gmean_threshold

__all__ = ["OAM"]


@expand_shared_text
@storable("OAM")
class OAM(LinearLearner):
    r"""Linear ranking by passive-aggressive steps on pairs with a random sample of the other class.

    Parameters
    ----------
    C : float, default=1.0
        Bound on the size of a step.
    budget : int, default=100
        Rows of each class kept, a uniform sample of those seen; settled by the first rows.
    random_state : int, RandomState or Generator, optional
        For the samples.

    Attributes
    ----------
    classes_, coef_, intercept_
        As in all online linear learners.
    n_features_in_, feature_names_in_
        As in all learners.

    Notes
    -----
    This is the sequential form. A sample :math:`(x, y)` enters the reservoir of its class; then for every row
    :math:`z` in the reservoir of the other class, one after the other,

    .. math::

        \ell = \max\bigl(0, 1 - y w^\top (x - z)\bigr), \qquad
        w \leftarrow w + y \min\Bigl(C_t, \frac{\ell}{\lVert x - z \rVert^2}\Bigr) (x - z), \qquad
        C_t = C \max\Bigl(1, \frac{\text{rows of the other class seen}}{\text{budget}}\Bigr) .

    Ranking needs no intercept; labels are cut where the geometric mean of both hit rates on the reservoirs is
    largest.

    References
    ----------
    P. Zhao, S. C. H. Hoi, R. Jin, T. Yang: Online AUC maximization. ICML 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.online import OAM
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(500) < 0.3).astype(int)
    >>> X = rng.normal(size=(500, 2)) + 3.0 * y[:, None]
    >>> bool(OAM(random_state=0).partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        "C": Positive(),
        "budget": Integer(1, MAX_COUNT),
        "random_state": RandomSeed(),
    }
    _traits = Traits(exact=False, bounded_memory=True)

    def __init__(self, C: float = 1.0, *, budget: int = 100, random_state: Any = None) -> None:
        self.C = C
        self.budget = budget
        self.random_state = random_state

    def _start_machines(self, X: NDArray[Any]) -> None:
        super()._start_machines(X)
        self._budget, self._seed = int(self.budget), draw_seed(self.random_state)

    def _shapes(self, n_features: int) -> Shapes:
        return {
            "weights": ((n_features,), np.float64),
            "buffers": ((2, self._budget, n_features), np.float64),
            "stored": ((2,), np.uint64),
            "seen": ((2,), np.uint64),
        }

    def _learn_arrays(self, arrays: dict[str, Any], X: NDArray[Any], signs: Signs) -> None:
        _native.oam_sweep(X, signs, **arrays, C=float(self.C), seed=self._seed)

    def _target_cuts(self) -> FloatArray:
        return np.array([self._cut(arrays) for arrays in self._targets])

    def _cut(self, arrays: Arrays) -> float:
        kept = (buffer[: int(n)] for buffer, n in zip(arrays["buffers"], arrays["stored"], strict=True))
        negative, positive = (rows @ arrays["weights"] for rows in kept)
        return gmean_threshold(negative, positive)

    def _machines_state(self) -> dict[str, Any]:
        return super()._machines_state() | {"seed": self._seed, "budget": self._budget}

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        self._budget, self._seed = int(state["budget"]), stored_seed(state["seed"])
        super()._set_machines_state(state)
        if any((arrays["stored"] > self._budget).any() for arrays in self._targets):
            raise ValueError("a reservoir holds more rows than its budget")
