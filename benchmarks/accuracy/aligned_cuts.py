"""Rules for the threshold of AlignedSVC and for keeping a round, compared on 28 development tasks.

None of them is a task of the paper. Ten are those of ``aligned_readings.py``; for the other 18 larger sets
are thinned out again for every split, so that few rows are learned and many are asked. C and the width of the
kernel are chosen inside the rows to learn, as in ``python -m papers run kba-tables-2-3``; "untuned" is the
mean over all nine settings. Every machine is trained once, and all rules are asked about its held-out scores.

    python benchmarks/accuracy/aligned_cuts.py --data-dir DIR [--tasks oil,path]
        [--splits 20] [--weight balanced|equal]
"""

from __future__ import annotations

import argparse
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

from papers.kba.methods import PENALTIES, WIDTHS, Parts, measures, parts_of
from steelyard.alignment.boundary import boundary_shift
from steelyard.alignment.holdout import deal_splits, ranking_losses
from steelyard.alignment.machine import Chain, Settings, _compact, best_shift
from steelyard.alignment.rough import Matrix, Problem, RoughSolver
from steelyard.datasets import load

# Name: set, target class, its number of training rows, number of other training rows.
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

Cut = Callable[[np.ndarray, np.ndarray], float]  # held-out scores and signs to a shift


@dataclass(frozen=True)
class Fit:
    """A machine before and after each round that lowered the loss, with held-out and test scores."""

    signs: np.ndarray
    held_out: list[np.ndarray]
    asked: list[np.ndarray]
    y: np.ndarray

    def rounds_kept(self, errors: float) -> int:
        """Return the number of rounds that help by this many standard errors each."""
        kept, losses = 0, [ranking_losses(scores, self.signs) for scores in self.held_out]
        for number in range(1, len(losses)):
            fall = losses[kept] - losses[number]
            if fall.mean() < max(TOLERANCE, errors * fall.std() / np.sqrt(len(fall))):
                break
            kept = number
        return kept


def fit(parts: Parts, y_asked: np.ndarray, C: float, balanced: bool) -> Fit:
    """Train like AlignedSVC, with rounds as long as the loss falls."""
    K, K_asked = parts.matrices()
    signs, rows = np.where(parts.y == 1, 1.0, -1.0), np.arange(len(parts.y))
    share = {sign: 0.5 / np.mean(signs == sign) if balanced else 1.0 for sign in (1.0, -1.0)}
    problem = Problem(Matrix(K), signs, np.where(signs > 0, share[1.0], share[-1.0]))
    settings = Settings(C, "kba", "nearest", True, ROUNDS, 0.0)
    chain = Chain(problem, rows)
    solution, _ = chain.train(C)
    problem.matrix.release_buffer()
    train, out = zip(*deal_splits(signs, rows, 0.2, None), strict=True)
    chains, solver = [Chain(problem, part) for part in train], RoughSolver(problem, train, solution, C)
    result = Fit(np.concatenate([signs[part] for part in out]), [], [], y_asked)
    least, beta = np.inf, 0.5
    for _ in range(ROUNDS + 1):
        judges = solver.solve(np.array([one.factor for one in chains]))
        scores = np.concatenate([judge.scores[part] for judge, part in zip(judges, out, strict=True)])
        loss = float(ranking_losses(scores, result.signs).mean())
        if loss >= least:
            break
        if result.held_out:
            chain.transform(solution, beta, settings)
            solution, _ = chain.train_again(C, solution)
        machine, least = _compact(chain, solution, 0.0), loss
        result.held_out.append(scores)
        result.asked.append(machine.scores(K_asked.take(machine.reference, axis=1), np.ones(len(K_asked))))
        beta = (1.0 + boundary_shift(scores, result.signs)) / 2.0
        for one, judge in zip(chains, judges, strict=True):
            one.transform(judge, beta, settings)
    return result


