"""Compare variants of kernel boundary alignment on the six datasets of the paper or on ten other tasks.

The paper leaves some details open. They were decided on the ten other tasks; the datasets of the paper
(``python -m papers run kba-tables-2-3``) were used only afterwards. Nothing is tuned: there is one Laplacian
kernel, and C has a few values, with and without balanced penalties.

    python benchmarks/accuracy/aligned_readings.py --data-dir DIR [--tasks paper|others|oil,vowel]
        [--splits 7] [--penalties 1,10,100]
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import wilcoxon
from sklearn.model_selection import StratifiedShuffleSplit

sys.path.insert(0, str(Path(__file__).parents[2]))
from papers.kba.methods import PENALTIES, Variant, aligned, measures, parts_of, plain, printed
from papers.kba.uci import SETS, features
from steelyard.datasets import load

OTHERS: dict[str, tuple[str, str | int]] = {
    "oil": ("oil_spill", 1),
    "german": ("koil_german", 1),
    "yeast VAC": ("yeast", "VAC"),
    "yeast EXC": ("yeast", "EXC"),
    "yeast POX": ("yeast", "POX"),
    "glass 3": ("glass", 3),
    "glass 5": ("glass", 5),
    "vowel": ("koil_vowel", 1),
    "s10": ("koil_s10", 1),
    "cement": ("segmentation_210", "CEMENT"),
}
GROUPS = {"paper": list(SETS), "others": list(OTHERS)}
WIDTH = 1.0
DEFAULT = "default"


def variants(weight: str | None) -> dict[str, Variant]:
    """Return the default and variants of it with one change each."""
    ways = {
        "plain SVC": plain(weight),
        "shift alone": aligned(max_iter=0, class_weight=weight),
        DEFAULT: aligned(class_weight=weight),
        "mean, margin, no scale, no floor": aligned(
            variant={"combine": "mean", "normalize": None, "neighbours": "margin", "floor": 0.0},
            class_weight=weight,
        ),
        "as printed: one round, no shift": printed(class_weight=weight),
        "all pairs": aligned(pairing="all", class_weight=weight),
    }
    changed = {
        "sum of the bumps": {"combine": "sum"},
        "mean of the bumps": {"combine": "mean"},
        "D not scaled": {"normalize": None},
        "D at most 1": {"normalize": "peak"},
        "widths from points within the margin": {"neighbours": "margin"},
        "widths from all points": {"neighbours": "all"},
        "floor 0": {"floor": 0.0},
        "floor 0.6": {"floor": 0.6},
    }
    return ways | {name: aligned(variant=variant, class_weight=weight) for name, variant in changed.items()}


def rows_of(name: str, data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    if name in SETS:
        return features(name, load(SETS[name][0], data_dir=data_dir))
    data = load(OTHERS[name][0], data_dir=data_dir)
    return data.numbers(), data.binary(OTHERS[name][1])


def compare(name: str, args: argparse.Namespace, weight: str | None) -> dict[str, list[tuple[float, float]]]:
    """Return G-mean and AUC of every variant on the splits of one task."""
    X, y = rows_of(name, args.data_dir)
    splitter = StratifiedShuffleSplit(args.splits, test_size=1 / 7 if y.sum() > 20 else 0.3, random_state=5)
    found: dict[str, list[tuple[float, float]]] = {}
    for (train, test), C in product(splitter.split(X, y), args.penalties):
        parts = parts_of(X, y, train, test, WIDTH)
        for title, variant in variants(weight).items():
            found.setdefault(title, []).append(measures(y[test], variant(parts, C)))
    return found


def show(title: str, tasks: list[dict[str, list[tuple[float, float]]]]) -> None:
    """Print means over tasks, and p-values of the differences to the default over all splits."""
    print(f"\n{title:48s}{'G-mean':>8s}{'p':>7s}{'AUC':>8s}{'p':>7s}")
    default = np.concatenate([task[DEFAULT] for task in tasks])
    for variant in tasks[0]:
        own = np.concatenate([task[variant] for task in tasks])
        means = np.mean([np.mean(task[variant], axis=0) for task in tasks], axis=0)
        cells = [f"{mean:8.2f}{_p(own[:, k] - default[:, k]):7.2f}" for k, mean in enumerate(means)]
        print(f"{variant:48s}" + "".join(cells), flush=True)


def _p(differences: np.ndarray) -> float:
    return float(wilcoxon(differences).pvalue) if np.any(differences) else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--tasks", default="others")
    parser.add_argument("--splits", type=int, default=7)
    parser.add_argument(
        "--penalties", type=lambda text: [float(part) for part in text.split(",")], default=PENALTIES
    )
    args = parser.parse_args()
    names = GROUPS.get(args.tasks) or args.tasks.split(",")
    for weight in (None, "balanced"):
        tasks = [compare(name, args, weight) for name in names]
        for name, task in zip(names, tasks, strict=True):
            show(f"{name}, {weight or 'equal'} penalties", [task])
        show(f"mean of the tasks, {weight or 'equal'} penalties", tasks)


if __name__ == "__main__":
    main()
