"""Diagnostics of a transformed kernel: Riemannian magnification and kernel-target alignment."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steelyard._types import FloatArray

_STEP = 1e-4  # step of the central differences, relative to the kernel width 1 / sqrt(gamma)


def rbf_magnification(factor: Callable[[FloatArray], FloatArray], X: FloatArray, gamma: float) -> FloatArray:
    r"""Return the volume element of the transformed Gaussian kernel divided by that of the original kernel.

    Equation 2 of the paper defines the metric :math:`g_{ij} = \partial^2 k(x, z) / \partial x_i \partial z_j`
    at z = x. The metric of the Gaussian kernel is :math:`2 \gamma I`; that of the kernel D(x) D(z) k(x, z) is
    :math:`2 \gamma D^2 I + \nabla D \nabla D^\top`. The volume element is the square root of the determinant
    of the metric, so the ratio is
    :math:`D^d \sqrt{1 + |\nabla D|^2 / (2 \gamma D^2)}`. The function ``factor`` returns D(x) for each row.
    """
    step = _STEP / np.sqrt(gamma)
    D, squares = factor(X), np.zeros(len(X))
    for j in range(X.shape[1]):
        shift = np.zeros(X.shape[1])
        shift[j] = step
        squares += np.square((factor(X + shift) - factor(X - shift)) / (2.0 * step))
    result: FloatArray = D ** X.shape[1] * np.sqrt(1.0 + squares / (2.0 * gamma * np.square(D)))
    return result


def target_alignment(K: FloatArray, signs: FloatArray) -> float:
    """Return the kernel-target alignment <K, yy'> / (n |K|), from -1 to 1.

    y are the n labels +1 and -1 (``signs``), and |K| is the Frobenius norm.
    """
    norm = float(np.linalg.norm(K))
    return float(signs @ K @ signs) / (len(signs) * norm) if norm else 0.0
