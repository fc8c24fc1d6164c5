"""Sections 2.4 and 6: other class weights, on ten real datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from papers.arrays import Floats, Labels
from papers.context import Context
from papers.dcil.common import THESIS
from papers.experiment import experiment
from papers.result import Result, Row, paragraphs
from steelyard.kernels import Kernel
from steelyard.metrics import g_mean_score
from steelyard.proximal import ProximalSVC
from steelyard.thresholds import gmean_threshold

__all__ = ["ZSVM", "PartitionEnsemble", "membership_weights", "other_weights", "spread_weights"]


# Name -> dataset and positive class.
SETS: dict[str, tuple[str, Any]] = {
    "abalone": ("abalone", 19),
    "car": ("car", "good"),
    "euthyroid": ("euthyroid_2000", "sick-euthyroid"),
    "german": ("koil_german", 1),
    "glass": ("glass", 7),
    "mammography": ("mammography", 1),
    "oil": ("oil_spill", 1),
    "satimage": ("koil_satimage", 1),
    "vowel": ("koil_vowel", 1),
    "yeast": ("yeast", "ME2"),
}
MOST_ROWS = 3000  # maximum number of training rows


class ZSVM:
    """z-SVM, equation (2.24): the multipliers of support vectors of the rare class are multiplied by z.

    z maximizes the G-mean on the training rows, as Imam, Ting and Kamruzzaman (2006) choose it.
    """

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Floats, y: Labels) -> ZSVM:
        """Train an SVM, then select z."""
        self.kernel = Kernel("rbf", gamma="scale").resolve(X)
        self.svc = SVC(C=self.C, gamma=self.kernel.gamma).fit(X, y)
        rare, other = self._sides(X)
        # z * rare + other > 0 if -other / rare < z, so z is a threshold of the ratio -other / rare.
        ratio = -other / np.maximum(rare, 1e-12)
        self.z = -gmean_threshold(-ratio[y == 0], -ratio[y == 1]) if rare.any() else 1.0
        return self

    def _sides(self, X: Floats) -> tuple[Floats, Floats]:
        """Return the sums over the support vectors of each class, without the intercept, as in (2.24)."""
        svc, dual = self.svc, self.svc.dual_coef_[0]
        K = np.exp(-svc._gamma * np.square(X[:, None] - svc.support_vectors_).sum(axis=2))
        return K[:, dual > 0] @ dual[dual > 0], K[:, dual < 0] @ dual[dual < 0]

    def predict(self, X: Floats) -> Labels:
        """Return labels."""
        rare, other = self._sides(X)
        return (self.z * rare + other > 0).astype(np.int64)


def spread_weights(X: Floats, y: Labels, power: float) -> dict[int, float]:
    """Return class weights: 1 / count times a power of the mean deviation.

    Chapter 6 of the thesis asks for weights that depend on the scatter of a class and gives no formula. With
    a power of 1 the class with more scatter has more weight, with -1 the class with less scatter. With 0 the
    weights are those of "balanced".
    """
    spreads = {label: float(np.sqrt(X[y == label].var(axis=0).mean())) for label in (0, 1)}
    total = sum(spreads.values()) or 1.0
    return {
        label: len(y) / (2.0 * float((y == label).sum())) * (max(spreads[label], 1e-9) * 2.0 / total) ** power
        for label in (0, 1)
    }


def _proximal(X: Floats, y: Labels, **options: Any) -> Any:
    return ProximalSVC(**options).fit(X, y)


def _bagged(X: Floats, y: Labels) -> Any:
    """Return an ensemble of ten SVMs, each trained on all rare rows and as many frequent ones (2.4.2)."""
    from imblearn.ensemble import BalancedBaggingClassifier

    return BalancedBaggingClassifier(SVC(), bootstrap=False, random_state=0).fit(X, y)


class PartitionEnsemble:
    """Partition ensemble (section 2.4.2): the frequent class is divided into r disjoint parts.

    One SVM learns each part with all rows of the rare class, and the majority of the r predictions counts.
    """

    def fit(self, X: Floats, y: Labels) -> PartitionEnsemble:
        """Train one SVM per part of the frequent class. A part is about as large as the rare class."""
        rare, frequent = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
        n_parts = max(1, round(len(frequent) / len(rare)))
        parts = np.array_split(np.random.default_rng(0).permutation(frequent), n_parts)
        chosen = [np.concatenate([rare, part]) for part in parts]
        self.members = [SVC().fit(X[rows], y[rows]) for rows in chosen]
        return self

    def predict(self, X: Floats) -> Labels:
        """Return the label that most of the SVMs predict, or the rare class in a tie."""
        votes = np.mean([member.predict(X) for member in self.members], axis=0)
        return (votes >= 0.5).astype(np.int64)


def membership_weights(X: Floats, y: Labels) -> Floats:
    """Return the row weights of FSVM-CIL (Batuwita and Palade 2010): memberships by distance to the centre.

    The membership 1 - d / (largest d) falls linearly with the distance d of a row to the mean of its class.
    Weights of the frequent class are multiplied by the ratio of the class sizes.
    """
    weights = np.empty(len(y))
    for label in (0, 1):
        mine = y == label
        distances = np.sqrt(np.square(X[mine] - X[mine].mean(axis=0)).sum(axis=1))
        weights[mine] = 1.0 - distances / (distances.max() + 1e-6)
    weights[y == 0] *= (y == 1).sum() / (y == 0).sum()
    return weights


def _boosted(X: Floats, y: Labels) -> Any:
    """Return EasyEnsemble: ten AdaBoost ensembles of stumps on balanced subsets."""
    from imblearn.ensemble import EasyEnsembleClassifier

    return EasyEnsembleClassifier(random_state=0).fit(X, y)


WAYS: dict[str, Callable[[Floats, Labels], Any]] = {
    "SVM": lambda X, y: SVC().fit(X, y),
    "SVM, balanced penalties": lambda X, y: SVC(class_weight="balanced").fit(X, y),
    "z-SVM": lambda X, y: ZSVM().fit(X, y),
    "FSVM-CIL": lambda X, y: SVC().fit(X, y, sample_weight=membership_weights(X, y)),
    "SVMs on balanced parts": _bagged,
    "partition ensemble": lambda X, y: PartitionEnsemble().fit(X, y),
    "EasyEnsemble": _boosted,
    "LPSVM": lambda X, y: _proximal(X, y, class_weight=None),
    "wLPSVM": lambda X, y: _proximal(X, y, class_weight="balanced"),
    "by spread": lambda X, y: _proximal(X, y, class_weight=spread_weights(X, y, 1.0)),
    "by inverse spread": lambda X, y: _proximal(X, y, class_weight=spread_weights(X, y, -1.0)),
    "wLPSVM, threshold for the G-mean": lambda X, y: _proximal(
        X, y, class_weight="balanced", threshold="gmean"
    ),
}


@dataclass(frozen=True, eq=False)
class _Work:
    name: str
    X: Floats
    y: Labels
    n_splits: int
    seed: int

    def key(self) -> dict[str, Any]:
        return {
            "experiment": "dcil-weights", "set": self.name, "n_splits": self.n_splits, "seed": self.seed,
            "ways": list(WAYS), "data": float(self.X.sum()),
        }  # fmt: skip

    def g_means(self) -> dict[str, list[float]]:
        """Return the G-mean of every method on every split."""
        most = min(MOST_ROWS, int(0.7 * len(self.y)))
        splits = StratifiedShuffleSplit(self.n_splits, train_size=most, random_state=self.seed)
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for train, test in splits.split(self.X, self.y):
            test = test[:5000]
            scaler = StandardScaler().fit(self.X[train])
            X, asked = scaler.transform(self.X[train]), scaler.transform(self.X[test])
            for way, make in WAYS.items():
                answers = make(X, self.y[train]).predict(asked)
                found[way].append(float(g_mean_score(self.y[test], answers)))
        return found


@experiment("dcil-weights", paper=THESIS, title="Sections 2.4 and 6: other ways to weight two classes")
def other_weights(context: Context) -> Result:
    names = {file: name for name, (file, _) in list(SETS.items())[: context.pick(10, 10, 2)]}
    work = [
        _Work(
            names[file], data.numbers(nominal="onehot"), data.binary(SETS[names[file]][1]),
            context.pick(10, 3, 2), context.integer("weights"),
        )
        for file, data in context.sets(names)
    ]  # fmt: skip
    answers = context.map(_Work.g_means, work, "sets", key=_Work.key)
    rows = [
        Row.of(one.name, way, "G-mean", values)
        for one, found in zip(work, answers, strict=True)
        for way, values in found.items()
    ]
    return Result(rows, [*_NOTES, *_summary(rows)], layout="wide") if rows else Result()


def _summary(rows: list[Row]) -> list[str]:
    means = {(row.subject, row.learner): row.mean for row in rows}
    sets = list(dict.fromkeys(row.subject for row in rows))
    sentences = []
    for way in WAYS:
        own = np.array([means[name, way] for name in sets])
        against = np.array([means[name, "wLPSVM"] for name in sets])
        ahead = int((own > against + 0.002).sum())
        behind = int((own < against - 0.002).sum())
        compared = "" if way == "wLPSVM" else f" (ahead on {ahead}, behind on {behind})"
        sentences.append(f"{way} {own.mean():.3f}{compared}")
    return [
        (
            f"Mean G-mean over {len(sets)} datasets, and the number of datasets on which a method is ahead "
            f"of or behind wLPSVM: {'; '.join(sentences)}."
        )
    ]


_NOTES = paragraphs(
    """
    The thesis weights classes by their counts and reviews z-SVM (2.24). It names as future work weights that
    depend on the scatter of a class (chapter 6), without a formula. "By spread" uses such a formula: the
    weight of a class is also proportional, or inversely proportional, to the mean deviation of its
    standardized features. Nothing is tuned; SVMs have C = 1 and an rbf kernel with gamma "scale". 70 % of the
    rows, at most 3,000, are for training.

    Methods of the review: "partition ensemble" (2.4.2) divides the frequent class into disjoint parts as
    large as the rare class and trains one SVM per part; the SVMs vote. "SVMs on balanced parts" is
    BalancedBaggingClassifier of imbalanced-learn: ten SVMs, each on all rare rows and equally many random
    frequent rows, which may overlap. EasyEnsemble is by Liu, Wu and Zhou (2.4.1), as imbalanced-learn
    implements it. FSVM-CIL (2.4.3) weights rows by their distance to the centre of their class, with linear
    decay, and by the ratio of the classes.

    Weights by spread would become `class_weight="distribution"` if they were better than "balanced" on most
    datasets, and better than `threshold="gmean"`, which corrects the same error by the threshold.
    """
)
