"""Test-then-train evaluation on large streams: StreamClassifier compared with LightGBM.

    python benchmarks/accuracy/large_streams.py [--data-dir DIR] [--stream NAME] [--half choosing|reporting]
        [--late 0 500 5000] [--limit 200000] [--only NAME] [--budget 30 120 480] [--without EXPERT]
        [--out DIR]
    python benchmarks/accuracy/large_streams.py --data-dir DIR --handbook

Rows are scored in chunks of 100 before they are learned. With ``--late N`` their labels arrive N rows later:
``decision_function`` is called at once, and ``partial_fit`` when the labels have arrived.
Measures are means over windows of 10,000 rows (1,000 in streams below 50,000 rows) that have both classes:
AUC, average precision (AP), G-mean, kappa, log-loss, and the precision among the 1 % of the rows with the
highest scores. The AUC of rows 100 to 600 is reported separately. LightGBM predicts with the threshold that
``AdaptiveThresholdClassifier`` chooses from its scores. Results are appended to ``cells.jsonl`` in
``--out``.

``--budget`` runs StreamClassifier alone, once with each ``compute_budget``. ``--without`` leaves an expert of
StreamClassifier out. Without ``--data-dir``, only the generated streams (``GENERATED``) run.

``CHOOSING`` lists the streams on which experts and constants were chosen. Results are reported on the others.

``--handbook`` follows the protocol of the Fraud Detection Handbook (Le Borgne et al., chapters 4 and 5):
there are four test weeks, labels arrive seven days late, and customers known to be defrauded are excluded.
The measures are AUC, AP and card precision@100. Learning starts on the first of June. Standard deviations are
printed for AUC and AP of the first contender, and for its differences to each other contender: customers are
drawn with replacement.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score, cohen_kappa_score, log_loss, roc_auc_score
from stream_cells import Setting, moved
from stream_data import STREAMS, FloatArray, IntArray, Rows, numbers

from steelyard import StreamClassifier
from steelyard.ensemble import expert_ensemble
from steelyard.windowing import Refit

CHUNK = 100
_R2L_U2R = [
    "guess_passwd",
    "warezmaster",
    "warezclient",
    "buffer_overflow",
    "rootkit",
    "ftp_write",
    "imap",
    "multihop",
    "phf",
    "spy",
    "httptunnel",
    "named",
    "ps",
    "sendmail",
    "snmpgetattack",
    "snmpguess",
    "sqlattack",
    "worm",
    "xlock",
    "xsnoop",
    "xterm",
    "loadmodule",
    "perl",
]


def _table(name: str, positive: Callable[[pd.Series], pd.Series]) -> Callable[[Path, int], Rows]:
    def load(folder: Path, limit: int) -> Rows:
        frame = pd.read_csv(folder / f"{name}.csv.gz", nrows=limit)
        return numbers(frame.iloc[:, :-1]), positive(frame["target"]).to_numpy().astype(np.int64)

    return load


LARGE: dict[str, Callable[[Path, int], Rows]] = {
    "covtype5": _table("covtype", lambda t: t == 5),
    "elec2": _table("elec2", lambda t: t == "UP"),
    "nsl_r2l": _table("nsl_kdd_test", lambda t: t.isin(_R2L_U2R)),
    "letter": _table("koil_letter", lambda t: t == 1),
    "rbf_still": STREAMS["rbf_still"],
    "agrawal": STREAMS["agrawal"],
    "hyperplane_rare": STREAMS["hyperplane_rare"],
    "covtype4": _table("covtype", lambda t: t == 4),
    "covtype7": _table("covtype", lambda t: t == 7),
    "kdd99_r2l": _table("kdd99_10pct", lambda t: t.isin(_R2L_U2R)),
    "http": _table("kdd99_http", lambda t: t == 1),
    "smtp": _table("kdd99_smtp", lambda t: t == 1),
    "nsl_kdd": _table("nsl_kdd_train20", lambda t: t != "normal"),
    "shuttle": _table("shuttle", lambda t: t == "Fpv Open"),
    "poker": _table("koil_poker", lambda t: t == 1),
    "gaussians_drift": STREAMS["gaussians_drift"],
    "koil_mixture": STREAMS["koil_mixture"],
    "sea_rare": STREAMS["sea_rare"],
    "random_tree": STREAMS["random_tree"],
    "rbf_drift": STREAMS["rbf_drift"],
}
CHOOSING = frozenset(list(LARGE)[:7])
GENERATED = frozenset(name for name, load in LARGE.items() if load is STREAMS.get(name))  # need no data


# -- contenders -------------------------------------------------------------------------------------------


class Ours:
    """StreamClassifier, with neutral scores until it has learned two classes."""

    def __init__(self, compute_budget: Any = "auto") -> None:
        self.model, self.is_fitted = StreamClassifier(compute_budget=compute_budget), False

    def learn(self, X: FloatArray, y: IntArray) -> None:
        self.model.partial_fit(X, y)
        self.is_fitted = len(self.model.classes_) == 2

    def score(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return scores and probabilities."""
        if not self.is_fitted:
            return np.zeros(len(X)), np.full(len(X), 0.5)
        return self.model.decision_function(X), self.model.predict_proba(X)[:, 1]


