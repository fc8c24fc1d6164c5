"""Compare methods that choose the threshold and the number of rounds of AlignedSVC, on 28 development tasks.

None of the tasks is used in the paper. Ten tasks are those of ``aligned_readings.py``. For the other 18
tasks, larger datasets are subsampled for every split, so that there are few training rows and many test rows.
C and the width of the kernel are selected by cross-validation on the training rows, as in ``python -m papers
run kba-tables-2-3``. "untuned" is the mean over all nine settings. Every model is trained once, and all
methods use its held-out scores.

    python benchmarks/accuracy/aligned_cuts.py --data-dir DIR [--tasks oil,path]
        [--splits 20] [--weight balanced|equal]
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from aligned_readings import OTHERS, rows_of
from scipy.special import ndtr
from scipy.stats import ttest_1samp
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

sys.path.insert(0, str(Path(__file__).parents[2]))
from papers.kba.methods import PENALTIES, WIDTHS, Parts, measures, parts_of
from steelyard.alignment import AlignedSVC
from steelyard.alignment.boundary import boundary_shift
from steelyard.alignment.machine import (
    Chain,
    Problem,
    RoughSolver,
    _compact,
    best_shift,
    deal_splits,
    ranking_losses,
)
from steelyard.datasets import load

# Name of the task: dataset, target class, number of training rows of this class and of all other classes.
THINNED: dict[str, tuple[str, str | int, int, int]] = {
    "breast": ("breast_wisconsin", 4, 25, 300),
    "covtype4": ("covtype", 4, 60, 800),
    "covtype5": ("covtype", 5, 40, 800),
    "credit": ("creditcard_part", 1, 40, 800),
    "diabetes": ("koil_diabetes", 1, 40, 350),
    "elec": ("elec2", "UP", 40, 800),
    "foliage": ("segmentation_2310", "FOLIAGE", 40, 700),
    "ionosphere": ("koil_ionosphere", 1, 25, 150),
    "letter": ("koil_letter", 1, 40, 700),
    "mammography": ("mammography", 1, 60, 800),
    "path": ("segmentation_2310", "PATH", 26, 160),
    "phishing": ("phishing", 1, 40, 400),
    "s50": ("koil_s50", 1, 40, 800),
    "satimage": ("koil_satimage", 1, 40, 700),
    "shuttle": ("koil_shuttle", 1, 40, 700),
    "weather": ("weather", 1, 30, 800),
    "window": ("segmentation_2310", "WINDOW", 26, 160),
    "yeast ME3": ("yeast", "ME3", 60, 800),
}
ROUNDS = 5
TOLERANCE = 1e-3
DEFAULT = "default"

# Computes a shift (the negative threshold) from held-out scores and signs.
Method = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Fit:
    """Held-out and test scores of a model before the rounds and after each round that lowers the loss."""

    signs: np.ndarray
    held_out: list[np.ndarray]
    test_scores: list[np.ndarray]
    y: np.ndarray

    def rounds_kept(self, errors: float) -> int:
        """Return how many first rounds each lower the loss by at least ``errors`` standard errors."""
        kept, losses = 0, [ranking_losses(scores, self.signs) for scores in self.held_out]
        for number in range(1, len(losses)):
            fall = losses[kept] - losses[number]
            if fall.mean() < max(TOLERANCE, errors * fall.std() / np.sqrt(len(fall))):
                break
            kept = number
        return kept


def fit(parts: Parts, y_test: np.ndarray, C: float, balanced: bool) -> Fit:
    """Train as AlignedSVC does, with rounds as long as the loss decreases."""
    K, K_test = parts.matrices()
    signs, rows = np.where(parts.y == 1, 1.0, -1.0), np.arange(len(parts.y))
    share = {sign: 0.5 / np.mean(signs == sign) if balanced else 1.0 for sign in (1.0, -1.0)}
    problem = Problem(K, signs, np.where(signs > 0, share[1.0], share[-1.0]))
    parameters = AlignedSVC()
    chain = Chain(problem, rows)
    solution, _ = chain.train(C)
    train, out = zip(*deal_splits(signs, rows, 0.2, None), strict=True)
    chains, solver = [Chain(problem, part) for part in train], RoughSolver(problem, train, solution, C)
    result = Fit(np.concatenate([signs[part] for part in out]), [], [], y_test)
    least, beta = np.inf, 0.5
    for _ in range(ROUNDS + 1):
        judges = solver.solve(np.array([one.factor for one in chains]))
        scores = np.concatenate([judge.scores[part] for judge, part in zip(judges, out, strict=True)])
        loss = float(ranking_losses(scores, result.signs).mean())
        if loss >= least:
            break
        if result.held_out:
            chain.transform(solution, beta, parameters)
            solution, _ = chain.train(C, solution)
        machine, least = _compact(chain, solution, 0.0), loss
        result.held_out.append(scores)
        result.test_scores.append(
            machine.scores(K_test.take(machine.reference, axis=1), np.ones(len(K_test)))
        )
        beta = (1.0 + boundary_shift(scores, result.signs)) / 2.0
        for one, judge in zip(chains, judges, strict=True):
            one.transform(judge, beta, parameters)
    return result


def curve(scores: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the thresholds between neighbouring scores with their sensitivity and specificity."""
    order = np.argsort(scores, kind="stable")
    ordered, rare = scores[order], signs[order] > 0
    apart = ordered[1:] > ordered[:-1]
    sensitivity = 1.0 - np.cumsum(rare)[:-1] / rare.sum()
    specificity = np.cumsum(~rare)[:-1] / (~rare).sum()
    return ((ordered[1:] + ordered[:-1]) / 2.0)[apart], sensitivity[apart], specificity[apart]


