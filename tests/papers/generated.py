"""Generated datasets with the names, columns and classes of the real ones, for tests without data files."""

from __future__ import annotations

import zlib

import numpy as np
import pandas as pd

from steelyard.datasets import Dataset, Splits
from steelyard.datasets.catalog import CATALOG

MOST_ROWS = 4200

CAR = {
    "buying": ["low", "med", "high", "vhigh"],
    "maint": ["low", "med", "high", "vhigh"],
    "doors": ["2", "3", "4", "5more"],
    "persons": ["2", "4", "more"],
    "lug_boot": ["small", "med", "big"],
    "safety": ["low", "med", "high"],
}
CLASSES = {
    "abalone": {1: 60, 4: 100, 7: 1000, 9: 1700, 11: 900, 15: 385, 19: 32},
    "digits": dict.fromkeys(range(10), 180),
    "kdd99_10pct": {"normal": 1000, "neptune": 3000, "rootkit": 10},
    "nsl_kdd_train20": {"normal": 2000, "neptune": 1500},
    "nsl_kdd_test": {"normal": 1000, "neptune": 1200},
}
TOPICS = ("wheat", "corn", "coffee", "soybean", "cocoa")


def generated(name: str) -> Dataset:
    """Return a generated dataset. Classes are slightly separated, and rare classes stay rare."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    kind = CATALOG[name].kind
    if kind == "images":
        return _faces(name, rng)
    if kind == "texts":
        return _texts(name, rng)
    return _table(name, rng)


def generated_splits(name: str) -> Splits:
    """Return four partitions into five folds with inner folds, in the format of the files of the authors."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    rows = len(generated(name).X)
    partitions = [rng.permutation(np.arange(rows) % 5 + 1) for _ in range(4)]
    inner = [rng.permutation(np.arange(5 * rows) % 5 + 1) for _ in range(4)]
    return Splits(name, np.column_stack(partitions).astype(np.int8), np.column_stack(inner).astype(np.int8))


def _table(name, rng):
    entry = CATALOG[name]
    counts = CLASSES.get(name) or dict(entry.classes) or {0: entry.rows}
    total = sum(counts.values())
    shrink = min(1.0, MOST_ROWS / total)
    labels = [label for label, n in counts.items() for _ in range(max(int(n * shrink), min(n, 30)))]
    y = np.array(labels)[rng.permutation(len(labels))]
    apart = 1.4 / np.sqrt(
        entry.features
    )  # about two standard deviations between two classes, for any number of columns
    centres = {label: apart * rng.normal(size=entry.features) for label in counts}
    X = np.array([centres[label] for label in y.tolist()]) + rng.normal(size=(len(y), entry.features))
    if name == "msweb":
        columns = [f"v{1000 + number}" for number in range(entry.features)]
        return Dataset(name, pd.DataFrame((X > 1.0).astype(int), columns=columns), None, "generated")
    if name == "car":
        ranks = {c: np.clip(X[:, k] + 1.5, 0, len(levels) - 1) for k, (c, levels) in enumerate(CAR.items())}
        table = pd.DataFrame({c: np.array(CAR[c])[ranks[c].astype(int)] for c in CAR})
        return Dataset(name, table, y, "generated")
    if name.startswith("koil_"):
        X = (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    table = pd.DataFrame(X, columns=[f"f{number}" for number in range(entry.features)])
    if name == "abalone":
        table["f0"] = np.array(["F", "I", "M"])[rng.integers(3, size=len(y))]
        table = table.rename(columns={"f0": "sex"})
    return Dataset(name, table, y, "generated")


def _faces(name, rng):
    people = np.repeat(np.arange(40), 10)
    faces = rng.normal(size=(40, 14, 12))
    small = faces[people] + 0.7 * rng.normal(size=(400, 14, 12))
    images = np.clip(128 + 40 * np.kron(small, np.ones((1, 8, 8)))[:, :112, :92], 0, 255).astype(np.uint8)
    return Dataset(name, images, people, "generated")


def _texts(name, rng):
    common = [f"word{number}" for number in range(60)]
    texts, topics = [], []
    for number in range(250):
        own = [t for k, t in enumerate(TOPICS) if k == number % 5 or rng.random() < 0.05]
        words = [*rng.choice(common, 30), *(f"{t}{w}" for t in own for w in rng.integers(12, size=8))]
        texts.append(" ".join(words))
        topics.append(tuple(own))
    y = np.empty(len(topics), dtype=object)
    y[:] = topics
    return Dataset(name, texts, y, "generated")
