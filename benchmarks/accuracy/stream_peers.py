"""The contenders of ``streams.py``: what learns, how it scores rows, and where it cuts by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier
from stream_data import FloatArray, IntArray

from steelyard import IncrementalSVC, ProximalSVC, StreamClassifier
from steelyard.evaluation import RiverPeer, SklearnPeer
from steelyard.memory import SlidingWindow


class Learner:
    """A classifier with ``partial_fit`` and scores."""

    def __init__(self, model: Any, own_cut: float = 0.0) -> None:
        self.model, self.own_cut = model, own_cut

    def learn(self, X: FloatArray, y: IntArray) -> None:
        self.model.partial_fit(X, y)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of class 1; zeros before both classes are known."""
        try:
            known = len(self.model.classes_) == 2
        except (AttributeError, ValueError):
            known = False
        if not known:
            return np.full(len(X), self.own_cut)
        if hasattr(self.model, "decision_function"):
            return np.asarray(self.model.decision_function(X))
        return np.asarray(self.model.predict_proba(X))[:, 1]


class Refitted:
    """A batch classifier, fitted anew on the last rows after every 500."""

    own_cut = 0.5

    def __init__(self, make: Callable[[], Any], window: int, every: int = 500) -> None:
        self.make, self.window, self.every = make, window, every
        self.model: Any = None
        self.X: FloatArray | None = None
        self.n_seen = self.fitted_at = 0

    def learn(self, X: FloatArray, y: IntArray) -> None:
        self.X = X if self.X is None else np.concatenate([self.X, X])[-self.window :]
        self.y = y if len(self.X) == len(X) else np.concatenate([self.y, y])[-self.window :]
        self.n_seen += len(y)
        due = self.model is None or self.n_seen // self.every > self.fitted_at // self.every
        if due and len(np.unique(self.y)) == 2:
            self.model, self.fitted_at = self.make().fit(self.X, self.y), self.n_seen

    def scores(self, X: FloatArray) -> FloatArray:
        if self.model is None:
            return np.full(len(X), self.own_cut)
        return np.asarray(self.model.predict_proba(X))[:, 1]


def _balanced_forest() -> Any:
    from imblearn.ensemble import BalancedRandomForestClassifier

    return BalancedRandomForestClassifier(
        100, random_state=0, sampling_strategy="all", replacement=True, bootstrap=False
    )


def _boosted(balanced: bool) -> Callable[[], Any]:
    def make() -> Any:
        from lightgbm import LGBMClassifier

        weight = "balanced" if balanced else None
        return LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1, class_weight=weight, random_state=0)

    return make


def _river(make: Callable[[], Any], *, scale: bool = False) -> Callable[[], Learner]:
    return lambda: Learner(RiverPeer(make(), scale=scale, labels=[0, 1]), 0.5)


def _arf() -> Any:
    from river.forest import ARFClassifier

    return ARFClassifier(n_models=10, seed=1)


def _srp() -> Any:
    from river.ensemble import SRPClassifier

    return SRPClassifier(n_models=10, seed=1)


def _leveraging_bagging() -> Any:
    from river import ensemble, tree

    return ensemble.LeveragingBaggingClassifier(tree.HoeffdingTreeClassifier(), n_models=10, seed=1)


def _adaptive_tree() -> Any:
    from river.tree import HoeffdingAdaptiveTreeClassifier

    return HoeffdingAdaptiveTreeClassifier(seed=1)


def _logistic() -> Any:
    from river.linear_model import LogisticRegression

    return LogisticRegression()


def _logistic_undersampled() -> Any:
    from river import imblearn, linear_model

    return imblearn.RandomUnderSampler(
        linear_model.LogisticRegression(), desired_dist={False: 0.5, True: 0.5}, seed=1
    )


@dataclass(frozen=True)
class Contender:
    """Who takes part: a maker, and whether it is one of this package."""

    make: Callable[[], Any]
    ours: bool = False


CONTENDERS: dict[str, Contender] = {
    "StreamClassifier": Contender(lambda: Learner(StreamClassifier()), ours=True),
    "ProximalSVC": Contender(lambda: Learner(ProximalSVC(threshold="gmean")), ours=True),
    "IncrementalSVC, last 2,000": Contender(
        lambda: Learner(SlidingWindow(IncrementalSVC(class_weight="balanced", tol=1e-3), 2000)), ours=True
    ),
    "balanced forest, last 5,000": Contender(lambda: Refitted(_balanced_forest, 5000)),
    "balanced forest, last 2,000": Contender(lambda: Refitted(_balanced_forest, 2000)),
    "LightGBM, last 5,000": Contender(lambda: Refitted(_boosted(False), 5000)),
    "LightGBM balanced, last 5,000": Contender(lambda: Refitted(_boosted(True), 5000)),
    "LightGBM, last 2,000": Contender(lambda: Refitted(_boosted(False), 2000)),
    "LightGBM balanced, last 2,000": Contender(lambda: Refitted(_boosted(True), 2000)),
    "ARF, 10 trees": Contender(_river(_arf)),
    "SRP, 10 trees": Contender(_river(_srp)),
    "leveraging bagging, 10 trees": Contender(_river(_leveraging_bagging)),
    "adaptive Hoeffding tree": Contender(_river(_adaptive_tree)),
    "logistic regression": Contender(_river(_logistic, scale=True)),
    "logistic regression, undersampled": Contender(_river(_logistic_undersampled, scale=True)),
    "SGD": Contender(lambda: Learner(SklearnPeer(SGDClassifier(loss="log_loss", random_state=0)))),
}