def best_empirical(scores: np.ndarray, signs: np.ndarray) -> float:
    """Return the negative threshold with the largest empirical G-mean; of equal ones, the nearest to 0."""
    thresholds, sensitivity, specificity = curve(scores, signs)
    g_mean = np.sqrt(sensitivity * specificity)
    best = thresholds[g_mean >= g_mean.max() - 1e-12]
    return float(-best[np.abs(best).argmin()])


def plateau(errors: float, nearest: bool) -> Method:
    """Return a method that uses thresholds whose G-mean is within ``errors`` standard errors of the best.

    The method returns the negative of the threshold nearest to 0 (``nearest``), or of their weighted mean.
    """

    def shift(scores: np.ndarray, signs: np.ndarray) -> float:
        thresholds, sensitivity, specificity = curve(scores, signs)
        g_mean = np.sqrt(sensitivity * specificity)
        best, n_rare, n_other = g_mean.argmax(), (signs > 0).sum(), (signs < 0).sum()
        a = (sensitivity[best] * n_rare + 0.5) / (n_rare + 1.0)
        b = (specificity[best] * n_other + 0.5) / (n_other + 1.0)
        error = 0.5 * np.sqrt(a * b * ((1.0 - a) / (a * n_rare) + (1.0 - b) / (b * n_other)))
        above = g_mean - g_mean[best] + errors * error
        inside = thresholds[above >= 0.0]
        if nearest:
            return float(-np.clip(0.0, inside.min(), inside.max()))
        weight = np.maximum(above, 0.0) * (np.gradient(thresholds) if len(thresholds) > 1 else 1.0)
        return float(-(weight @ thresholds) / weight.sum())

    return shift


def binormal(scores: np.ndarray, signs: np.ndarray) -> float:
    """Return the negative threshold with the largest G-mean of two normal distributions."""
    thresholds = np.linspace(scores.min(), scores.max(), 257)
    rare, other = scores[signs > 0], scores[signs < 0]
    shares = ndtr((rare.mean() - thresholds) / rare.std()) * ndtr((thresholds - other.mean()) / other.std())
    return float(-thresholds[shares.argmax()])


def median_of_samples(scores: np.ndarray, signs: np.ndarray) -> float:
    """Return the median of the best shifts of 30 bootstrap samples."""
    rng, sides = np.random.default_rng(0), [np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)]
    samples = [np.concatenate([rng.choice(side, len(side)) for side in sides]) for _ in range(30)]
    return float(np.median([best_empirical(scores[rows], signs[rows]) for rows in samples]))


