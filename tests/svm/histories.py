"""Random difficult data, and random histories of added and forgotten rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from steelyard.kernels import Kernel


@dataclass
class Case:
    """Rows, a kernel, and updates that add and forget rows."""

    X: np.ndarray
    y: np.ndarray
    kernel: Kernel
    C: float
    class_weight: str | None
    seed: int

    def steps(self):
        """Yield, for each update, the indices of added, forgotten and remaining rows."""
        rng = np.random.default_rng(self.seed)
        have, begin, n = [], 0, len(self.y)
        while begin < n or rng.random() < 0.7:
            chunk = int(rng.integers(1, 200 if rng.random() < 0.3 else 6))
            add = list(range(begin, min(n, begin + chunk)))
            begin += len(add)
            forget = []
            if len(have) > 8 and rng.random() < 0.7:
                most = min(len(have) // 2, 30)
                forget = rng.choice(have, size=int(rng.integers(1, most + 1)), replace=False).tolist()
            have = [i for i in have + add if i not in set(forget)]
            if add or forget:
                yield add, forget, list(have)

    def rows(self, which):
        return (self.X[which], self.y[which]) if which else None


def _blobs(rng, n):
    y = (rng.random(n) < 0.5).astype(int)
    return rng.normal(size=(n, 3)) + y[:, None], y


def _separable(rng, n):
    y = (rng.random(n) < 0.5).astype(int)
    return rng.normal(size=(n, 2)) + 6.0 * y[:, None], y


def _one_to_a_hundred(rng, n):
    y = (rng.random(n) < 0.01).astype(int)
    y[n // 3] = 1
    return rng.normal(size=(n, 3)) + 1.5 * y[:, None], y


def _duplicates(rng, n):
    """Return rows at nine points, most of them with rows of both labels."""
    X = rng.integers(-1, 2, size=(n, 2)).astype(float)
    return X, (X.sum(axis=1) + rng.normal(size=n) > 0).astype(int)


def _constant_features(rng, n):
    X, y = _blobs(rng, n)
    X[:, 1], X[:, 2] = 2.5, 0.0
    return X, y


def _one_class_first(rng, n):
    X, y = _blobs(rng, n)
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


KINDS = [_blobs, _separable, _one_to_a_hundred, _duplicates, _constant_features, _one_class_first]
KERNELS = [
    Kernel("linear"),
    Kernel("rbf", gamma=0.5),
    Kernel("rbf", gamma=0.05),
    Kernel("poly", gamma=0.5, coef0=1.0),
    Kernel("poly", gamma=1.0, degree=2),
]


@st.composite
def cases(draw, half_steps=False, largest=300):
    """Draw a case. With ``half_steps``, features are multiples of 1/2, so that products have few digits."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    X, y = draw(st.sampled_from(KINDS))(rng, draw(st.integers(20, largest)))
    C = 10.0 ** draw(st.floats(-2.0, 3.0))
    return Case(
        np.round(2.0 * X) / 2.0 if half_steps else X,
        y,
        draw(st.sampled_from(KERNELS)),
        C,
        draw(st.sampled_from([None, "balanced"])),
        seed,
    )
