"""OnlinePerceptron: Rosenblatt's rule."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._shared_text import expand_shared_text
from steelyard._types import FloatArray
from steelyard.base import Traits
from steelyard.online.linear_machines import LinearLearner, Shapes
from steelyard.online.targets import Signs
from steelyard.persistence import storable

__all__ = ["OnlinePerceptron"]


@expand_shared_text
@storable("OnlinePerceptron")
class OnlinePerceptron(LinearLearner):
    r"""Linear classifier that moves only when it errs.

    Attributes
    ----------
    classes_, coef_, intercept_
        As in all online linear learners.
    n_features_in_, feature_names_in_
        As in all learners.

    Notes
    -----
    On a mistake, :math:`y (w^\top x + b) \le 0`, :math:`w \leftarrow w + y x` and
    :math:`b \leftarrow b + y`. There is nothing to choose: another step size scales both alike.

    References
    ----------
    F. Rosenblatt: The perceptron: a probabilistic model for information storage and organization in the
    brain. Psychological Review 65, 1958.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.online import OnlinePerceptron
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(500) < 0.3).astype(int)
    >>> X = rng.normal(size=(500, 2)) + 3.0 * y[:, None]
    >>> bool(OnlinePerceptron().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    _traits = Traits(exact=False, bounded_memory=True)

    def _shapes(self, n_features: int) -> Shapes:
        return {"weights": ((n_features,), np.float64), "bias": ((1,), np.float64)}

    def _learn_arrays(self, arrays: dict[str, Any], X: NDArray[Any], signs: Signs) -> None:
        _native.perceptron_sweep(X, signs, **arrays)

    def _target_cuts(self) -> FloatArray:
        return np.array([-arrays["bias"][0] for arrays in self._targets])
