"""Figure 2 of the paper on made-up trajectories: sensitivity for each strange pattern, and specificity.

60 % of the trajectories are learned, 40 % are asked; the kernel is the global alignment kernel.

    python benchmarks/accuracy/aligned_trajectories.py [--scale 1.0] [--repeats 5]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.svm import SVC

from steelyard import AlignedSVC
from steelyard.datasets.trajectories import SUSPICIOUS, make_trajectories
from steelyard.kernels import GlobalAlignmentKernel

COUNTS = {"circling": 30, "zigzag": 22, "back-and-forth": 40, "go-straight": 200, "parking": 3161}


def methods(C: float) -> dict[str, SVC | AlignedSVC]:
    return {
        "SVC": SVC(C=C, kernel="precomputed"),
        "biased penalties": SVC(C=C, kernel="precomputed", class_weight="balanced"),
        "AlignedSVC": AlignedSVC(C, kernel="precomputed"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="part of the benign trajectories")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--band", type=int, default=0, help="band of the kernel; 0 for none")
    parser.add_argument("--noise", type=float, default=0.7)
    args = parser.parse_args()
    counts = {k: v if k in SUSPICIOUS else round(v * args.scale) for k, v in COUNTS.items()}
    X, patterns = make_trajectories(counts, noise=args.noise, random_state=0)
    y = np.isin(patterns, SUSPICIOUS).astype(int)
    began = time.perf_counter()
    kernel = GlobalAlignmentKernel(band=args.band or None).resolve(X)
    K = kernel(X, X)
    print(
        f"{len(X)} trajectories, {y.sum()} suspicious; kernel matrix in {time.perf_counter() - began:.1f} s"
    )
    found: dict[str, list[list[float]]] = {}
    splitter = StratifiedShuffleSplit(args.repeats, test_size=0.4, random_state=0)
    for train, test in splitter.split(K, patterns):
        for label, model in methods(args.C).items():
            answers = model.fit(K[np.ix_(train, train)], y[train]).predict(K[np.ix_(test, train)])
            row = [answers[patterns[test] == pattern].mean() for pattern in SUSPICIOUS]
            row += [answers[y[test] == 1].mean(), 1.0 - answers[y[test] == 0].mean()]
            found.setdefault(label, []).append(row)
    print(f"{'':20s}" + "".join(f"{name:>18s}" for name in (*SUSPICIOUS, "sensitivity", "specificity")))
    for label, rows in found.items():
        mean, deviation = 100 * np.mean(rows, axis=0), 100 * np.std(rows, axis=0)
        cells = "".join(f"{m:11.1f} ± {s:4.1f}" for m, s in zip(mean, deviation, strict=True))
        print(f"{label:20s}{cells}")


if __name__ == "__main__":
    main()
