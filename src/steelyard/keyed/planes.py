"""Hyperplanes of many keys: proximal SVMs whose class statistics are shrunk towards those of all keys.

The group is the set of all keys. For class ``c``, let ``S_c`` be the sums over the ``n_c`` rows of a key, and
``G_c`` the sums over the ``N_c`` rows of the group. The hyperplanes of the key are computed from
``N_c (S_c + t_c G_c) / (n_c + t_c N_c)`` with ``t_c = min(1, borrow / N_c)``, where those of the group are
computed from ``G_c``. A key without rows has the hyperplanes of the group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._types import FloatArray, IntArray
from steelyard.base import Label
from steelyard.keyed.sums import GROUP, KeyedSums
from steelyard.proximal.model_selection import CANDIDATE_ROWS, borrowed_share

_SAMPLED_KEYS = 2000  # maximum number of keys that are used to select the value of ``borrow``
_BLOCK_KEYS = 8192  # number of keys whose systems are in memory at a time


@dataclass(frozen=True)
class GroupSystem:
    """Scaling and penalty computed from all keys, which the linear systems of all keys share."""

    sums: KeyedSums  # sums of all keys
    labels: list[Label]  # the classes, sorted; at least two
    # Factors that convert steps to standard deviations of the group, and 1 for the intercept.
    scale: FloatArray
    penalty: FloatArray  # matrix of the regularizer, divided by C, shape (n_features + 1, n_features + 1)

    @classmethod
    def of(cls, sums: KeyedSums, labels: list[Label], C: float) -> GroupSystem:
        """Return the system for the rows in ``sums``."""
        d = sums.n_features
        group = sums.gather(GROUP, labels)[0]
        total = [sum(column) for column in group.reshape(-1, group.shape[-1]).T.tolist()]  # exact integers
        count, firsts = total[-1], total[-1 - d : -1]
        squares = [total[k * (k + 3) // 2] for k in range(d)]
        variance = [(count * q - s * s) / count**2 for q, s in zip(squares, firsts, strict=True)]
        deviation = np.sqrt(np.array(variance))
        scale = np.append(1.0 / np.where(deviation > 0.0, deviation, 1.0), 1.0)
        center = np.array([s / count for s in firsts]) * scale[:d]
        penalty = np.outer(np.append(center, 1.0), np.append(center, 1.0))
        penalty[np.arange(d), np.arange(d)] += 1.0
        return cls(sums, labels, scale, penalty / C)

    def scores(self, X: FloatArray, numbers: IntArray, borrow: float) -> FloatArray:
        """Return the scores of rows under the hyperplanes of their keys, which are given by number."""
        distinct, indices = np.unique(numbers, return_inverse=True)
        group = self._scaled(GROUP).sum(axis=2)[0]
        blocks = [
            self._solved(self._scaled(distinct[begin : begin + _BLOCK_KEYS]).sum(axis=2), group, borrow)
            for begin in range(0, len(distinct), _BLOCK_KEYS)
        ]
        planes = np.concatenate(blocks) * self.scale
        values = self.sums.coordinates(X)
        scores = np.empty((len(X), planes.shape[1]))
        for plane in range(planes.shape[1]):
            chosen = planes[indices, plane]
            scores[:, plane] = np.einsum("ij,ij->i", values, chosen[:, :-1]) + chosen[:, -1]
        return scores

    def select_borrow(self) -> float:
        """Return the value of ``borrow`` with the smallest error in two-fold cross-validation.

        The squared error is averaged over the rows of each class, then over the classes. If no candidate is
        better than the hyperplanes of the group, the result is infinite.
        """
        candidates = (*CANDIDATE_ROWS, np.inf)
        errors = np.zeros(len(candidates))
        own = self._scaled(self.sums.sampled_numbers(_SAMPLED_KEYS))
        group = self._scaled(GROUP)[0]
        for fold in (0, 1):
            training, held_out = 1 - fold, own[:, :, fold]
            counts = held_out[:, :, -1].sum(axis=0)
            if (group[:, training, -1] == 0.0).any() or (counts == 0.0).any():
                continue  # a fold without rows of some class cannot be evaluated
            for place, borrow in enumerate(candidates):
                planes = self._solved(own[:, :, training], group[:, training], borrow)
                errors[place] += self._squared_error(planes, held_out, counts)
        return candidates[int(np.argmin(errors))] if errors.any() else float(np.inf)

    def _squared_error(self, planes: FloatArray, sums: FloatArray, counts: FloatArray) -> float:
        """Return the mean squared error of each class, summed over classes and hyperplanes."""
        unpacked = sums[:, :, _unpacking(self.sums.n_features + 1)]
        total = 0.0
        for plane, targets in enumerate(_targets(len(self.labels))):
            u = planes[:, plane]
            quadratic = np.einsum("ki,kcij,kj->c", u, unpacked, u, optimize=True)
            linear = np.einsum("kci,ki->c", unpacked[:, :, -1], u)
            total += float(((quadratic - 2.0 * targets * linear) / counts + 1.0).sum())
        return total

    def _scaled(self, numbers: IntArray) -> FloatArray:
        """Return the sums of keys by class and fold, with features scaled to unit standard deviation."""
        left, right = np.tril_indices(len(self.scale))
        return self.sums.gather(numbers, self.labels) * (self.scale[left] * self.scale[right])

    def _solved(self, own: FloatArray, group: FloatArray, borrow: float) -> FloatArray:
        """Return the hyperplanes of keys with the class sums ``own`` of shape (n_keys, n_classes, n_sums)."""
        counts = group[:, -1]
        if np.isinf(borrow):
            solved = self._solved(np.zeros((1, *group.shape)), group, 1.0)
            return np.broadcast_to(solved, (len(own), *solved.shape[1:]))
        shares = np.array([borrowed_share(count, borrow) for count in counts.tolist()])
        means = own + shares[:, None] * group
        means *= (counts / means[:, :, -1])[:, :, None]
        targets = _targets(len(counts))
        shares = counts / counts.sum()
        own_shares = shares[-len(targets) :, None] if len(targets) == 1 else shares[:, None]
        weights = np.where(targets > 0.0, 1.0 - own_shares, own_shares)
        size = len(self.scale)
        matrices = np.matmul(weights, means)[:, :, _unpacking(size)] + self.penalty
        sides = np.matmul(weights * targets, means[:, :, -size:])
        planes: FloatArray = np.linalg.solve(matrices, sides[..., None])[..., 0]
        return planes


def _targets(n_classes: int) -> FloatArray:
    """Return the regression targets of each hyperplane: 1 for its own class, -1 for all others."""
    if n_classes == 2:
        return np.array([[-1.0, 1.0]])
    return 2.0 * np.eye(n_classes) - 1.0


def _unpacking(size: int) -> IntArray:
    """Return the index of each entry of a symmetric matrix in the packed lower triangle."""
    places = np.arange(size)
    high, low = np.maximum.outer(places, places), np.minimum.outer(places, places)
    indices: IntArray = high * (high + 1) // 2 + low
    return indices