def curve(scores: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the thresholds between neighbouring scores with their sensitivity and specificity."""
    order = np.argsort(scores, kind="stable")
    ordered, rare = scores[order], signs[order] > 0
    apart = ordered[1:] > ordered[:-1]
    sensitivity = 1.0 - np.cumsum(rare)[:-1] / rare.sum()
    specificity = np.cumsum(~rare)[:-1] / (~rare).sum()
    return ((ordered[1:] + ordered[:-1]) / 2.0)[apart], sensitivity[apart], specificity[apart]


def cut_of_the_rows(scores: np.ndarray, signs: np.ndarray) -> float:
    """Return the threshold with the largest empirical G-mean; ties go to the one nearest to 0."""
    cuts, sensitivity, specificity = curve(scores, signs)
    g_mean = np.sqrt(sensitivity * specificity)
    best = cuts[g_mean >= g_mean.max() - 1e-12]
    return float(-best[np.abs(best).argmin()])


def plateau(errors: float, nearest: bool) -> Cut:
    """Return the threshold nearest to 0, or the mean, of those within some standard errors of the best."""

    def cut(scores: np.ndarray, signs: np.ndarray) -> float:
        cuts, sensitivity, specificity = curve(scores, signs)
        g_mean = np.sqrt(sensitivity * specificity)
        best, n_rare, n_other = g_mean.argmax(), (signs > 0).sum(), (signs < 0).sum()
        a = (sensitivity[best] * n_rare + 0.5) / (n_rare + 1.0)
        b = (specificity[best] * n_other + 0.5) / (n_other + 1.0)
        error = 0.5 * np.sqrt(a * b * ((1.0 - a) / (a * n_rare) + (1.0 - b) / (b * n_other)))
        above = g_mean - g_mean[best] + errors * error
        inside = cuts[above >= 0.0]
        if nearest:
            return float(-np.clip(0.0, inside.min(), inside.max()))
        weight = np.maximum(above, 0.0) * (np.gradient(cuts) if len(cuts) > 1 else 1.0)
        return float(-(weight @ cuts) / weight.sum())

    return cut


def binormal(scores: np.ndarray, signs: np.ndarray) -> float:
    """Return the threshold under a normal model of both classes."""
    cuts = np.linspace(scores.min(), scores.max(), 257)
    rare, other = scores[signs > 0], scores[signs < 0]
    shares = ndtr((rare.mean() - cuts) / rare.std()) * ndtr((cuts - other.mean()) / other.std())
    return float(-cuts[shares.argmax()])


def median_of_samples(scores: np.ndarray, signs: np.ndarray) -> float:
    """Return the median of the best thresholds of 30 bootstrap samples."""
    rng, sides = np.random.default_rng(0), [np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)]
    samples = [np.concatenate([rng.choice(side, len(side)) for side in sides]) for _ in range(30)]
    return float(np.median([cut_of_the_rows(scores[rows], signs[rows]) for rows in samples]))


# Name: standard errors by which rounds must help, and the rule of the threshold.
RULES: dict[str, tuple[float, Cut]] = {
    "SVC": (np.inf, lambda *_: 0.0),
    DEFAULT: (1.0, best_shift),
    "best cut of the rows": (1.0, cut_of_the_rows),
    "median over bootstrap samples": (1.0, median_of_samples),
    "mean of cuts within two errors": (1.0, plateau(2.0, nearest=False)),
    "nearest cut within one error": (1.0, plateau(1.0, nearest=True)),
    "normal distributions": (1.0, binormal),
    "no rounds": (np.inf, best_shift),
    "rounds by two errors": (2.0, best_shift),
    "rounds by none": (0.0, best_shift),
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
        asked = np.concatenate([rare[n_rare : n_rare + 600], other[n_other : n_other + 3000]])
        yield np.sort(np.concatenate([rare[:n_rare], other[:n_other]])), np.sort(asked)


def task_rows(name: str, data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    if name in OTHERS:
        return rows_of(name, data_dir)
    data = load(THINNED[name][0], data_dir=data_dir)
    X, y = data.numbers(nominal="onehot"), data.binary(THINNED[name][1])
    complete = np.isfinite(X).all(axis=1)
    return X[complete], y[complete]


def compare(name: str, args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return G-mean and AUC of the selected setting and their means over all settings, by rule and split."""
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
        for rule, (errors, cut) in RULES.items():
            figures = np.array([[asked(one, errors, cut) for one in setting] for setting in fits])
            chosen = figures[:, :-1].mean(axis=(1, 2)).argmax()
            found[rule].append(np.concatenate([figures[chosen, -1], figures[:, -1].mean(axis=0)]))
    return {rule: np.array(values) for rule, values in found.items()}


def asked(one: Fit, errors: float, cut: Cut) -> tuple[float, float]:
    kept = one.rounds_kept(errors)
    return measures(one.y, one.asked[kept] + cut(one.held_out[kept], one.signs))


def show(title: str, tasks: list[dict[str, np.ndarray]]) -> None:
    """Print means over tasks and the p value of a paired t-test against the default."""
    print(
        f"\n{title:34s}{'G-mean':>8s}{'p':>7s}{'AUC':>8s}{'p':>7s}{'untuned':>9s}{'p':>7s}{'AUC':>8s}{'p':>7s}"
    )
    for rule in RULES:
        means, base = (np.array([task[name].mean(axis=0) for task in tasks]) for name in (rule, DEFAULT))
        cells = [f"{means[:, k].mean():8.2f}{_p(means[:, k] - base[:, k]):7.3f}" for k in range(4)]
        print(f"{rule:34s}" + "".join(cells), flush=True)


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
    for title, group in (("the ten tasks", OTHERS), ("thinned out", THINNED), ("all tasks", args.tasks)):
        chosen = [tasks[name] for name in group if name in tasks]
        if chosen:
            show(title, chosen)


if __name__ == "__main__":
    main()
