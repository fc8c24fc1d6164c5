"""AlignedSVC beside SVC, biased penalties, SMOTE and ACT on the six UCI sets of its paper.

Repeats of a stratified 6:1 split; C and the width of a Laplacian kernel are chosen inside the training part
(stratified folds, mean of G-mean and AUC) from one grid for all methods; for AlignedSVC and ACT so is
``class_weight``, None or "balanced". With --readings the tuning is left out and the ways to read the paper
are compared at fixed parameters.

    python benchmarks/accuracy/aligned_uci.py --data-dir DIR [--sets glass,yeast] [--repeats 7] [--quick]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from imblearn.over_sampling import SMOTE
from scipy.stats import ttest_rel
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from steelyard import AlignedSVC
from steelyard.alignment.view import Reading
from steelyard.kernels import Kernel
from steelyard.metrics import g_mean_score

# File, class that is looked for, percentage of SMOTE in the paper.
SETS = {
    "segmentation": ("segmentation_210", "BRICKFACE", 200),
    "glass": ("glass", "7", 200),
    "euthyroid": ("euthyroid_2000", "sick-euthyroid", 200),
    "car": ("car", "good", 400),
    "yeast": ("yeast", "ME2", 400),
    "abalone": ("abalone", "19", 1000),
}
# The paper's G-means and AUCs of SVM, SMOTE, ACT and KBA.
PAPER = {
    "segmentation": ((98.1, 98.1, 98.1, 98.1), (100.0, 100.0, 100.0, 100.0)),
    "glass": ((89.9, 91.8, 93.7, 93.7), (96.9, 97.1, 98.5, 98.9)),
    "euthyroid": ((92.8, 92.4, 94.5, 94.6), (96.6, 96.0, 98.2, 98.8)),
    "car": ((99.0, 99.0, 99.9, 99.9), (99.8, 99.8, 99.9, 99.9)),
    "yeast": ((59.0, 69.9, 78.5, 82.2), (89.2, 91.1, 93.8, 95.2)),
    "abalone": ((0.0, 0.0, 51.9, 57.8), (62.5, 62.5, 80.2, 87.4)),
}
ORDERED = {"low": 0, "small": 0, "med": 1, "high": 2, "big": 2, "vhigh": 3, "more": 6, "5more": 5}
WIDTHS = (0.3, 1.0, 3.0)  # gamma times the number of features, on standardised features
PENALTIES = (1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Parts:
    """Training and test rows of one split, as tables and as kernel values."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    kernel: Kernel

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        return self.kernel.block(self.X), self.kernel.block(self.X_test, self.X)


Method = Callable[[Parts, float], np.ndarray]  # to decision values of the test rows


