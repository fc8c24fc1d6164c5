"""Random feature maps: fixed, seeded, and therefore as mergeable as the rows themselves."""

from __future__ import annotations

from sklearn.base import BaseEstimator


class RandomFeatures(BaseEstimator):
    def __init__(self, n_components=1000, *, kind="rbf", gamma="auto", random_state=0):
        self.n_components = n_components
        self.kind = kind
        self.gamma = gamma
        self.random_state = random_state

    def settled(self, X): ...
