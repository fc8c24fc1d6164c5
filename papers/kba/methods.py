"""Methods of the KBA paper: each is a function from a split to scores of its test rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from papers.arrays import Floats, Labels, Rows
from steelyard.alignment import AlignedSVC
from steelyard.kernels import Kernel
from steelyard.metrics import g_mean_score

__all__ = [
    "PAPER_NAME",
    "PENALTIES",
    "PRINTED",
    "WIDTHS",
    "Parts",
    "Variant",
    "aligned",
    "measures",
    "nested",
    "oversampled",
    "parts_of",
    "plain",
    "printed",
]

PAPER_NAME = "Kernel boundary alignment"
PRINTED: dict[str, Any] = {"variant": "printed", "early_stopping": False, "max_iter": 1, "shift": False}

PENALTIES = (1.0, 10.0, 100.0)
WIDTHS = (0.3, 1.0, 3.0)  # gamma times the number of features, on standardised features


@dataclass(frozen=True)
class Parts:
    """Training rows, test rows and a kernel."""

    X: Floats
    y: Labels
    asked: Floats
    kernel: Kernel

    def matrices(self) -> tuple[Floats, Floats]:
        """Return the kernel matrices of the training rows and of the test rows."""
        return self.kernel.block(self.X), self.kernel.block(self.asked, self.X)


Variant = Callable[[Parts, float], Floats]  # from a split and C to decision values of the test rows


def parts_of(X: Floats, y: Labels, train: Rows, test: Rows, width: float) -> Parts:
    """Return a split with features standardized by the training rows."""
    scaler = StandardScaler().fit(X[train])
    kernel = Kernel("laplacian", gamma=width / X.shape[1])
    return Parts(scaler.transform(X[train]), y[train], scaler.transform(X[test]), kernel)


def plain(class_weight: str | None = None) -> Variant:
    """Return an SVM. With "balanced" it has the biased penalties (BP) of the paper."""

    def scores(parts: Parts, C: float) -> Floats:
        K, K_asked = parts.matrices()
        svc = SVC(C=C, kernel="precomputed", class_weight=class_weight).fit(K, parts.y)
        return np.asarray(svc.decision_function(K_asked))

    return scores


def oversampled(percent: int, seed: int) -> Variant:
    """Return an SVM with SMOTE, which adds ``percent`` per cent to the rare rows."""

    def scores(parts: Parts, C: float) -> Floats:
        from imblearn.over_sampling import SMOTE

        rare, other = int(parts.y.sum()), int((1 - parts.y).sum())
        wanted = min(other, rare + rare * percent // 100)
        sampler = SMOTE(sampling_strategy={1: wanted}, k_neighbors=min(5, rare - 1), random_state=seed)
        X, y = sampler.fit_resample(parts.X, parts.y)
        return plain()(Parts(X, y, parts.asked, parts.kernel), C)

    return scores


def aligned(alignment: str = "kba", **options: Any) -> Variant:
    """Return a function that fits AlignedSVC and scores test rows; "act" takes rows, not a kernel matrix."""

    def scores(parts: Parts, C: float) -> Floats:
        model = AlignedSVC(C, alignment=alignment, **options)
        if alignment == "act":
            model.set_params(kernel="laplacian", gamma=parts.kernel.gamma)
            return model.fit(parts.X, parts.y).decision_function(parts.asked)
        K, K_asked = parts.matrices()
        return model.set_params(kernel="precomputed").fit(K, parts.y).decision_function(K_asked)

    return scores


def printed(**options: Any) -> Variant:
    """Return KBA as published: equations 5 and 7, always one round, no shift."""
    return aligned("kba", **PRINTED, **options)


def measures(y: Labels, scores: Floats) -> tuple[float, float]:
    """Return G-mean and AUC in per cent."""
    return 100.0 * float(g_mean_score(y, (scores > 0).astype(np.int64))), 100.0 * float(
        roc_auc_score(y, scores)
    )


def nested(
    variants: list[Variant],
    X: Floats,
    y: Labels,
    split: tuple[Rows, Rows],
    *,
    penalties: tuple[float, ...] = PENALTIES,
    widths: tuple[float, ...] = WIDTHS,
    folds: int = 3,
    seed: int = 0,
) -> tuple[float, float]:
    """Select variant, C and width by cross-validation on the training rows, then return the test results.

    The combination with the highest mean of G-mean and AUC is selected.
    """
    train, test = split
    inner = list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(X[train], y[train]))

    def quality(choice: tuple[Variant, float, float]) -> float:
        variant, C, width = choice
        found = [
            measures(y[train[out]], variant(parts_of(X, y, train[part], train[out], width), C))
            for part, out in inner
        ]
        return float(np.mean(found))

    choices = list(product(variants, penalties, widths))
    variant, C, width = max(choices, key=quality) if len(choices) > 1 else choices[0]
    return measures(y[test], variant(parts_of(X, y, train, test, width), C))