# Name: number of standard errors by which a round must lower the loss, and method of the threshold.
RULES: dict[str, tuple[float, Method]] = {
    "SVC": (np.inf, lambda *_: 0.0),
    DEFAULT: (1.0, best_shift),
    "best empirical threshold": (1.0, best_empirical),
    "median over bootstrap samples": (1.0, median_of_samples),
    "mean of thresholds within two errors": (1.0, plateau(2.0, nearest=False)),
    "nearest threshold within one error": (1.0, plateau(1.0, nearest=True)),
    "normal distributions": (1.0, binormal),
    "no rounds": (np.inf, best_shift),
    "rounds by two standard errors": (2.0, best_shift),
    "rounds by any decrease": (0.0, best_shift),
}


def splits_of(
    name: str, X: np.ndarray, y: np.ndarray, n_splits: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if name in OTHERS:
        size = 1 / 7 if y.sum() > 20 else 0.3
        yield from StratifiedShuffleSplit(n_splits, test_size=size, random_state=5).split(X, y)
        return
    n_rare, n_other = THINNED[name][2:]
    for number in range(n_splits):
        rng = np.random.default_rng(zlib.crc32(f"{name}/{number}".encode()))
        rare, other = (rng.permutation(np.flatnonzero(y == label)) for label in (1, 0))
        test = np.concatenate([rare[n_rare : n_rare + 600], other[n_other : n_other + 3000]])
        yield np.sort(np.concatenate([rare[:n_rare], other[:n_other]])), np.sort(test)


def task_rows(name: str, data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    if name in OTHERS:
        return rows_of(name, data_dir)
    data = load(THINNED[name][0], data_dir=data_dir)
    X, y = data.numbers(nominal="onehot"), data.binary(THINNED[name][1])
    complete = np.isfinite(X).all(axis=1)
    return X[complete], y[complete]


def compare(name: str, args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return G-mean and AUC of the selected setting, and their means over all settings, by method."""
    X, y = task_rows(name, args.data_dir)
    seed = zlib.crc32(name.encode()) % 1000
    found: dict[str, list[np.ndarray]] = {rule: [] for rule in RULES}
    for number, (train, test) in enumerate(splits_of(name, X, y, args.splits)):
        inner = StratifiedKFold(3, shuffle=True, random_state=seed + number).split(X[train], y[train])
        parts = [*((train[a], train[b]) for a, b in inner), (train, test)]
        fits = [
            [fit(parts_of(X, y, *part, width), y[part[1]], C, args.weight == "balanced") for part in parts]
            for C, width in product(PENALTIES, WIDTHS)
        ]
        for rule, (errors, method) in RULES.items():
            figures = np.array([[evaluated(one, errors, method) for one in setting] for setting in fits])
            chosen = figures[:, :-1].mean(axis=(1, 2)).argmax()
            found[rule].append(np.concatenate([figures[chosen, -1], figures[:, -1].mean(axis=0)]))
    return {rule: np.array(values) for rule, values in found.items()}


def evaluated(one: Fit, errors: float, method: Method) -> tuple[float, float]:
    """Return G-mean and AUC on the test rows."""
    kept = one.rounds_kept(errors)
    return measures(one.y, one.test_scores[kept] + method(one.held_out[kept], one.signs))


def show(title: str, tasks: list[dict[str, np.ndarray]]) -> None:
    """Print means over tasks and the p value of a paired t-test against the default."""
    print(
        f"\n{title:38s}{'G-mean':>8s}{'p':>7s}{'AUC':>8s}{'p':>7s}{'untuned':>9s}{'p':>7s}{'AUC':>8s}{'p':>7s}"
    )
    for rule in RULES:
        means, base = (np.array([task[name].mean(axis=0) for task in tasks]) for name in (rule, DEFAULT))
        cells = [f"{means[:, k].mean():8.2f}{_p(means[:, k] - base[:, k]):7.3f}" for k in range(4)]
        print(f"{rule:38s}" + "".join(cells), flush=True)


def _p(differences: np.ndarray) -> float:
    return float(ttest_1samp(differences, 0.0).pvalue) if np.ptp(differences) > 0 else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=[*OTHERS, *THINNED])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--weight", choices=["balanced", "equal"], default="balanced")
    args = parser.parse_args()
    tasks = {}
    for name in args.tasks:
        tasks[name] = compare(name, args)
        show(name, [tasks[name]])
    for title, group in (("the ten tasks", OTHERS), ("subsampled", THINNED), ("all tasks", args.tasks)):
        chosen = [tasks[name] for name in group if name in tasks]
        if chosen:
            show(title, chosen)


if __name__ == "__main__":
    main()
