"""Compare the probabilities of StreamClassifier with those of LightGBM with isotonic regression.

The measures are log-loss, Brier score and ECE.

    python benchmarks/accuracy/calibration.py --data-dir DIR [--stream NAME] [--limit 20000] [--late 0]
    python benchmarks/accuracy/calibration.py --data-dir DIR --bounds --stream elec2 --limit 50000

Rows are predicted in chunks of 100 before they are learned. LightGBM is refitted on the last 50,000 rows
whenever a tenth of them is new. Isotonic regression maps its out-of-sample probabilities to calibrated
probabilities. The isotonic regression is fitted to the last 5,000 labelled rows every 500 rows. The first
1,000 rows are not measured. ECE is the expected calibration error with 15 bins of equal width.

``--bounds`` prints which ECE and Brier score are possible on a stream.

- "unbiased" is the ECE of a calibrator without any bias. An isotonic regression is fitted to all
  probabilities of StreamClassifier with their labels, so its ECE is 0. Its errors (label minus probability)
  are drawn again in blocks of consecutive rows: blocks of one row assume independent errors, longer blocks
  keep the correlation of consecutive errors.
- "next 5,000 rows" are regressions that are fitted to the 5,000 rows after each block of 500 rows.
- "Brier in hindsight" is the Brier score after an isotonic regression that is fitted to all rows: no
  increasing function of the scores has a lower one.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from large_streams import LARGE, Boosted, Ours, run
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
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
_BLOCKS, _DRAWS = (1, 48, 336, 1000), 200  # bounds: rows per block, and number of draws
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


def unbiased(p: FloatArray, y: IntArray, block: int) -> FloatArray:
    """Return draws of the ECE of a calibrator without bias, whose errors are correlated as observed."""
    fitted = IsotonicRegression(out_of_bounds="clip").fit(p, y).predict(p)
    errors, bins = y - fitted, np.minimum((fitted * _BINS).astype(int), _BINS - 1)
    rng, values = np.random.default_rng(0), np.zeros(_DRAWS)
    for draw in range(_DRAWS):
        starts = rng.integers(0, len(y), -(-len(y) // block))
        rows = ((starts[:, None] + np.arange(block)) % len(y)).ravel()[: len(y)]
        values[draw] = np.abs(np.bincount(bins[rows], errors[rows])).sum() / len(y)
    return values


def in_hindsight(p: FloatArray, y: IntArray, *, is_isotonic: bool) -> FloatArray:
    """Return ``p`` calibrated by a regression on the 5,000 rows after each block of 500 rows."""
    mapped, z = p.copy(), logit(np.clip(p, _SMALLEST, 1.0 - _SMALLEST))
    for begin in range(0, len(y) - _REFIT_ROWS, _REFIT_ROWS):
        part = slice(begin, begin + _REFIT_ROWS)
        later = slice(part.stop, part.stop + _ISOTONIC_ROWS)
        if not 0 < y[later].sum() < len(y[later]):
            continue
        if is_isotonic:
            model = IsotonicRegression(y_min=_SMALLEST, y_max=1.0 - _SMALLEST, out_of_bounds="clip")
            mapped[part] = model.fit(p[later], y[later]).predict(p[part])
        else:
            line = LogisticRegression(C=1e3).fit(z[later, None], y[later])
            mapped[part] = expit(line.decision_function(z[part, None]))
    return mapped


def brier_in_hindsight(scores: FloatArray, y: IntArray) -> float:
    """Return the lowest Brier score that an increasing function of the scores can have."""
    scores, y = scores[_FIRST_ROW:], y[_FIRST_ROW:]
    return float(np.mean(np.square(IsotonicRegression().fit(scores, y).predict(scores) - y)))


def bounds(name: str, folder: Path, limit: int) -> None:
    """Print the ECE and Brier score of StreamClassifier, and those of calibrators that know more."""
    X, y = LARGE[name](folder, limit)
    scores, p, _ = run(Ours(), X, y, late=0)
    boosted = isotonic(run(Boosted(50_000), X, y, late=0)[1], y, late=0)
    print(f"{name}: ECE {measured(p, y)['ECE']:.4f}")
    for block in _BLOCKS:
        draws = unbiased(p[_FIRST_ROW:], y[_FIRST_ROW:], block)
        low, high = np.quantile(draws, [0.1, 0.9])
        print(f"  unbiased, blocks of {block} rows: {draws.mean():.4f} (80 % in {low:.4f} to {high:.4f})")
    for kind, is_isotonic in {"isotonic": True, "Platt": False}.items():
        mapped = in_hindsight(p, y, is_isotonic=is_isotonic)
        print(f"  {kind} regression on the next 5,000 rows: {measured(mapped, y)['ECE']:.4f}")
    print(f"  Brier {measured(p, y)['Brier']:.5f}, in hindsight {brier_in_hindsight(scores, y):.5f}")
    lightgbm = measured(boosted, y)["Brier"], brier_in_hindsight(boosted, y)
    print(f"  LightGBM: Brier {lightgbm[0]:.5f}, in hindsight {lightgbm[1]:.5f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--stream", action="append", choices=list(LARGE))
    parser.add_argument("--limit", type=int, default=20_000, help="maximum number of rows of a stream")
    parser.add_argument("--late", type=int, default=0, help="number of rows by which labels arrive later")
    parser.add_argument("--bounds", action="store_true", help="print which calibration error is possible")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.bounds:
        for name in options.stream or STREAMS:
            bounds(name, options.data_dir, options.limit)
        return
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
