"""StreamClassifier and LightGBM on tables with categories, and on streams with missing cells.

Part "categories": test-then-train evaluation in chunks of 100 rows on tables with text columns. LightGBM is
refitted on the last 5,000 rows and gets the same columns as pandas categories. AUC and average precision (AP)
are computed over all rows after the first 500, and as means over windows of 1,000 rows.

Part "gaps": 20 % of the cells of streams of ``stream_data.py`` are removed at random. StreamClassifier and
LightGBM with their own treatment of missing values are compared with StreamClassifier after imputation by
running means. The measure is the AUC, averaged over windows of 1,000 rows.

Part "bounds": how much of the loss by missing values could be avoided. "imputed in hindsight" is
StreamClassifier after iterative imputation by forests that are fitted to all rows of the stream, including
later rows. "oracle" learns the complete rows; the probability of a row is the mean over 20 completions. In
streams with independent columns, each missing cell is drawn from the last 2,000 complete rows. In the others,
all missing cells of a row are taken from one of the 20 complete rows of the whole stream, also of later rows,
that are nearest in its known columns.

Part "mixing": how much of the difference to LightGBM on small tables is due to the combination of the
experts, and how much to chance. It prints means over four orders of the rows: the AP of both learners, of
single experts, and of the fixed weights that are best in hindsight; and the standard deviation of the
difference in AP between the learners if rows are drawn with replacement.

    python benchmarks/accuracy/real_tables.py --data-dir DIR [--part NAME] [--limit ROWS] [--seed ORDER]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from large_streams import _R2L_U2R
from sklearn.metrics import average_precision_score, roc_auc_score
from stream_data import STREAMS, FloatArray, IntArray

from steelyard import StreamClassifier

CHUNK, WARMUP, WINDOW, SHARE_REMOVED = 100, 500, 1000, 0.2
ORDERS, SEARCH_STEPS = 4, 1500  # mixing: orders of the rows, and steps of the random search for weights
DRAWS, POOL = 20, 2000  # oracle: number of draws of the missing cells, and number of rows to draw from
INDEPENDENT = ("hyperplane_rare", "sea_drifts", "koil_mixture")  # streams with independent columns
GAP_STREAMS = (
    "elec2", "weather", "covtype4", "mammography", "creditcard", "letter", "satimage", "phishing",
    "hyperplane_rare", "sea_drifts", "koil_mixture", "rbf_still",
)  # fmt: skip


def _table(
    name: str, is_positive: Callable[[pd.Series], pd.Series], *, shuffle: bool = False
) -> Callable[[Path, int, int], tuple[pd.DataFrame, IntArray]]:
    def load(folder: Path, limit: int, seed: int) -> tuple[pd.DataFrame, IntArray]:
        frame = pd.read_csv(folder / f"{name}.csv.gz")
        if shuffle:
            frame = frame.iloc[np.random.default_rng(seed).permutation(len(frame))]
        frame = frame.iloc[:limit].reset_index(drop=True)
        y = is_positive(frame.pop("target")).to_numpy().astype(np.int64)
        texts = {name: "category" for name in frame if not pd.api.types.is_numeric_dtype(frame[name])}
        return frame.astype(texts), y

    return load


TABLES = {
    "car, good": _table("car", lambda t: t == "good", shuffle=True),
    "euthyroid": _table("euthyroid", lambda t: t == "sick-euthyroid", shuffle=True),
    "nsl_kdd test, r2l + u2r": _table("nsl_kdd_test", lambda t: t.isin(_R2L_U2R)),
    "kdd99, random sample, r2l + u2r": _table("kdd99_10pct", lambda t: t.isin(_R2L_U2R), shuffle=True),
}


def ours(X: Any, y: IntArray) -> FloatArray:
    """Return the out-of-sample scores of StreamClassifier."""
    model, scores = StreamClassifier(), np.zeros(len(y))
    for begin in range(0, len(y), CHUNK):
        part = X[begin : begin + CHUNK]
        if begin and len(model.classes_) == 2:
            scores[begin : begin + CHUNK] = model.decision_function(part)
        model.partial_fit(part, y[begin : begin + CHUNK])
    return scores


def boosted(X: Any, y: IntArray, window: int = 5000) -> FloatArray:
    """Return the out-of-sample scores of LightGBM, refitted on the last rows when a tenth is new."""
    from lightgbm import LGBMClassifier

    model, scores, fitted = None, np.zeros(len(y)), 0
    for begin in range(0, len(y), CHUNK):
        if model is not None:
            scores[begin : begin + CHUNK] = model.predict(X[begin : begin + CHUNK], raw_score=True)
        end = min(begin + CHUNK, len(y))
        rows = slice(max(0, end - window), end)
        if end - fitted >= max(100, min(end, window) // 10) and 0 < y[rows].sum() < len(y[rows]):
            small = {"min_child_samples": 5} if rows.stop - rows.start <= 2000 else {}
            model = LGBMClassifier(
                num_leaves=16, reg_lambda=1.0, n_jobs=1, verbose=-1, random_state=0, **small
            ).fit(X[rows], y[rows])
            fitted = end
    return scores


def windows(y: IntArray, scores: FloatArray, measure: Callable[..., float]) -> float:
    """Return the mean of a measure over windows with at least two rows of each class."""
    values = []
    for begin in range(WARMUP, len(y), WINDOW):
        part = slice(begin, begin + WINDOW)
        if min(y[part].sum(), (1 - y[part]).sum()) >= 2:
            values.append(measure(y[part], scores[part]))
    return float(np.mean(values))


def with_running_means(X: FloatArray) -> FloatArray:
    """Return rows in which missing values are replaced by the mean of earlier values of the column."""
    known = ~np.isnan(X)
    sums = np.vstack([np.zeros(X.shape[1]), np.where(known, X, 0.0)]).cumsum(axis=0)[:-1]
    counts = np.vstack([np.zeros(X.shape[1]), known]).cumsum(axis=0)[:-1]
    return np.where(known, X, sums / np.maximum(counts, 1.0))


def categories(folder: Path, limit: int, seed: int = 0) -> None:
    """Print one line for each table with columns of text."""
    print("| table | rows | positive | StreamClassifier | in windows | LightGBM | in windows |")
    print("|---|---|---|---|---|---|---|")
    for name, load in TABLES.items():
        X, y = load(folder, limit, seed)
        cells = []
        for run in (ours, boosted):
            scores = run(X, y)
            late, measures = slice(WARMUP, None), (roc_auc_score, average_precision_score)
            cells.append(" / ".join(f"{measure(y[late], scores[late]):.3f}" for measure in measures))
            cells.append(" / ".join(f"{windows(y, scores, measure):.3f}" for measure in measures))
        print(f"| {name} | {len(y):,} | {100 * y.mean():.2f} % | {' | '.join(cells)} |", flush=True)


def gaps(folder: Path, limit: int) -> None:
    """Print one line for each stream with 20 % of its cells removed, and the means."""
    print("| stream | all cells | own treatment | running means | LightGBM, all cells | LightGBM |")
    print("|---|---|---|---|---|---|")
    lines = []
    for name in GAP_STREAMS:
        X, y = STREAMS[name](folder, limit)
        removed = np.where(np.random.default_rng(0).random(X.shape) < SHARE_REMOVED, np.nan, X)
        runs = [ours(X, y), ours(removed, y), ours(with_running_means(removed), y)]
        runs += [boosted(X, y), boosted(removed, y)]
        lines.append([windows(y, scores, roc_auc_score) for scores in runs])
        print(f"| {name} | {' | '.join(f'{value:.3f}' for value in lines[-1])} |", flush=True)
    print(f"| mean | {' | '.join(f'{value:.4f}' for value in np.mean(lines, axis=0))} |")


def imputed_in_hindsight(X: FloatArray) -> FloatArray:
    """Return rows with missing values replaced by the predictions of forests fitted to all rows."""
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    forest = ExtraTreesRegressor(
        20, min_samples_leaf=3, max_samples=2000, bootstrap=True, n_jobs=1, random_state=0
    )
    imputer = IterativeImputer(forest, max_iter=3, random_state=0, n_nearest_features=20)
    return np.asarray(imputer.fit_transform(X))


def nearest_rows(X: FloatArray, removed: FloatArray, begin: int) -> IntArray:
    """Return the numbers of the complete rows nearest to each row of a chunk, without the row itself."""
    part, scale = removed[begin : begin + CHUNK] - X.mean(axis=0), np.maximum(X.std(axis=0), 1e-9)
    known, part = ~np.isnan(part), np.nan_to_num(part) / scale
    rows = (X - X.mean(axis=0)) / scale
    distances = known.astype(np.float64) @ np.square(rows).T - 2.0 * part @ rows.T
    distances[np.arange(len(part)), begin + np.arange(len(part))] = np.inf
    return np.argpartition(distances, DRAWS, axis=1)[:, :DRAWS]


def oracle(X: FloatArray, removed: FloatArray, y: IntArray, *, is_independent: bool) -> FloatArray:
    """Return mean probabilities over draws of the missing cells. The model learns the complete rows."""
    rng, model, scores = np.random.default_rng(1), StreamClassifier(), np.zeros(len(y))
    for begin in range(0, len(y), CHUNK):
        part = removed[begin : begin + CHUNK]
        if begin >= WARMUP and len(model.classes_) == 2:
            known = X[max(0, begin - POOL) : begin]
            nearest = None if is_independent else nearest_rows(X, removed, begin)
            for draw in range(DRAWS):
                if nearest is None:
                    drawn = np.column_stack([rng.choice(column, len(part)) for column in known.T])
                else:
                    drawn = X[nearest[:, draw]]
                rows = np.where(np.isnan(part), drawn, part)
                scores[begin : begin + CHUNK] += model.predict_proba(rows)[:, 1]
        model.partial_fit(X[begin : begin + CHUNK], y[begin : begin + CHUNK])
    return scores


def bounds(folder: Path, limit: int) -> None:
    """Print the AUC of methods that use information that a learner does not have, such as later rows."""
    print("| stream | imputed in hindsight | oracle |")
    print("|---|---|---|")
    for name in GAP_STREAMS:
        X, y = STREAMS[name](folder, limit)
        removed = np.where(np.random.default_rng(0).random(X.shape) < SHARE_REMOVED, np.nan, X)
        scores = (
            ours(imputed_in_hindsight(removed), y),
            oracle(X, removed, y, is_independent=name in INDEPENDENT),
        )
        cells = [f"{windows(y, values, roc_auc_score):.3f}" for values in scores]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def expert_log_odds(X: Any, y: IntArray) -> tuple[FloatArray, FloatArray, list[str]]:
    """Return the scores of StreamClassifier, the calibrated log-odds of its experts, and their names."""
    model, scores, parts = StreamClassifier(), np.zeros(len(y)), []
    for begin in range(0, len(y), CHUNK):
        part = X[begin : begin + CHUNK]
        weights = model._ensemble.snapshot.weights if begin else None
        if weights is not None and len(model.classes_) == 2:
            scores[begin : begin + CHUNK] = model.decision_function(part)
            raw, _ = model._raw_scores(part, "decision_function")
            parts.append(weights.expert_log_odds(raw[:, :, 0]))
        model.partial_fit(part, y[begin : begin + CHUNK])
    return scores, np.concatenate(parts), [expert.config.name for expert in model._ensemble.experts]


def best_fixed_weights(log_odds: FloatArray, y: IntArray) -> float:
    """Return the AP of the best weights that a random search finds with all labels."""
    rng, best, weights = np.random.default_rng(0), 0.0, np.full(log_odds.shape[1], 1.0 / log_odds.shape[1])
    for step in range(SEARCH_STEPS):
        is_first = step < SEARCH_STEPS // 3
        changed = rng.random(len(weights)) < 0.4
        near = np.abs(weights + 0.1 * changed * rng.normal(size=len(weights)))
        tried = rng.dirichlet(np.full(len(weights), 0.3)) if is_first else near
        value = average_precision_score(y, log_odds @ tried)
        if value > best:
            best, weights = value, tried
    return best


def resampled_difference(y: IntArray, ours: FloatArray, theirs: FloatArray, draws: int = 200) -> float:
    """Return the standard deviation of the difference in AP over draws of the rows with replacement."""
    rng, values = np.random.default_rng(0), []
    for _ in range(draws):
        rows = rng.integers(0, len(y), len(y))
        values.append(
            average_precision_score(y[rows], ours[rows]) - average_precision_score(y[rows], theirs[rows])
        )
    return float(np.std(values))


def mixing(folder: Path, limit: int) -> None:
    """Print means over the orders of the rows: AP of the learners, of experts, and of the best weights."""
    for name in ("car, good", "euthyroid"):
        lines: dict[str, list[float]] = {}
        for seed in range(ORDERS):
            X, y = TABLES[name](folder, limit, seed)
            scores, log_odds, experts = expert_log_odds(X, y)
            late, theirs = slice(WARMUP, None), boosted(X, y)[WARMUP:]
            y, scores, log_odds = y[late], scores[late], log_odds[-len(theirs) :]
            values = {"StreamClassifier": average_precision_score(y, scores)}
            values["LightGBM"] = average_precision_score(y, theirs)
            values["best fixed weights"] = best_fixed_weights(log_odds, y)
            values["standard deviation of the difference"] = resampled_difference(y, scores, theirs)
            for expert in ("kernel", "trees", "trees all"):
                values[expert] = average_precision_score(y, log_odds[:, experts.index(expert)])
            for key, value in values.items():
                lines.setdefault(key, []).append(value)
        cells = "; ".join(f"{key} {np.mean(found):.4f}" for key, found in lines.items())
        print(f"{name}: {cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--part", choices=["categories", "gaps", "bounds", "mixing"])
    parser.add_argument("--limit", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the row order of shuffled tables")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    parts = {
        "categories": partial(categories, seed=given.seed),
        "gaps": gaps,
        "bounds": bounds,
        "mixing": mixing,
    }
    for name, part in parts.items():
        if given.part in {None, name}:
            part(given.data_dir, given.limit)


if __name__ == "__main__":
    main()
