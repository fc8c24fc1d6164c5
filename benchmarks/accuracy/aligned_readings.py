"""Ways to read the paper of kernel boundary alignment, on ten tasks that are not the paper's.

What the paper leaves open was settled on these tasks, so that the paper's own sets
(``steelyard papers run kba-tables-2-3``) had no part in it. Nothing is tuned: C is 1, 10 and 100, with and
without balanced penalties, on the same Laplacian kernel.

    python benchmarks/accuracy/aligned_readings.py --data-dir DIR [--tasks oil,vowel]
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from steelyard.alignment.view import Reading
from steelyard.datasets import load
from steelyard.papers.kba.methods import PENALTIES, Variant, aligned, measures, parts_of, plain

TASKS: dict[str, tuple[str, str | int]] = {
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
SPLITS, WIDTH = 6, 1.0


def readings(weight: str | None) -> dict[str, Variant]:
    """The default, and one thing changed at a time."""
    ways = {
        "plain SVC": plain(weight),
        "shift alone": aligned(max_iter=0, class_weight=weight),
        "default": aligned(class_weight=weight),
        "as printed: mean, margin, no scale, no floor": aligned(
            reading=Reading("mean", None, "margin", 0.0), class_weight=weight
        ),
    }
    changed = {
        "sum of the bumps": Reading(combine="sum"),
        "D not scaled": Reading(normalize=None),
        "widths from points within the margin": Reading(neighbours="margin"),
        "widths from all points": Reading(neighbours="all"),
        "floor 0": Reading(floor=0.0),
        "floor 0.6": Reading(floor=0.6),
    }
    return ways | {name: aligned(reading=reading, class_weight=weight) for name, reading in changed.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join(TASKS))
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    for name in args.tasks.split(","):
        data = load(TASKS[name][0], data_dir=args.data_dir)
        X, y = data.numbers(), data.binary(TASKS[name][1])
        splitter = StratifiedShuffleSplit(SPLITS, test_size=1 / 7 if y.sum() > 20 else 0.3, random_state=5)
        for (train, test), C, weight in product(splitter.split(X, y), PENALTIES, (None, "balanced")):
            parts = parts_of(X, y, train, test, WIDTH)
            for reading, variant in readings(weight).items():
                key = f"{reading}, {weight or 'equal'} penalties"
                found.setdefault(key, []).append(measures(y[test], variant(parts, C)))
        print(name, "done", flush=True)
    print(f"{'':66s}{'G-mean':>8s}{'AUC':>8s}")
    for key in sorted(found):
        print(f"{key:66s}" + "".join(f"{mean:8.2f}" for mean in np.mean(found[key], axis=0)))


if __name__ == "__main__":
    main()
