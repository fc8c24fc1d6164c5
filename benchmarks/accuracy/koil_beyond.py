"""Compare possible extensions of KOIL on the files and splits of the authors.

    python benchmarks/accuracy/koil_beyond.py --data-dir DIR [--sets glass,heart] [--runs 20]

Every variant learns the training rows of each run in one pass in the order of the file, with C = 10 and the
default parameters. The script prints the mean AUC and, for learners of the library, the mean G-mean.

gamma          1 (default), or "median": 1 / the median squared distance of the first 100 rows
falling rate   0.1 / (1 + t / 20) instead of a constant 0.01, never below 0.01
adaptive rate  0.01 / the root of the running mean of the squared gradient (1 at the beginning)
merging        a full buffer (including the new sample) merges its two nearest vectors into one
threshold      zero, or the threshold with the best G-mean on the support vectors

The adaptive rate and merging are extensions of a simple implementation of the algorithm (`PlainKoil`). The
results of the unchanged `PlainKoil` are printed too. Except for the random numbers, it is KOIL with gamma =
"median" and the policy "reservoir++".
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from steelyard import KOIL, MultiKernelKOIL
from steelyard.kernels import Kernel

SETS = (
    "sonar,australian,heart,ionosphere,diabetes,glass,german,svmguide2,segment,satimage,vowel,letter,poker,"
    "s4,s10,s50,s100"
)
C, RATE, BUDGET, NEIGHBOURS = 10.0, 0.01, 100, 10
CHUNK, FIRST = 20, 100


class PlainKoil:
    """Simple implementation of KOIL with the hinge loss, and extensions."""

    def __init__(self, *, merging: bool = False, adaptive: bool = False) -> None:
        self.merging, self.adaptive = merging, adaptive

    def fit(self, X: np.ndarray, y: np.ndarray) -> PlainKoil:
        self.gamma = Kernel(gamma="median").resolve(X[:FIRST]).gamma
        self.rng = np.random.default_rng(0)
        self.vectors = np.zeros((2 * BUDGET, X.shape[1]))  # negative vectors first
        self.matrix = np.zeros((2 * BUDGET, 2 * BUDGET))
        self.weights = np.zeros(2 * BUDGET)
        self.used, self.seen = np.zeros(2 * BUDGET, bool), [0, 0]
        self.square, self.steps = 0.0, 0
        for x, sign in zip(X, np.where(y == 1, 1, -1).tolist(), strict=True):
            self.learn(x, sign)
        return self

    def similarities(self, x: np.ndarray) -> np.ndarray:
        differences = self.vectors - x
        return np.exp(-self.gamma * np.einsum("ij,ij->i", differences, differences)) * self.used

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return np.array([self.similarities(x) @ self.weights for x in X])

    def rate(self, gradient: float) -> float:
        if not self.adaptive:
            return RATE
        self.steps += 1
        self.square += (gradient / NEIGHBOURS) ** 2
        return RATE / np.sqrt((1.0 + self.square) / (1.0 + self.steps))

    def learn(self, x: np.ndarray, sign: int) -> None:
        own = slice(BUDGET, 2 * BUDGET) if sign > 0 else slice(BUDGET)
        other = slice(BUDGET) if sign > 0 else slice(BUDGET, 2 * BUDGET)
        self.seen[sign > 0] += 1
        similar = self.similarities(x)
        losses = 1.0 - sign * (similar @ self.weights - self.matrix[other] @ self.weights)
        violators = np.flatnonzero(self.used[other] & (losses > 0.0))
        if len(violators) > NEIGHBOURS:
            violators = violators[np.argsort(-similar[other][violators], kind="stable")[:NEIGHBOURS]]
        rate = self.rate(float(len(violators)))
        self.weights *= 1.0 - rate
        first = not self.used[own].any() or not self.used[other].any()
        weight = rate * C * sign * (len(violators) or (1 if first else 0))
        self.weights[other.start or 0 :][violators] -= rate * C * sign
        if weight == 0.0:
            return
        free = np.flatnonzero(~self.used[own])
        start = own.start or 0
        if len(free):
            self.put(start + int(free[0]), x, weight)
        elif self.merging:
            self.merge(own, x, weight, similar)
        else:
            self.replace(own, x, weight, similar, self.seen[sign > 0])

    def put(self, slot: int, x: np.ndarray, weight: float) -> None:
        self.vectors[slot], self.weights[slot], self.used[slot] = x, weight, True
        self.matrix[slot] = self.matrix[:, slot] = self.similarities(x)

    def replace(self, own: slice, x: np.ndarray, weight: float, similar: np.ndarray, seen: int) -> None:
        """Apply the policy "reservoir++"."""
        start, place = own.start or 0, int(self.rng.integers(seen))
        if place >= BUDGET:
            self.weights[start + int(np.argmax(similar[own]))] += weight
            return
        slot = start + place
        lost, near = self.weights[slot], self.matrix[slot, own].copy()
        near[place] = similar[slot]
        self.put(slot, x, weight)
        self.weights[start + int(np.argmax(near))] += lost

    def merge(self, own: slice, x: np.ndarray, weight: float, similar: np.ndarray) -> None:
        """Replace the two nearest vectors by their weighted mean. Its weight preserves its score."""
        start = own.start or 0
        pairs = np.triu(self.matrix[own, own], 1)
        i, j = np.unravel_index(int(np.argmax(pairs)), pairs.shape)
        if similar[own].max() >= pairs[i, j]:
            self.put(*self.joined(start + int(np.argmax(similar[own])), x, weight))
            return
        a, b = start + int(i), start + int(j)
        self.put(*self.joined(a, self.vectors[b].copy(), self.weights[b]))
        self.put(b, x, weight)

    def joined(self, slot: int, x: np.ndarray, weight: float) -> tuple[int, np.ndarray, float]:
        old, z = self.weights[slot], self.vectors[slot]
        total = abs(old) + abs(weight)
        place = (abs(old) * z + abs(weight) * x) / total if total else z
        return (
            slot,
            place,
            sum(
                w * float(np.exp(-self.gamma * np.sum((v - place) ** 2))) for v, w in ((z, old), (x, weight))
            ),
        )


def falling_rate(X: np.ndarray, y: np.ndarray) -> KOIL:
    model = KOIL(C, gamma="median", random_state=0)
    model.partial_fit(X[:FIRST], y[:FIRST])  # computes gamma, which a new model uses
    model = KOIL(C, gamma=model._kernels[0].gamma, random_state=0)
    for start in range(0, len(y), CHUNK):
        model.set_params(learning_rate=max(RATE, 0.1 / (1.0 + start / 20.0)))
        model.partial_fit(X[start : start + CHUNK], y[start : start + CHUNK])
    return model


def auto(X: np.ndarray, y: np.ndarray, **parameters: object) -> KOIL:
    model = KOIL(C, gamma="median", random_state=0, **parameters)
    return model.partial_fit(X[:FIRST], y[:FIRST]).partial_fit(X[FIRST:], y[FIRST:])


VARIANTS = {
    "gamma=1": lambda X, y: KOIL(C, random_state=0).fit(X, y),
    "gamma=auto": auto,
    "  threshold zero": lambda X, y: auto(X, y, threshold="zero"),
    "  falling rate": falling_rate,
    "  plain": lambda X, y: PlainKoil().fit(X, y),
    "  adaptive rate": lambda X, y: PlainKoil(adaptive=True).fit(X, y),
    "  merging": lambda X, y: PlainKoil(merging=True).fit(X, y),
    "MultiKernelKOIL sign": lambda X, y: MultiKernelKOIL(C=C, random_state=0).fit(X, y),
    "MultiKernelKOIL score": lambda X, y: MultiKernelKOIL(combine="score", C=C, random_state=0).fit(X, y),
}


def gmean(truth: np.ndarray, labels: np.ndarray) -> float:
    return float(np.sqrt(np.mean(labels[truth == 1] == 1) * np.mean(labels[truth != 1] != 1)))


def measure(X: np.ndarray, y: np.ndarray, folds: np.ndarray, variant: str, n_runs: int) -> str:
    """Return the mean AUC and G-mean over the runs."""
    areas, means = [], []
    for number in range(n_runs):
        partition, fold = divmod(number, 5)
        test = folds[:, partition] == fold + 1
        model = VARIANTS[variant](X[~test], y[~test])
        areas.append(roc_auc_score(y[test], model.decision_function(X[test])))
        if not isinstance(model, PlainKoil):
            means.append(gmean(y[test], model.predict(X[test])))
    return f"{np.mean(areas):6.3f}" + (f"/{np.mean(means):.3f}" if means else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    print(f"{'AUC/G-mean':12}" + "".join(f"{variant.strip():>23}" for variant in VARIANTS))
    for name in options.sets.split(","):
        table = pd.read_csv(options.data_dir / f"koil_{name}.csv.gz")
        folds = np.load(options.data_dir / f"koil_{name}.splits.npz")["idx_cv"]
        X, y = table.iloc[:, :-1].to_numpy(float), table["target"].to_numpy()
        cells = [measure(X, y, folds, variant, options.runs) for variant in VARIANTS]
        print(f"{name:12}" + "".join(f"{cell:>23}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
