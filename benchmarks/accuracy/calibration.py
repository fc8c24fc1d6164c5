"""Compare the probabilities of StreamClassifier with those of LightGBM with isotonic regression.

The measures are log-loss, Brier score and ECE.

    python benchmarks/accuracy/calibration.py --data-dir DIR [--stream NAME] [--limit 20000] [--late 0]

Rows are predicted in chunks of 100 before they are learned. LightGBM is refitted on the last 50,000 rows
whenever a tenth of them is new. Isotonic regression maps its out-of-sample probabilities to calibrated
probabilities. The isotonic regression is fitted to the last 5,000 labelled rows every 500 rows. The first
1,000 rows are not measured. ECE is the expected calibration error with 15 bins of equal width.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from large_streams import LARGE, Boosted, Ours, run
from sklearn.isotonic import IsotonicRegression
from stream_data import FloatArray, IntArray

from steelyard.metrics import brier_score, expected_calibration_error, log_loss_score

STREAMS = (
    "elec2",
    "covtype4",
    "covtype5",
    "letter",
    "poker",
    "agrawal",
    "hyperplane_rare",
    "sea_rare",
    "random_tree",
    "rbf_drift",
)
_FIRST_ROW = 1000
_ISOTONIC_ROWS, _REFIT_ROWS, _BINS = 5000, 500, 15
_SMALLEST = 1e-4  # smallest probability, because the log-loss of the probabilities 0 and 1 may be infinite


def isotonic(p: FloatArray, y: IntArray, late: int) -> FloatArray:
    """Return ``p`` calibrated by isotonic regressions that are fitted to earlier labelled rows."""
    mapped = p.copy()
    for begin in range(_REFIT_ROWS, len(y), _REFIT_ROWS):
        known = slice(max(0, begin - late - _ISOTONIC_ROWS), max(0, begin - late))
        if 0 < y[known].sum() < len(y[known]):
            model = IsotonicRegression(y_min=_SMALLEST, y_max=1.0 - _SMALLEST, out_of_bounds="clip")
            part = slice(begin, begin + _REFIT_ROWS)
            mapped[part] = model.fit(p[known], y[known]).predict(p[part])
    return mapped


def measured(p: FloatArray, y: IntArray) -> dict[str, float]:
    p, y = np.clip(p[_FIRST_ROW:], 1e-6, 1.0 - 1e-6), y[_FIRST_ROW:]
    return {
        "log-loss": log_loss_score(y, p),
        "Brier": brier_score(y, p),
        "ECE": expected_calibration_error(y, p, n_bins=_BINS),
    }


def cells(name: str, folder: Path, limit: int, late: int) -> dict[str, dict[str, float]]:
    X, y = LARGE[name](folder, limit)
    ours = run(Ours(), X, y, late)[1]
    boosted = run(Boosted(50_000), X, y, late)[1]
    contenders: dict[str, Any] = {"StreamClassifier": ours, "LightGBM + isotonic": isotonic(boosted, y, late)}
    return {contender: measured(p, y) for contender, p in contenders.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--stream", action="append", choices=list(LARGE))
    parser.add_argument("--limit", type=int, default=20_000, help="maximum number of rows of a stream")
    parser.add_argument("--late", type=int, default=0, help="number of rows by which labels arrive later")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = {}
    for name in options.stream or STREAMS:
        results[name] = cells(name, options.data_dir, options.limit, options.late)
        print(_line(name, results[name]), flush=True)
    means = {
        contender: {key: float(np.mean([r[contender][key] for r in results.values()])) for key in first}
        for contender, first in next(iter(results.values())).items()
    }
    print(_line("mean", means))


def _line(name: str, result: dict[str, dict[str, float]]) -> str:
    parts = [f"{value:.4f}" for measures in result.values() for value in measures.values()]
    return f"| {name} | {' | '.join(parts)} |"


if __name__ == "__main__":
    main()
