"""Best AUC of many learners on abalone 19 and yeast ME2, on the splits of kba-tables-2-3.

On these two datasets the AUC of KBA is below that of the paper. This script shows whether other learners have
a higher AUC. Nothing is tuned: each learner has a few settings, and the result of the setting that is best
*on the test rows* is shown. It is an upper bound of the result with tuning.

    python benchmarks/accuracy/aligned_rankings.py --data-dir DIR [--sets abalone,yeast] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

sys.path.insert(0, str(Path(__file__).parents[2]))
from papers import Context
from papers.kba.uci import SETS, features
from steelyard import AlignedSVC, ProximalSVC
from steelyard.datasets import load

SPLITS = 7


def learners() -> Iterator[tuple[str, str, Any]]:
    """Yield name, setting and learner."""
    for C in (0.01, 1.0, 100.0):
        yield (
            "logistic regression",
            f"C={C:g}",
            LogisticRegression(C=C, class_weight="balanced", max_iter=5000),
        )
        yield "SVC, linear", f"C={C:g}", SVC(C=C, kernel="linear", class_weight="balanced", max_iter=200_000)
        yield "ProximalSVC", f"C={C:g}", ProximalSVC(C=C)
    for C in (1.0, 10.0, 1000.0):
        for gamma in (0.01, 0.1, 1.0):
            setting = f"C={C:g}, gamma={gamma:g}"
            yield "SVC, rbf", setting, SVC(C=C, gamma=gamma, class_weight="balanced")
            yield "AlignedSVC, rbf", setting, AlignedSVC(C=C, gamma=gamma, class_weight="balanced")
    for C in (1.0, 100.0):
        for gamma in (0.001, 0.01, 0.1):
            setting = f"C={C:g}, gamma={gamma:g}"
            smooth = AlignedSVC(C, kernel="laplacian", gamma=gamma, class_weight="balanced")
            yield "AlignedSVC, laplacian", setting, smooth
    yield "linear discriminant", "", LinearDiscriminantAnalysis()
    for k in (50, 200, 500):
        yield "nearest neighbours", f"k={k}", KNeighborsClassifier(k)
    for leaf in (1, 5, 20):
        options = {
            "n_estimators": 300,
            "min_samples_leaf": leaf,
            "class_weight": "balanced",
            "random_state": 0,
        }
        yield "random forest", f"leaf={leaf}", RandomForestClassifier(**options)
        yield "extra trees", f"leaf={leaf}", ExtraTreesClassifier(**options)
    for rate in (0.02, 0.1):
        boosted = HistGradientBoostingClassifier(learning_rate=rate, class_weight="balanced", random_state=0)
        yield "boosted trees", f"rate={rate:g}", boosted


def score(learner: Any, X: np.ndarray, y: np.ndarray, split: tuple[np.ndarray, np.ndarray]) -> float:
    train, test = split
    model = make_pipeline(StandardScaler(), learner).fit(X[train], y[train])
    if hasattr(model, "decision_function"):
        return 100.0 * roc_auc_score(y[test], model.decision_function(X[test]))
    return 100.0 * roc_auc_score(y[test], model.predict_proba(X[test])[:, 1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--sets", default="abalone,yeast")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run only learners whose names contain this text")
    args = parser.parse_args()
    for subject in args.sets.split(","):
        X, y = features(subject, load(SETS[subject][0], data_dir=args.data_dir))
        seed = Context(seed=args.seed).integer("kba", subject)
        splits = list(StratifiedShuffleSplit(SPLITS, test_size=1 / 7, random_state=seed).split(X, y))
        best: dict[str, tuple[float, float, str]] = {}
        for name, setting, learner in learners():
            if args.only not in name:
                continue
            areas = [score(learner, X, y, split) for split in splits]
            best[name] = max(best.get(name, (0.0, 0.0, "")), (np.mean(areas), np.std(areas), setting))
        print(f"{subject}: {len(y)} rows, {y.sum()} rare")
        for name, (mean, deviation, setting) in sorted(best.items(), key=lambda item: -item[1][0]):
            print(f"  {name:24s}{mean:6.1f} +- {deviation:4.1f}   {setting}", flush=True)


if __name__ == "__main__":
    main()
