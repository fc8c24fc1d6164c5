"""Contenders of ``streams.py`` and ``survey.py``: learners, their scores and their thresholds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from moa_client import MoaClient
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from stream_data import FloatArray, IntArray

from steelyard import IncrementalSVC, ProximalSVC, StreamClassifier
from steelyard.evaluation import RiverPeer, SklearnPeer
from steelyard.windowing import Refit, SlidingWindow


class Learner:
    """Common interface of the contenders: a classifier with ``partial_fit``, its scores and its threshold."""

    def __init__(self, model: Any, own_threshold: float = 0.0) -> None:
        self.model, self.own_threshold = model, own_threshold

    def rows_until_change(self) -> int:
        """Number of rows that can be learned before predictions change."""
        return 0

    def learn(self, X: FloatArray, y: IntArray) -> None:
        self.model.partial_fit(X, y)

    def scores(self, X: FloatArray) -> FloatArray:
        """Return the scores of class 1, or zeros before both classes are known."""
        try:
            known = len(self.model.classes_) == 2
        except (AttributeError, ValueError):
            known = False
        if not known:
            return np.full(len(X), self.own_threshold)
        if hasattr(self.model, "decision_function"):
            return np.asarray(self.model.decision_function(X))
        return np.asarray(self.model.predict_proba(X))[:, 1]


class Refitted(Learner):
    """Batch classifier, refitted on the last rows every 500 rows (:class:`steelyard.windowing.Refit`)."""

    def __init__(self, make: Callable[[], Any], window: int, every: int = 500) -> None:
        super().__init__(Refit(make(), every, window), 0.5)

    def rows_until_change(self) -> int:
        """Number of rows that can be learned before predictions change: until the next refit."""
        return int(self.model.n_rows_until_fit_) if hasattr(self.model, "classes_") else 0

    def scores(self, X: FloatArray) -> FloatArray:
        if not hasattr(self.model, "classes_"):
            return np.full(len(X), self.own_threshold)
        return np.asarray(self.model.predict_proba(X))[:, 1]


class DrawnNaiveBayes(GaussianNB):
    """Naive Bayes that ignores empty samples, for which scikit-learn raises an error.

    UOB may draw no row of a chunk, because it draws few rows of the frequent class. If this happens in the
    first chunk, all rows are used.
    """

    def partial_fit(self, X: FloatArray, y: IntArray, classes: Any = None, sample_weight: Any = None) -> Any:
        if sample_weight is not None and not np.any(sample_weight):
            if hasattr(self, "classes_"):
                return self
            sample_weight = None
        return super().partial_fit(X, y, classes, sample_weight)


class StreamLearnEnsemble(Learner):
    """Ensemble of stream-learn with ten naive Bayes members.

    If a chunk has only one class, these ensembles overwrite its first labels. Rows are therefore buffered
    until both classes have rows.
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        # stream-learn 0.9.2 imports the package wget (for downloads) without declaring it as a dependency.
        sys.modules.setdefault("wget", ModuleType("wget"))
        from strlearn import ensembles

        super().__init__(getattr(ensembles, name)(DrawnNaiveBayes(), n_estimators=10), 0.5)
        np.random.seed(seed)  # noqa: NPY002  the ensembles draw from the global generator
        self._waiting: list[tuple[FloatArray, IntArray]] = []

    def learn(self, X: FloatArray, y: IntArray) -> None:
        self._waiting.append((X, y))
        rows, labels = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
        if len(np.unique(labels)) == 2:
            self.model.partial_fit(rows, labels, classes=np.array([0, 1]))
            self._waiting.clear()


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


def _logistic_sampled(sampler: str) -> Callable[[], Any]:
    def make() -> Any:
        from river import imblearn, linear_model

        model = linear_model.LogisticRegression()
        if sampler == "HardSamplingClassifier":
            return imblearn.HardSamplingClassifier(model, p=0.1, size=40, seed=1)
        return getattr(imblearn, sampler)(model, desired_dist={False: 0.5, True: 0.5}, seed=1)

    return make


# -- contenders -------------------------------------------------------------------------------------------

OURS = "StreamClassifier"


