"""NORMA: gradient steps on a soft margin whose width adapts."""

from __future__ import annotations

from typing import Any, ClassVar

from steelyard import _native
from steelyard._shared_text import expand_shared_text
from steelyard.base import Traits
from steelyard.exceptions import ParameterError
from steelyard.kernels import SequenceKernel
from steelyard.online.kernel_machines import KernelListLearner
from steelyard.online.targets import Signs
from steelyard.params import MAX_COUNT, AnyOf, Constraint, Fraction, Integer, NonNegative, OneOf, Positive
from steelyard.persistence import storable

__all__ = ["NORMA"]


@expand_shared_text
@storable("NORMA")
class NORMA(KernelListLearner):
    r"""Online kernel classifier by gradient steps on the soft margin loss, in its nu form.

    Parameters
    ----------
    learning_rate : float, default=0.1
        Size of a step.
    regularization : float, default=0.01
        Decay of old weights; its product with ``learning_rate`` must be below 1.
    nu : float, default=0.1
        Share of samples that is to fall inside the margin, between 0 and 1.
    memory : int, optional
        Samples after which a support vector is dropped; by default none is, and memory grows.
    kernel, gamma, degree, coef0
        As in all online kernel learners.

    Attributes
    ----------
    classes_, support_vectors_, dual_coef_
        As in all online kernel learners.
    n_features_in_, feature_names_in_
        As in all learners.

    Notes
    -----
    With learning rate :math:`\eta`, regularization :math:`\lambda` and margin :math:`\rho` (0 at first), at
    every sample :math:`\sigma = 1` if :math:`y (f(x) + b) \le \rho`, else 0. Then

    .. math::

        a_i \leftarrow (1 - \eta \lambda) a_i, \quad a_{new} = \eta \sigma y, \quad
        b \leftarrow b + \eta \sigma y, \quad \rho \leftarrow \rho + \eta (\nu - \sigma) ,

    and samples with :math:`\sigma = 0` are not stored. With ``memory`` only terms of the last so many samples
    stay.

    References
    ----------
    J. Kivinen, A. J. Smola, R. C. Williamson: Online learning with kernels. IEEE Transactions on Signal
    Processing 52, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.online import NORMA
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(500) < 0.3).astype(int)
    >>> X = rng.normal(size=(500, 2)) + 3.0 * y[:, None]
    >>> bool(NORMA().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    _constraints: ClassVar[dict[str, Constraint]] = KernelListLearner._constraints | {
        "learning_rate": Positive(),
        "regularization": NonNegative(),
        "nu": Fraction(),
        "memory": AnyOf(OneOf(None), Integer(1, MAX_COUNT)),
    }
    _traits = Traits(exact=False, bounded_memory=False)

    def __init__(
        self,
        learning_rate: float = 0.1,
        regularization: float = 0.01,
        *,
        nu: float = 0.1,
        memory: int | None = None,
        kernel: str | SequenceKernel = "rbf",
        gamma: float | str = 1.0,
        degree: int = 3,
        coef0: float = 0.0,
    ) -> None:
        self.learning_rate = learning_rate
        self.regularization = regularization
        self.nu = nu
        self.memory = memory
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0

    def _check_params(self) -> None:
        super()._check_params()
        if self.learning_rate * self.regularization >= 1.0:
            raise ParameterError(
                "learning_rate * regularization must be below 1, or old weights change their sign; "
                f"got {self.learning_rate!r} * {self.regularization!r}.",
                source="NORMA",
            )

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.norma_sweep(
            self._lists,
            rows,
            signs,
            learning_rate=float(self.learning_rate),
            regularization=float(self.regularization),
            nu=float(self.nu),
            memory=0 if self.memory is None else int(self.memory),
        )
