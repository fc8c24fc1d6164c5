"""RBP: the randomized budget perceptron."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from steelyard import _native
from steelyard._shared_text import expand_shared_text
from steelyard.base import Traits
from steelyard.kernels import SequenceKernel
from steelyard.online.kernel_machines import KernelListLearner
from steelyard.online.targets import Signs, draw_seed, stored_seed
from steelyard.params import MAX_COUNT, Constraint, Integer, RandomSeed
from steelyard.persistence import storable

__all__ = ["RBP"]


@expand_shared_text
@storable("RBP")
class RBP(KernelListLearner):
    r"""Kernel perceptron that gives up a random support vector when its budget is full.

    Parameters
    ----------
    budget : int, default=100
        Support vectors kept.
    kernel, gamma, degree, coef0
        As in all online kernel learners.
    random_state : int, RandomState or Generator, optional
        For who leaves.

    Attributes
    ----------
    classes_, support_vectors_, dual_coef_
        As in all online kernel learners.
    n_features_in_, feature_names_in_
        As in all learners.

    Notes
    -----
    On a mistake, :math:`y f(x) \le 0`, the sample is stored with weight :math:`y`; if the budget is full, a
    support vector drawn uniformly leaves first. Nothing else changes.

    References
    ----------
    G. Cavallanti, N. Cesa-Bianchi, C. Gentile: Tracking the best hyperplane with a simple budget perceptron.
    Machine Learning 69, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.online import RBP
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(500) < 0.3).astype(int)
    >>> X = rng.normal(size=(500, 2)) + 3.0 * y[:, None]
    >>> bool(RBP(random_state=0).partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    _constraints: ClassVar[dict[str, Constraint]] = KernelListLearner._constraints | {
        "budget": Integer(1, MAX_COUNT),
        "random_state": RandomSeed(),
    }
    _traits = Traits(exact=False, bounded_memory=True)

    def __init__(
        self,
        budget: int = 100,
        *,
        kernel: str | SequenceKernel = "rbf",
        gamma: float | str = 1.0,
        degree: int = 3,
        coef0: float = 0.0,
        random_state: Any = None,
    ) -> None:
        self.budget = budget
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.random_state = random_state

    def _start_machines(self, X: NDArray[Any]) -> None:
        super()._start_machines(X)
        self._seed = draw_seed(self.random_state)

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.random_budget_sweep(self._lists, rows, signs, budget=int(self.budget), seed=self._seed)

    def _machines_state(self) -> dict[str, Any]:
        return super()._machines_state() | {"seed": self._seed}

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        self._seed = stored_seed(state["seed"])
        super()._set_machines_state(state)