@dataclass(frozen=True)
class Contender:
    """Contender: a learner that is compared with others.

    Attributes
    ----------
    name : str
        Name in tables.
    make : callable
        Function that returns a learner with ``learn``, ``scores`` and ``own_threshold``.
    ours : bool
        Whether the learner belongs to this package.
    moa : str, optional
        Command line of a learner of MOA, which ``client`` runs.
    """

    name: str
    make: Callable[[], Any] = Learner
    ours: bool = False
    moa: str | None = None
    client: MoaClient | None = None


_ARF = "moa.classifiers.meta.AdaptiveRandomForest -s 10"
_META = "moa.classifiers.meta"
_TREE = "moa.classifiers.trees.HoeffdingTree"

MOA_LEARNERS = {
    "MOA's ARF, 10 trees": _ARF,
    "MOA's SRP, 10 trees": f"{_META}.StreamingRandomPatches -s 10",
    "MOA's LB, 10 trees": f"{_META}.LeveragingBag -s 10",
    "MOA's OBA, 10 trees": f"{_META}.OzaBagAdwin -s 10",
    "MOA's C-SMOTE of ARF": f"{_META}.imbalanced.CSMOTE -l ({_ARF})",
    "MOA's OADA, 10 trees": f"{_META}.imbalanced.OnlineAdaBoost -l {_TREE} -s 10",
    "MOA's OADAC2, 10 trees": f"{_META}.imbalanced.OnlineAdaC2 -l {_TREE} -s 10",
    "MOA's OUOB, 10 trees": f"{_META}.imbalanced.OnlineUnderOverBagging -l {_TREE} -s 10",
}
"""Learners of MOA by the names of the survey: OBA is bagging with ADWIN, OADA is boosting, OUOB is under- and
overbagging.

All ensembles have ten trees. By default, the members of the last three are forests of a hundred trees, which
would take 4 to 7 milliseconds per row even with ten trees. Here their members are Hoeffding trees, as in the
other ensembles.
"""


def moa_contenders(client: MoaClient, names: Iterable[str] = MOA_LEARNERS) -> list[Contender]:
    """Return contenders for learners of MOA, which a worker process runs."""
    return [Contender(name, moa=MOA_LEARNERS[name], client=client) for name in names]


STREAM_LEARN = [
    Contender(f"stream-learn's {name}", lambda name=name: StreamLearnEnsemble(name))
    for name in ("ROSE", "KUE", "OOB", "UOB")
]


def _window_svc() -> Any:
    return Learner(SlidingWindow(IncrementalSVC(class_weight="balanced", tol=1e-3), 2000))


def _sgd() -> Any:
    return Learner(SklearnPeer(SGDClassifier(loss="log_loss", random_state=0)))


CONTENDERS = [
    Contender(OURS, lambda: Learner(StreamClassifier()), ours=True),
    Contender("ProximalSVC", lambda: Learner(ProximalSVC(threshold="gmean")), ours=True),
    Contender("IncrementalSVC, last 2,000", _window_svc, ours=True),
    Contender("balanced forest, last 5,000", lambda: Refitted(_balanced_forest, 5000)),
    Contender("balanced forest, last 2,000", lambda: Refitted(_balanced_forest, 2000)),
    Contender("LightGBM, last 5,000", lambda: Refitted(_boosted(False), 5000)),
    Contender("LightGBM balanced, last 5,000", lambda: Refitted(_boosted(True), 5000)),
    Contender("LightGBM, last 2,000", lambda: Refitted(_boosted(False), 2000)),
    Contender("LightGBM balanced, last 2,000", lambda: Refitted(_boosted(True), 2000)),
    Contender("river's ARF, 10 trees", _river(_arf)),
    Contender("river's SRP, 10 trees", _river(_srp)),
    Contender("river's LB, 10 trees", _river(_leveraging_bagging)),
    Contender("river's HAT", _river(_adaptive_tree)),
    Contender("logistic regression", _river(_logistic, scale=True)),
    Contender(
        "logistic regression, undersampled", _river(_logistic_sampled("RandomUnderSampler"), scale=True)
    ),
    Contender("logistic regression, oversampled", _river(_logistic_sampled("RandomOverSampler"), scale=True)),
    Contender(
        "logistic regression, hard rows", _river(_logistic_sampled("HardSamplingClassifier"), scale=True)
    ),
    Contender("SGD", _sgd),
]