def load(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and 1 for the class that is looked for."""
    file, label, _ = SETS[name]
    table = pd.read_csv(folder / f"{file}.csv.gz", dtype={"doors": str, "persons": str})
    y = (table.pop(table.columns[-1]).astype(str) == label).to_numpy().astype(int)
    columns = [_numbers(table[column], ordered=name == "car") for column in table]
    return np.hstack(columns), y


def _numbers(column: pd.Series, *, ordered: bool) -> np.ndarray:
    if ordered:
        return column.map(lambda value: ORDERED.get(value) if value in ORDERED else float(value)).to_numpy(
            float
        )[:, None]
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(float)[:, None]
    return pd.get_dummies(column, drop_first=column.nunique() == 2).to_numpy(float)


def svc(class_weight: str | None) -> Method:
    def run(parts: Parts, C: float) -> np.ndarray:
        K, K_test = parts.matrices()
        return (
            SVC(C=C, kernel="precomputed", class_weight=class_weight)
            .fit(K, parts.y)
            .decision_function(K_test)
        )

    return run


def smote(percent: int) -> Method:
    def run(parts: Parts, C: float) -> np.ndarray:
        rare, other = int(parts.y.sum()), int((1 - parts.y).sum())
        wanted = min(other, rare + rare * percent // 100)
        sampler = SMOTE(sampling_strategy={1: wanted}, k_neighbors=min(5, rare - 1), random_state=0)
        X, y = sampler.fit_resample(parts.X, parts.y)
        return svc(None)(Parts(X, y, parts.X_test, parts.kernel), C)

    return run


def aligned(alignment: str = "kba", reading: Reading | None = None, **options: object) -> Method:
    class Learner(AlignedSVC):
        _reading = reading or Reading()

    def run(parts: Parts, C: float) -> np.ndarray:
        model = Learner(C, alignment=alignment, **options)
        if alignment == "act":
            model.set_params(kernel="laplacian", gamma=parts.kernel.gamma)
            return model.fit(parts.X, parts.y).decision_function(parts.X_test)
        K, K_test = parts.matrices()
        return model.set_params(kernel="precomputed").fit(K, parts.y).decision_function(K_test)

    return run


def measures(y: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """G-mean and AUC."""
    return float(g_mean_score(y, (scores > 0).astype(int))), float(roc_auc_score(y, scores))


def split(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, width: float) -> Parts:
    scaler = StandardScaler().fit(X[train])
    kernel = Kernel("laplacian", gamma=width / X.shape[1])
    return Parts(scaler.transform(X[train]), y[train], scaler.transform(X[test]), kernel)


def tune(
    variants: list[Method], X: np.ndarray, y: np.ndarray, pairs: list[tuple[float, float]], folds: int
) -> tuple[int, float, float]:
    """The variant, C and width with the largest mean of G-mean and AUC over folds."""
    inner = list(StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y))

    def quality(choice: tuple[int, float, float]) -> float:
        variant, C, width = choice
        found = [
            measures(y[test], variants[variant](split(X, y, train, test, width), C)) for train, test in inner
        ]
        return float(np.mean(found))

    return max(((v, C, width) for v in range(len(variants)) for C, width in pairs), key=quality)


def outer_splits(
    X: np.ndarray, y: np.ndarray, args: argparse.Namespace
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield from StratifiedShuffleSplit(args.repeats, test_size=1 / 7, random_state=args.seed).split(X, y)


def nested(
    name: str, methods: dict[str, list[Method]], args: argparse.Namespace
) -> dict[str, list[tuple[float, float]]]:
    X, y = load(name, args.data_dir)
    grid = list(product(PENALTIES[1:2] if args.quick else PENALTIES, WIDTHS[1:] if args.quick else WIDTHS))
    results: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
    for train, test in outer_splits(X, y, args):
        for label, variants in methods.items():
            began = time.perf_counter()
            variant, C, width = tune(variants, X[train], y[train], grid, args.folds)
            found = measures(y[test], variants[variant](split(X, y, train, test, width), C))
            results[label].append(found)
            chosen = {"variant": variant, "C": C, "width": width, "g_mean": found[0], "auc": found[1]}
            seconds = round(time.perf_counter() - began, 1)
            print(json.dumps({"set": name, "method": label, **chosen, "seconds": seconds}), flush=True)
    return results


def fixed(
    name: str, methods: dict[str, Method], args: argparse.Namespace
) -> dict[str, list[tuple[float, float]]]:
    """All methods at each pair of parameters, without tuning."""
    X, y = load(name, args.data_dir)
    results: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
    for train, test in outer_splits(X, y, args):
        for C, width in product((10.0, 1000.0), (1.0, 3.0)):
            parts = split(X, y, train, test, width)
            for label, method in methods.items():
                results[label].append(measures(y[test], method(parts, C)))
    return results


def compared(name: str, args: argparse.Namespace) -> dict[str, list[Method]]:
    """Methods, with the variants to choose from: AlignedSVC and ACT may start from either kind of SVC."""
    methods: dict[str, list[Method]] = {
        "SVC": [svc(None)],
        "SVC balanced": [svc("balanced")],
        "AlignedSVC": [aligned(), aligned(class_weight="balanced")],
        "SMOTE": [smote(SETS[name][2])],
        "ACT": [aligned("act"), aligned("act", class_weight="balanced")],
    }
    wanted = args.methods.split(",") if args.methods else list(methods)
    return {label: variants for label, variants in methods.items() if label in wanted}


def readings() -> dict[str, Method]:
    """Ways to read the paper: the default, and one thing changed at a time."""
    ways: dict[str, Method] = {
        "plain SVC": svc(None),
        "shift alone": aligned(max_iter=0),
        "default": aligned(),
    }
    ways["as printed: mean, D unscaled, no floor"] = aligned(reading=Reading("mean", None, "margin", 0.0))
    for combine in ("mean", "sum"):
        ways[f"{combine} of bumps"] = aligned(reading=Reading(combine))
    for normalize in ("peak", None):
        ways[f"D scaled by {normalize}"] = aligned(reading=Reading(normalize=normalize))
    for neighbours in ("all", "nearest"):
        ways[f"widths from {neighbours}"] = aligned(reading=Reading(neighbours=neighbours))
    for floor in (0.0, 0.6):
        ways[f"floor {floor}"] = aligned(reading=Reading(floor=floor))
    ways["all pairs"] = aligned(pairs="all")
    ways["decision without shift"] = aligned(shift=False)
    return ways


def report(name: str, results: dict[str, list[tuple[float, float]]], baselines: tuple[str, ...]) -> None:
    print(f"\n{name:14s} {'G-mean':>15s} {'AUC':>15s}   paper (SVM SMOTE ACT KBA): {PAPER[name]}")
    for label, values in results.items():
        mean, deviation = np.mean(values, axis=0), np.std(values, axis=0)
        cells = " ".join(f"{100 * m:7.1f} ± {100 * s:4.1f} " for m, s in zip(mean, deviation, strict=True))
        print(f"  {label:40s} {cells} {_against(results, label, baselines)}", flush=True)


def _against(results: dict[str, list[tuple[float, float]]], label: str, baselines: tuple[str, ...]) -> str:
    """Difference to the better baseline, and the p-value of the paired test."""
    present = [b for b in baselines if b in results]
    if label in baselines or not present:
        return ""
    texts = []
    for measure in (0, 1):
        own = np.array([value[measure] for value in results[label]])
        best = max((np.array([v[measure] for v in results[b]]) for b in present), key=np.mean)
        p = ttest_rel(own, best).pvalue if np.ptp(own - best) > 0 else 1.0
        texts.append(f"{100 * (own - best).mean():+.1f} (p {p:.2f})")
    return "against the better SVC: " + ", ".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default="", help="some of the methods, separated by commas")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1, help="of the outer splits")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--readings", action="store_true")
    parser.add_argument("--quick", action="store_true", help="two small sets, two repeats, a small grid")
    args = parser.parse_args()
    if args.quick:
        args.sets, args.repeats = "segmentation,glass", 2
    everything: dict[str, list[tuple[float, float]]] = {}
    baselines = ("SVC", "SVC balanced")
    for name in args.sets.split(","):
        results = fixed(name, readings(), args) if args.readings else nested(name, compared(name, args), args)
        report(name, results, baselines)
        for label, values in results.items():
            everything.setdefault(label, []).append(tuple(np.mean(values, axis=0)))
    print("\nmean over sets")
    for label, values in everything.items():
        print(f"  {label:40s} " + " ".join(f"{100 * m:7.2f}" for m in np.mean(values, axis=0)))


if __name__ == "__main__":
    main()
