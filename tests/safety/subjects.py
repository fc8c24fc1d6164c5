"""Every learner and wrapper, with example rows and mutating calls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from steelyard import (
    KOIL,
    AdaptiveThresholdClassifier,
    AlignedSVC,
    EnclosingClassifier,
    IncrementalSVC,
    KeyedClassifier,
    MultiKernelKOIL,
    ProximalSVC,
    RandomFeatures,
    StreamClassifier,
)
from steelyard.kernels.sequences import GlobalAlignmentKernel
from steelyard.online import AROW, NORMA, OAM, OPAUC, RBP, Forgetron, OnlinePerceptron, Projectron
from steelyard.windowing import AdaptiveWindows, ExponentialDecay, SlidingWindow

_FITTED: dict[str, Any] = {}

rng = np.random.default_rng(7)
Y = rng.integers(0, 3, size=160)
X = rng.normal(size=(160, 3)) + 1.5 * Y[:, None]
SEQUENCES = [np.cumsum(rng.normal(size=(4, 1)) + label, axis=0) for label in Y[:24]]
QUESTIONS = rng.normal(size=(7, 3)) + 1.0

LEARNERS = {
    "ProximalSVC": ProximalSVC(),
    "ProximalSVC auto": ProximalSVC(C="auto", threshold="gmean"),
    "ProximalSVC with row tracking": ProximalSVC(track_rows=True, threshold="gmean"),
    "ProximalSVC mapped": ProximalSVC(feature_map=RandomFeatures(6, kind="rbf", gamma=0.3, random_state=0)),
    "IncrementalSVC": IncrementalSVC(gamma=0.4),
    "IncrementalSVC balanced": IncrementalSVC(gamma=0.4, class_weight="balanced"),
    "KeyedClassifier": KeyedClassifier(),
    "EnclosingClassifier": EnclosingClassifier(),
    "AlignedSVC": AlignedSVC(random_state=0),
    "KOIL": KOIL(random_state=0, budget=12),
    "MultiKernelKOIL": MultiKernelKOIL(
        [{"kernel": "rbf", "gamma": 0.5}, {"kernel": "linear"}], random_state=0, budget=8
    ),
    "OnlinePerceptron": OnlinePerceptron(),
    "OAM": OAM(random_state=0, budget=10),
    "OPAUC": OPAUC(),
    "AROW": AROW(),
    "NORMA": NORMA(),
    "RBP": RBP(random_state=0, budget=10),
    "Forgetron": Forgetron(budget=10),
    "Projectron": Projectron(),
    "SlidingWindow of ProximalSVC": SlidingWindow(ProximalSVC(), size=50),
    "SlidingWindow of IncrementalSVC": SlidingWindow(IncrementalSVC(gamma=0.4), size=50),
    "ExponentialDecay": ExponentialDecay(ProximalSVC(), half_life=30),
    "AdaptiveWindows": AdaptiveWindows(ProximalSVC(), lengths=(20, None), block=10),
    "StreamClassifier": StreamClassifier(),
    "AdaptiveThresholdClassifier of ProximalSVC": AdaptiveThresholdClassifier(ProximalSVC()),
    "AdaptiveThresholdClassifier of IncrementalSVC": AdaptiveThresholdClassifier(IncrementalSVC(gamma=0.4)),
    "AdaptiveThresholdClassifier of Projectron": AdaptiveThresholdClassifier(Projectron()),
}
SEQUENCE_LEARNERS = {
    "IncrementalSVC of sequences": IncrementalSVC(kernel=GlobalAlignmentKernel(1.0)),
    "KOIL of sequences": KOIL(kernel=GlobalAlignmentKernel(1.0), random_state=0, budget=6),
    "NORMA of sequences": NORMA(kernel=GlobalAlignmentKernel(1.0)),
    "EnclosingClassifier of sequences": EnclosingClassifier(
        kernel=GlobalAlignmentKernel(1.0), shape="sphere"
    ),
}


@dataclass(frozen=True)
class Subject:
    """A learner with rows to learn and rows to predict."""

    name: str
    learner: Any
    X: Any
    y: Any
    questions: Any
    n_start: int = 40

    def fitted(self) -> Any:
        """Return a new learner fitted on some rows of two classes."""
        return self._new().fit(*self.start())

    def start(self) -> tuple[Any, Any]:
        """Return the rows of the first fit."""
        return self.rows(0, min(self.n_start, len(self.X) // 2), two_classes=True)

    def fitted_copy(self) -> Any:
        """Return a copy of a cached fitted learner."""
        if self.name not in _FITTED:
            _FITTED[self.name] = self.fitted()
        return copy.deepcopy(_FITTED[self.name])

    def _new(self) -> Any:
        return clone(self.learner)

    def rows(self, begin: int, end: int, *, two_classes: bool = False) -> tuple[Any, Any]:
        y = np.minimum(self.y[begin:end], 1) if two_classes else self.y[begin:end]
        return self.X[begin:end], y

    def calls(self) -> Iterator[tuple[str, Callable[[Any], object]]]:
        """Yield the name and the call of every mutating method."""
        X, y = self.X, self.y
        known = np.minimum(y, 1)
        half = len(X) // 4
        yield "fit", lambda m: m.fit(X[half : 2 * half], y[half : 2 * half])
        if not hasattr(self.learner, "partial_fit"):
            return
        yield "partial_fit of one row", lambda m: m.partial_fit(X[half : half + 1], known[half : half + 1])
        yield "partial_fit of rows", lambda m: m.partial_fit(X[half : 2 * half], known[half : 2 * half])
        yield "partial_fit with a new class", lambda m: m.partial_fit(X[half : 2 * half], y[half : 2 * half])
        if hasattr(self.learner, "forget"):
            start = self.rows(0, 6, two_classes=True)
            yield "forget", lambda m: m.forget(*start)
            yield (
                "update",
                lambda m: m.update(add=(X[half : half + 4], y[half : half + 4]), forget=start),
            )
            if not isinstance(X, list):
                yield (
                    "update of one row",
                    lambda m: m.update(
                        add=(X[half : half + 1], known[half : half + 1]), forget=(start[0][:1], start[1][:1])
                    ),
                )
        if hasattr(self.learner, "merge"):
            if type(self.learner).__name__ == "ProximalSVC":
                other = self._other_part()
            else:
                other = self._new().fit(X[half : 2 * half], np.full(half, 9))
            yield "merge", lambda m: m.merge(other)
        if callable(getattr(self.learner, "decay", None)) and not getattr(self.learner, "track_rows", False):
            yield "decay", lambda m: m.decay(0.5)
        if hasattr(self.learner, "grow") and getattr(self.learner, "feature_map", None) is None:
            yield "grow", lambda m: m.grow(5)
        if hasattr(self.learner, "forget_class"):
            yield "forget_class", lambda m: m.forget_class(1)

    def _other_part(self) -> Any:
        half = len(self.X) // 4
        feature_map = self.learner.feature_map
        other = self._new()
        if feature_map is not None:
            other = self.fitted().forget(*self.rows(0, 30, two_classes=True))
            return other.partial_fit(self.X[half : 2 * half], self.y[half : 2 * half])
        return other.fit(self.X[half : 2 * half], self.y[half : 2 * half])


SUBJECTS = [Subject(name, learner, X, Y, QUESTIONS) for name, learner in LEARNERS.items()] + [
    Subject(name, learner, SEQUENCES, Y[:24], SEQUENCES[:3]) for name, learner in SEQUENCE_LEARNERS.items()
]
# After 100 rows all experts of the ensemble are active.
SUBJECTS.append(
    Subject(
        "StreamClassifier with all experts",
        StreamClassifier(),
        np.tile(X, (2, 1)),
        np.tile(Y, 2),
        QUESTIONS,
        n_start=130,
    )
)
