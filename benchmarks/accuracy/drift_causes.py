"""Compare drift detectors: correct causes and columns of injected drifts, and false alarms.

    python benchmarks/accuracy/drift_causes.py [--streams 500] [--peer-streams 60] [--rows 6000]
        [--detector NAME ...]

Every stream has two classes and ten columns with normal, skewed or uniform values. At the middle row one of
four changes happens: prior (the share of the rare class changes), shift and scale (one column changes in
all classes; the cause is "features"), and concept (one column changes in the rare class only). The
detectors of river monitor every column and the labels. A drift of the labels counts as prior. They cannot
distinguish features from concept, so either counts as correct for a drift of a column. The tests of
Evidently compare blocks of 500 rows with the first 1,000 rows, with the default thresholds. The default
tests are the Kolmogorov-Smirnov test for columns and the Z-test for labels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from steelyard.ensemble.change_monitor import ChangeMonitor

_N_COLUMNS = 10
_KINDS = ("prior", "shift", "scale", "concept")
_CAUSE = {"prior": "prior", "shift": "features", "scale": "features", "concept": "concept", "none": "none"}
_CHUNK_ROWS = 100
_BLOCK_ROWS = 500  # number of rows of each sample in the two-sample tests
_REFERENCE_ROWS = 1000
LABEL = -1  # column number of the labels


@dataclass(frozen=True)
class Stream:
    """Generated stream: rows, labels, row and kind of the change, and the changed column."""

    X: np.ndarray
    y: np.ndarray
    at: int
    kind: str
    column: int


@dataclass(frozen=True)
class Alarm:
    """Alarm of a detector: row, cause (None if the detector gives no cause), and columns, best first."""

    row: int
    cause: str | None
    columns: list[int]


def make_stream(kind: str, n_rows: int, seed: int) -> Stream:
    """Return a stream with one change of a known cause."""
    rng = np.random.default_rng([seed, 40])
    at, share, column = n_rows // 2, rng.uniform(0.05, 0.2), int(rng.integers(_N_COLUMNS))
    shares = np.full(n_rows, share)
    if kind == "prior":
        shares[at:] = share * rng.uniform(2.0, 3.0)
    y = (rng.random(n_rows) < shares).astype(np.int64)
    X = rng.normal(size=(n_rows, _N_COLUMNS))
    for k in range(_N_COLUMNS):
        if k % 3 == 1:
            X[:, k] = np.exp(0.7 * X[:, k])  # skewed
        elif k % 3 == 2:
            X[:, k] = rng.random(n_rows)
    spread = X.std(axis=0)
    informative = rng.choice(_N_COLUMNS, size=3, replace=False)
    X[:, informative] += rng.uniform(0.5, 1.5, 3) * spread[informative] * y[:, None]
    sign = rng.choice([-1.0, 1.0])
    if kind == "shift":
        X[at:, column] += sign * rng.uniform(0.4, 1.5) * spread[column]
    elif kind == "scale":
        middle = X[:at, column].mean()
        X[at:, column] = middle + rng.uniform(1.5, 2.5) ** sign * (X[at:, column] - middle)
    elif kind == "concept":
        X[at:, column] += sign * rng.uniform(1.0, 2.0) * spread[column] * y[at:]
    return Stream(X, y, at, kind, column)


def steelyard_alarms(stream: Stream) -> list[Alarm]:
    """Return the alarms of the change monitor of StreamClassifier."""
    monitor = ChangeMonitor()
    for begin in range(0, len(stream.y), _CHUNK_ROWS):
        rows = slice(begin, begin + _CHUNK_ROWS)
        monitor = monitor.after(stream.X[rows], stream.y[rows], [0, 1])
    return [
        Alarm(event["row"], event["cause"], [int(name[1:]) for name in event["columns"]])
        for event in monitor.events
    ]


def river_alarms(make: Callable[[], object]) -> Callable[[Stream], list[Alarm]]:
    """Return a function that monitors every column and the labels with a detector of river."""

    def alarms(stream: Stream) -> list[Alarm]:
        found = []
        for column in (*range(_N_COLUMNS), LABEL):
            values = stream.y if column == LABEL else stream.X[:, column]
            detector = make()
            for row, value in enumerate(values.tolist()):
                detector.update(value)
                if detector.drift_detected:
                    found.append(Alarm(row, "prior" if column == LABEL else None, [column]))
        return sorted(found, key=lambda alarm: alarm.row)

    return alarms


def evidently_alarms(method: str | None = None) -> Callable[[Stream], list[Alarm]]:
    """Return a function that tests every column of each block by ``method`` (None: default of Evidently)."""

    def alarms(stream: Stream) -> list[Alarm]:
        import pandas as pd
        from evidently.legacy.calculations.stattests import get_stattest
        from evidently.legacy.core import ColumnType

        found = []
        for begin in range(_REFERENCE_ROWS, len(stream.y) - _BLOCK_ROWS + 1, _BLOCK_ROWS):
            end = begin + _BLOCK_ROWS
            for column in (*range(_N_COLUMNS), LABEL):
                is_label = column == LABEL
                values = pd.Series(stream.y if is_label else stream.X[:, column])
                kind = ColumnType.Categorical if is_label else ColumnType.Numerical
                before, after = values[:_REFERENCE_ROWS], values[begin:end]
                test = get_stattest(before, after, kind, None if is_label else method)
                if test(before, after, kind, None).drifted:
                    found.append(Alarm(end, "prior" if is_label else None, [column]))
        return found

    return alarms


def detectors() -> dict[str, Callable[[Stream], list[Alarm]]]:
    """Return the detectors whose packages are installed, by name."""
    found: dict[str, Callable[[Stream], list[Alarm]]] = {"steelyard": steelyard_alarms}
    if find_spec("river"):
        from river import drift

        found["river ADWIN"] = river_alarms(drift.ADWIN)
        found["river Page-Hinkley"] = river_alarms(drift.PageHinkley)
        found["river KSWIN"] = river_alarms(lambda: drift.KSWIN(seed=0))
    if find_spec("evidently"):
        found["Evidently, default"] = evidently_alarms()
        found["Evidently, Wasserstein"] = evidently_alarms("wasserstein")
        found["Evidently, PSI"] = evidently_alarms("psi")
        found["Evidently, Jensen-Shannon"] = evidently_alarms("jensenshannon")
    return found


def score(detect: Callable[[Stream], list[Alarm]], streams: list[Stream]) -> dict[str, float]:
    """Return the shares of streams with a detected change, correct cause and correct column."""
    totals = {"detected": 0, "cause": 0, "column": 0, "early": 0}
    delays, n_columns = [], 0
    for stream in streams:
        alarms = detect(stream)
        totals["early"] += sum(alarm.row <= stream.at for alarm in alarms)
        later = [alarm for alarm in alarms if alarm.row > stream.at]
        n_columns += stream.kind != "prior"
        if not later:
            continue
        first = later[0]
        totals["detected"] += 1
        delays.append(first.row - stream.at)
        is_prior = stream.kind == "prior"
        same = first.cause == _CAUSE[stream.kind] if first.cause or is_prior else True
        totals["cause"] += same
        columns = first.columns[:3] or [alarm.columns[0] for alarm in later[:3] if alarm.columns]
        if first.cause is None:  # the first three columns with an alarm
            columns = list(dict.fromkeys(alarm.columns[0] for alarm in later))[:3]
        totals["column"] += not is_prior and stream.column in columns
    n = max(len(streams), 1)
    return {
        "detected": totals["detected"] / n,
        "right cause": totals["cause"] / n,
        "right column": totals["column"] / max(n_columns, 1),
        "median delay": float(np.median(delays)) if delays else np.nan,
        "false per 100,000 rows": 1e5 * totals["early"] / max(sum(stream.at for stream in streams), 1),
    }


def main() -> None:
    """Print one line per detector."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--peer-streams", type=int, default=60)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--long-rows", type=int, default=100_000, help="rows of each stream without a change")
    parser.add_argument("--long-streams", type=int, default=10)
    parser.add_argument("--detector", nargs="+", help="run only these detectors")
    options = parser.parse_args()
    streams = [make_stream(_KINDS[k % 4], options.rows, k) for k in range(options.streams)]
    columns = ("detected", "right cause", "right column", "median delay", "false per 100,000 rows")
    print("detector\tstreams\t" + "\t".join(columns))

    def show(name: str, detect: Callable[[Stream], list[Alarm]], used: list[Stream]) -> None:
        values = score(detect, used)
        print(f"{name}\t{len(used)}\t" + "\t".join(f"{values[key]:.3f}" for key in columns), flush=True)

    for name, detect in detectors().items():
        if options.detector is None or name in options.detector:
            show(name, detect, streams if name == "steelyard" else streams[: options.peer_streams])
    if options.detector is not None:
        return
    for kind in _KINDS:
        show(f"steelyard, {kind}", steelyard_alarms, [stream for stream in streams if stream.kind == kind])
    long = [make_stream("none", options.long_rows, k) for k in range(options.long_streams)]
    n_false = sum(len(steelyard_alarms(stream)) for stream in long)
    print(f"steelyard, streams without a change: {n_false} alarms in {options.long_rows * len(long):,} rows")


if __name__ == "__main__":
    main()