def _lightgbm() -> Any:
    """Return LightGBM with a minimum of the hessian, without which it diverges on very rare classes."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        n_estimators=100, num_leaves=16, reg_lambda=1.0, n_jobs=1, verbose=-1, random_state=0
    )


class Boosted:
    """LightGBM, refitted on the last ``window`` rows whenever a tenth of its rows is new."""

    def __init__(self, window: int) -> None:
        self.model: Any = Refit(_lightgbm(), every=0.1, window=window)

    def learn(self, X: FloatArray, y: IntArray) -> None:
        self.model.partial_fit(X, y)

    def score(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return scores and probabilities."""
        if not hasattr(self.model, "classes_"):
            return np.zeros(len(X)), np.full(len(X), 0.5)
        p = np.clip(self.model.predict_proba(X)[:, 1], 1e-9, 1 - 1e-9)
        return np.log(p / (1 - p)), p


class BoostedSample(Boosted):
    """LightGBM on all rows of the rarer class and a sample of the others, refitted when a tenth is new."""

    def __init__(self, negatives: int, seed: int = 0) -> None:
        self.negatives, self.rng = negatives, np.random.default_rng(seed)
        self.X: FloatArray | None = None
        self.n_seen = self.fitted_at = 0
        self.model = None

    def learn(self, X: FloatArray, y: IntArray) -> None:
        new = (X, y, self.rng.random(len(y)))
        self.X, self.y, self.priority = (
            new if self.X is None else (np.concatenate(p) for p in zip(self.rows(), new, strict=True))
        )
        self.n_seen += len(y)
        if self.n_seen - self.fitted_at >= max(100, self.n_seen // 10) and 0 < self.y.sum() < len(self.y):
            self.fit()

    def rows(self) -> tuple[Any, Any, Any]:
        return self.X, self.y, self.priority

    def fit(self) -> None:
        rare = int(self.y.mean() < 0.5)
        frequent = np.flatnonzero(self.y != rare)
        n = max(self.negatives * int((self.y == rare).sum()), 5000)
        keep = self.y == rare
        keep[frequent[np.argsort(self.priority[frequent])[:n]]] = True
        self.X, self.y, self.priority = (part[keep] for part in self.rows())
        self.model, self.fitted_at = _lightgbm().fit(self.X, self.y), self.n_seen


CONTENDERS: dict[str, Callable[[], Any]] = {
    "StreamClassifier": Ours,
    "LightGBM, last 5,000": lambda: Boosted(5000),
    "LightGBM, last 50,000": lambda: Boosted(50_000),
    "LightGBM, all positives + 20 negatives each": lambda: BoostedSample(20),
}


# -- measuring --------------------------------------------------------------------------------------------


def run(contender: Any, X: FloatArray, y: IntArray, late: int) -> tuple[FloatArray, FloatArray, float]:
    """Return out-of-sample scores, probabilities, and microseconds of processor time per row.

    Before a second class was learned, the first class has probability 1.
    """
    scores, p, learned, began = np.zeros(len(y)), np.full(len(y), 0.5), 0, time.process_time()
    for begin in range(0, len(y), CHUNK):
        end = min(begin + CHUNK, len(y))
        scores[begin:end], p[begin:end] = contender.score(X[begin:end])
        if learned and (y[:learned] == y[0]).all():  # the only class so far is certain
            p[begin:end] = y[0]
        known = max(learned, end - late)
        if known > learned:
            contender.learn(X[learned:known], y[learned:known])
            learned = known
    return scores, p, (time.process_time() - began) / len(y) * 1e6


MEASURES = ("auc", "ap", "gmean", "kappa", "log_loss", "top1")


def measures(y: IntArray, scores: FloatArray, p: FloatArray, alarms: Any) -> dict[str, float]:
    """Return the means over windows, and the AUC of rows 100 to 600."""
    size = 10_000 if len(y) >= 50_000 else 1000
    rows = []
    for begin in range(0, len(y), size):
        part = slice(begin, begin + size)
        t, s, a, q = y[part], scores[part], alarms[part], np.clip(p[part], 1e-6, 1 - 1e-6)
        if 0 < t.sum() < len(t):
            top = np.argsort(-s, kind="stable")[: max(1, len(t) // 100)]
            gmean = np.sqrt(a[t == 1].mean() * (1.0 - a[t == 0].mean()))
            quality = [roc_auc_score(t, s), average_precision_score(t, s), gmean]
            rows.append([*quality, cohen_kappa_score(t, a), log_loss(t, q, labels=[0, 1]), t[top].mean()])
    means = dict(zip(MEASURES, np.mean(rows, axis=0).round(4).tolist(), strict=True))
    first = y[100:600]
    return {**means, "first": round(roc_auc_score(first, scores[100:600]), 4) if first.sum() > 0 else None}


def measured(name: str, contender: str, rows: Rows, late: int) -> dict[str, Any]:
    X, y = rows
    scores, p, us = run(CONTENDERS[contender](), X, y, late)
    alarms = scores > 0.0
    if not contender.startswith("StreamClassifier"):
        alarms = moved(scores, 0.0, y, Setting(len(y), CHUNK, late), looks=500)
    facts = {"stream": name, "contender": contender, "late": late, "rows": len(y), "us": round(us, 1)}
    return {**facts, **measures(y, scores, p, alarms.astype(int))}


# -- the Fraud Detection Handbook -------------------------------------------------------------------------

FIRST_DAY, TEST_DAYS, DELAY_DAYS = 61, range(108, 136), 8  # labels of day d are used from day d + 8 on
HANDBOOK_DRAWS = 100
FOLD_STARTS = (115, 108, 101, 94)  # first training days; the test week starts 14 days later


class Payments(NamedTuple):
    """Payments of the Handbook, in the order of time."""

    day: IntArray
    customer: IntArray
    X: FloatArray
    y: IntArray

    @classmethod
    def read(cls, folder: Path) -> Payments:
        frame = pd.read_parquet(folder / "fraud_handbook.parquet")
        X = frame.drop(columns=["time", "customer", "terminal", "scenario", "target"]).to_numpy(np.float64)
        day, y = (frame["time"] // 86400).to_numpy(), frame["target"].to_numpy().astype(np.int64)
        return cls(day, frame["customer"].to_numpy(), X, y)


def handbook(folder: Path, contender: str) -> dict[str, float]:
    """Return AUC, AP and card precision@100 of the official protocol, and microseconds per row."""
    payments = Payments.read(folder)
    scores, us = handbook_scores(payments, contender)
    return {**handbook_measures(payments, scores), "us": round(us, 1)}


def handbook_scores(payments: Payments, contender: str) -> tuple[FloatArray, float]:
    """Return out-of-sample scores from the first day of learning on, and microseconds per row."""
    day, _, X, y = payments
    model, scores, began = CONTENDERS[contender](), np.zeros(len(y)), time.process_time()
    last_day = TEST_DAYS[-1]
    for today in range(FIRST_DAY, last_day + 1):
        rows = np.flatnonzero(day == today)
        scores[rows] = model.score(X[rows])[0]
        labelled_day = today - DELAY_DAYS + 1
        labelled = np.flatnonzero(day == labelled_day) if labelled_day >= FIRST_DAY else []
        for begin in range(0, len(labelled), 500):
            part = labelled[begin : begin + 500]
            model.learn(np.ascontiguousarray(X[part]), y[part])
    n_rows = int(np.count_nonzero((day >= FIRST_DAY) & (day <= last_day)))
    return scores, (time.process_time() - began) / n_rows * 1e6


def handbook_measures(payments: Payments, scores: FloatArray) -> dict[str, float]:
    """Return the means over the four test weeks."""
    folds = [_fold(start, payments, scores) for start in FOLD_STARTS]
    auc, ap, precision = np.mean(folds, axis=0).round(4).tolist()
    return {"auc": auc, "ap": ap, "card_precision@100": precision}


def handbook_chance(payments: Payments, ours: FloatArray, theirs: FloatArray) -> dict[str, float]:
    """Return standard deviations of our measures, and of their differences, if customers are drawn again."""
    rng, n_customers, draws = np.random.default_rng(0), int(payments.customer.max()) + 1, []
    tests = [(rows, payments.y[rows]) for rows in (_tested(s, payments)[0] for s in FOLD_STARTS)]
    for _ in range(HANDBOOK_DRAWS):
        copies = np.bincount(rng.integers(0, n_customers, n_customers), minlength=n_customers)
        folds = []
        for rows, y in tests:
            weights = copies[payments.customer[rows]]
            measured = [
                measure(y, scores[rows], sample_weight=weights)
                for scores in (ours, theirs)
                for measure in (roc_auc_score, average_precision_score)
            ]
            folds.append(measured)
        draws.append(np.mean(folds, axis=0))
    auc, ap, their_auc, their_ap = np.transpose(draws)
    values = {"auc": auc, "ap": ap, "auc difference": auc - their_auc, "ap difference": ap - their_ap}
    return {name: round(float(np.std(value)), 4) for name, value in values.items()}


def _tested(start: int, payments: Payments) -> tuple[IntArray, list[IntArray]]:
    """Return the rows of a test week without defrauded customers, and the rows of each of its days."""
    day, customer, _, y = payments
    defrauded = set(customer[(day >= start) & (day < start + 7) & (y == 1)])
    days = []
    for d in range(7):
        defrauded |= set(customer[(day == start + 6 + d) & (y == 1)])
        today = np.flatnonzero(day == start + 14 + d)
        days.append(today[~np.isin(customer[today], list(defrauded))])
    return np.concatenate(days), days


def _fold(start: int, payments: Payments, scores: FloatArray) -> tuple[float, float, float]:
    (chosen, days), (_, customer, _, y) = _tested(start, payments), payments
    precisions, detected = [], set[int]()
    for today in days:
        cards = pd.DataFrame({"card": customer[today], "score": scores[today], "fraud": y[today]})
        cards = cards.groupby("card").max()
        cards = cards[~cards.index.isin(detected)].sort_values("score", ascending=False).head(100)
        precisions.append(cards["fraud"].sum() / 100.0)
        detected |= set(cards.index[cards["fraud"] == 1])
    auc, ap = roc_auc_score(y[chosen], scores[chosen]), average_precision_score(y[chosen], scores[chosen])
    return auc, ap, float(np.mean(precisions))


# -- tables -----------------------------------------------------------------------------------------------


def table(cells: list[dict[str, Any]]) -> str:
    """Return a table of means over the streams for which all contenders have results."""
    names = list(dict.fromkeys(cell["contender"] for cell in cells))
    of = {(cell["stream"], cell["contender"]): cell for cell in cells}
    streams = [s for s in dict.fromkeys(cell["stream"] for cell in cells) if all((s, n) in of for n in names)]
    keys = [*MEASURES, "first", "us"]
    lines = [f"| {len(streams)} streams | {' | '.join(keys)} |", "|---" * (len(keys) + 1) + "|"]
    for name in names:
        values = [
            np.mean([of[s, name][key] for s in streams if of[s, name][key] is not None]) for key in keys
        ]
        lines.append(f"| {name} | {' | '.join(f'{v:.3f}' for v in values[:-1])} | {values[-1]:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data-dir", type=Path, help="folder with the data; generated streams need none")
    parser.add_argument("--out", type=Path, default=Path("build/large_streams"))
    parser.add_argument("--stream", action="append", choices=list(LARGE))
    parser.add_argument("--half", choices=["choosing", "reporting"])
    parser.add_argument(
        "--late", type=int, nargs="+", default=[0], help="number of rows by which labels arrive later"
    )
    parser.add_argument("--limit", type=int, default=200_000, help="maximum number of rows of a stream")
    parser.add_argument("--only", action="append", choices=list(CONTENDERS), help="a contender")
    parser.add_argument(
        "--budget", type=float, nargs="+", help="compute_budget of StreamClassifier, in microseconds per row"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=[config.name for config in expert_ensemble.EXPERTS],
        help="an expert that StreamClassifier leaves out",
    )
    parser.add_argument("--handbook", action="store_true", help="run the protocol of the Handbook instead")
    options = parser.parse_args()
    streams = options.stream or [s for s in LARGE if options.data_dir or s in GENERATED]
    if options.data_dir is None and (options.handbook or not GENERATED.issuperset(streams)):
        parser.error(f"--data-dir is required, except for the streams {', '.join(sorted(GENERATED))}")
    # The results of such an ensemble can be compared, but it cannot be saved.
    expert_ensemble.EXPERTS = tuple(
        config for config in expert_ensemble.EXPERTS if config.name not in options.without
    )
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    contenders = options.only or list(CONTENDERS)
    if options.budget:
        budgets = {f"StreamClassifier, {us:g} us": us for us in options.budget}
        CONTENDERS.update({name: partial(Ours, us) for name, us in budgets.items()})
        contenders = list(budgets)
    if options.handbook:
        run_handbook(options.data_dir, contenders)
        return
    streams = [s for s in streams if options.half in {None, _half(s)}]
    for late in options.late:
        cells = []
        for stream in streams:
            rows = LARGE[stream](options.data_dir, options.limit)
            for contender in contenders:
                cells.append({**measured(stream, contender, rows, late), "without": options.without})
                with (options.out / "cells.jsonl").open("a") as file:
                    file.write(json.dumps(cells[-1]) + "\n")
                print(cells[-1], flush=True)
        print(f"labels {late} rows late\n\n{table(cells)}\n")


def run_handbook(folder: Path, contenders: list[str]) -> None:
    """Print the measures of all contenders, and how much of the differences to the first may be chance."""
    payments, first = Payments.read(folder), None
    for contender in contenders:
        scores, us = handbook_scores(payments, contender)
        print(contender, {**handbook_measures(payments, scores), "us": round(us, 1)}, flush=True)
        if first is not None:
            print("  standard deviations:", handbook_chance(payments, first, scores), flush=True)
        first = scores if first is None else first


def _half(stream: str) -> str:
    return "choosing" if stream in CHOOSING else "reporting"


if __name__ == "__main__":
    main()
