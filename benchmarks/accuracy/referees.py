"""Compute published results again and compare them with the published numbers: ``make referee``.

    python benchmarks/accuracy/referees.py [--data FOLDER] [--only NAME] [--all-peers] [--out FILE.md]
    python benchmarks/accuracy/referees.py --quick

A referee is a result that others have published, with a protocol, numbers and a licence. This script
runs each referee and writes one table. Every line has our result, the best published one, the best result of
the learners that were run here, and our rank among all of them. Data that may not be distributed is read from
``--data``. For a referee without its data, the line has the reason. ``--quick`` runs the same code on a few
generated rows, so its numbers have no meaning.

``--all-peers`` also runs the slow peers (forests of river on the longer streams, which take minutes).
With ``--moa PYTHON``, a Python interpreter with capymoa, the generators of the survey and further peers are
those of MOA.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from moa_client import MoaClient
from sklearn.metrics import f1_score
from stream_cells import Cells, Setting, measured
from stream_data import FloatArray, IntArray
from stream_peers import CONTENDERS, OURS, STREAM_LEARN, moa_contenders

from steelyard import StreamClassifier

PRINTED, HERE = "printed", "run here"
GENERATOR_ROWS, GENERATOR_CHUNK, GENERATOR_SHARE = 20_000, 500, 0.01


class MissingDataError(Exception):
    """Error: data or a package is missing on this computer. Its text is the reason in the table."""


@dataclass(frozen=True)
class Options:
    """Options of a run: data folder, number of rows, interpreter with MOA.

    Attributes
    ----------
    data : Path, optional
        Folder with the files that may not be distributed.
    quick : bool
        Whether the rows are few and generated.
    all_peers : bool
        Whether slow peers are run too.
    moa : str, optional
        Python interpreter with capymoa, which contains MOA.
    """

    data: Path | None = None
    quick: bool = False
    all_peers: bool = False
    moa: str | None = None

    def file(self, name: str) -> Path:
        """Return the path of a file in the data folder."""
        if self.data is None or not (self.data / name).exists():
            raise MissingDataError(f"not run: --data has no {name}")
        return self.data / name


@dataclass(frozen=True)
class Figure:
    """Result of one method in one case, such as the F1 of ALMA on Elec2. ``ours`` marks our own learner."""

    case: str
    method: str
    value: float
    origin: str = HERE
    ours: bool = False


@dataclass(frozen=True)
class Referee:
    """A published result that can be computed again."""

    title: str
    protocol: str
    source: str
    licence: str
    run: Callable[[Options], Iterator[Figure]]


# -- river's tables ---------------------------------------------------------------------------------------

Labelled = tuple[pd.DataFrame, IntArray]


def _elec2(options: Options) -> Labelled:
    frame = pd.read_csv(options.file("elec2.csv.gz"))
    return frame.drop(columns="target"), (frame["target"] == "UP").to_numpy(np.int64)


def _smtp(options: Options) -> Labelled:
    frame = pd.read_csv(options.file("kdd99_smtp.csv.gz"))
    return frame.drop(columns="target"), frame["target"].to_numpy(np.int64)


def _bundled(name: str) -> Callable[[Options], Labelled]:
    def rows(options: Options) -> Labelled:
        try:
            from river import datasets
        except ImportError as error:
            raise MissingDataError("not run: river is not installed") from error
        X, y = zip(*getattr(datasets, name)().take(200 if options.quick else 10**6), strict=True)
        return pd.DataFrame(X).astype(float), np.array(y, dtype=np.int64)

    return rows


def _river_models() -> dict[str, Callable[[], Any]]:
    from river import dummy, ensemble, forest, linear_model, neighbors, preprocessing, tree

    return {
        "ALMA": lambda: preprocessing.StandardScaler() | linear_model.ALMAClassifier(),
        "last class": dummy.NoChangeClassifier,
        "Mondrian forest": lambda: forest.AMFClassifier(seed=42),
        "SRP": lambda: ensemble.SRPClassifier(seed=42),
        "kNN": lambda: preprocessing.StandardScaler() | neighbors.KNNClassifier(),
        "ARF": lambda: forest.ARFClassifier(seed=42),
        "leveraging bagging": lambda: ensemble.LeveragingBaggingClassifier(
            tree.HoeffdingTreeClassifier(), seed=42
        ),
    }


@dataclass(frozen=True)
class RiverTable:
    """Dataset of the benchmark of river, with published F1 values."""

    rows: Callable[[Options], Labelled]
    printed: dict[str, float]
    slow: tuple[str, ...] = ()


RIVER_TABLES = {
    "Elec2": RiverTable(
        _elec2,
        {"ALMA": 0.890, "leveraging bagging": 0.872, "ARF": 0.852, "last class": 0.827},
        slow=("leveraging bagging", "ARF"),
    ),
    "Phishing": RiverTable(_bundled("Phishing"), {"SRP": 0.902}),
    "SMTP": RiverTable(_smtp, {"Mondrian forest": 0.735, "kNN": 0.667}, slow=("Mondrian forest", "kNN")),
    "Bananas": RiverTable(_bundled("Bananas"), {"Mondrian forest": 0.874}),
}


def predictions_row_by_row(model: StreamClassifier, X: FloatArray, y: IntArray) -> IntArray:
    """Return the class predicted for every row before it is learned. The prediction of the first row is 0."""
    predicted = np.zeros(len(y), dtype=np.int64)
    for k in range(len(y)):
        row = X[k : k + 1]
        if k:
            predicted[k] = model.predict(row)[0]
        model.partial_fit(row, y[k : k + 1])
    return predicted


def _river_f1(model: Any, frame: pd.DataFrame, y: IntArray) -> float:
    from river import evaluate, metrics

    stream = zip(frame.to_dict("records"), (y == 1).tolist(), strict=True)
    return float(evaluate.progressive_val_score(stream, model, metrics.F1()).get())


def river_tables(options: Options) -> Iterator[Figure]:
    """Yield F1 on every dataset: ours, that of models of river run here, and the published values."""
    for name, table in RIVER_TABLES.items():
        case = f"river: {name}, F1"
        try:
            frame, y = table.rows(options)
        except MissingDataError as reason:
            yield Figure(case, str(reason), float("nan"))
            continue
        X = np.ascontiguousarray(frame.to_numpy(np.float64))
        for threshold in ("f1", "gmean"):
            predicted = predictions_row_by_row(StreamClassifier(threshold=threshold), X, y)
            value = f1_score(y, predicted, zero_division=0.0)
            yield Figure(case, f'{OURS}(threshold="{threshold}")', value, ours=threshold == "f1")
        models = _river_models()
        for method, printed in table.printed.items():
            yield Figure(case, f"{method}, printed", printed, PRINTED)
            if options.all_peers or options.quick or method not in table.slow:
                yield Figure(case, method, _river_f1(models[method](), frame, y))


# -- the Fraud Detection Handbook -------------------------------------------------------------------------

HANDBOOK_PRINTED = {
    "AUC": {"balanced bagging": 0.879, "XGBoost": 0.869},
    "AP": {"balanced bagging": 0.680, "XGBoost": 0.687},
    "card precision@100": {"balanced bagging": 0.305, "XGBoost": 0.303},
}


def handbook(options: Options) -> Iterator[Figure]:
    """Yield AUC, AP and card precision@100 by the protocol of the Handbook."""
    folder = options.file("fraud_handbook.parquet").parent
    import large_streams

    keys = {"AUC": "auc", "AP": "ap", "card precision@100": "card_precision@100"}
    peers = [name for name in large_streams.CONTENDERS if name != OURS] if options.all_peers else []
    for method in (OURS, *peers):
        found = large_streams.handbook(folder, method)
        for measure, key in keys.items():
            yield Figure(f"Handbook: {measure}", method, found[key], ours=method == OURS)
    for measure, printed in HANDBOOK_PRINTED.items():
        for method, value in printed.items():
            yield Figure(f"Handbook: {measure}", f"{method}, printed", value, PRINTED)


# -- FLamby's heart disease -------------------------------------------------------------------------------


def heart(options: Options) -> Iterator[Figure]:
    """Yield the accuracy on the rows of four hospitals."""
    folder = options.file("fed_heart_va.csv.gz").parent
    import fed_heart

    case, split = "FLamby heart: accuracy", fed_heart.hospitals(folder)
    test = pd.concat([part for _, part in split.values()])
    hub, _ = fed_heart.pooled(split, fed_heart.ReleasePolicy.open())
    yield Figure(case, "ProximalSVC, one message each", fed_heart.accuracy(hub, test), ours=True)
    for method, (value, _) in fed_heart.PUBLISHED.items():
        yield Figure(case, f"{method}, printed", value, PRINTED)


# -- the survey's generators with the ensembles of stream-learn -------------------------------------------


def _generators() -> dict[str, Callable[[], Any]]:
    from river.datasets import synth

    return {
        "Agrawal": lambda: synth.Agrawal(classification_function=0, seed=1),
        "hyperplane": lambda: synth.Hyperplane(seed=1, n_features=10),
        "mixed": lambda: synth.Mixed(seed=1),
        "random RBF": lambda: synth.RandomRBF(seed_model=1, seed_sample=1, n_features=10),
        "random tree": lambda: synth.RandomTree(seed_tree=1, seed_sample=1),
        "SEA": lambda: synth.SEA(seed=1),
        "sine": lambda: synth.Sine(seed=1),
    }


def _imbalanced(generator: Any, n_rows: int) -> tuple[FloatArray, IntArray]:
    """Return rows of a generator. Every row is of class 1 with probability 1/100."""
    wanted = np.random.default_rng(0).random(n_rows) < GENERATOR_SHARE
    waiting: dict[int, list[list[float]]] = {0: [], 1: []}
    stream, rows = iter(generator), []
    for label in wanted.astype(int):
        while not waiting[label]:
            x, y = next(stream)
            waiting[int(y)].append([float(value) for value in x.values()])
        rows.append(waiting[label].pop(0))
        del waiting[1 - label][100:]
    return np.array(rows), wanted.astype(np.int64)


def _generated_files(folder: Path, n_rows: int, client: MoaClient | None) -> Iterator[tuple[str, Path]]:
    """Yield the name of every generator and a file with its rows, generated by MOA if there is a client."""
    if client is not None:
        import survey as moa_survey

        for stream, (experiment, _) in moa_survey.STREAMS.items():
            if experiment == "ratio 100":
                yield stream, moa_survey.rows_of(stream, n_rows, folder, client)
        return
    for name, make in _generators().items():
        X, y = _imbalanced(make(), n_rows)
        np.savez(folder / f"{name}.npz", X=X, y=y)
        yield name, folder / f"{name}.npz"


def survey(options: Options) -> Iterator[Figure]:
    """Yield mean AUC and G-mean over the generators: ours, and those of ensembles of stream-learn and MOA."""
    try:
        _generators()
        contenders = [one for one in CONTENDERS if one.name == OURS] + STREAM_LEARN
        for one in STREAM_LEARN:
            one.make()
    except ImportError as error:
        raise MissingDataError(f"not run: the package {error.name} is not installed") from error
    n_rows = 2_000 if options.quick else GENERATOR_ROWS
    with tempfile.TemporaryDirectory() as folder, MoaClient(options.moa or "") as moa:
        cells, found = Cells(Path(folder)), dict[str, list[list[float]]]()
        client = moa if options.moa else None
        contenders += moa_contenders(moa) if options.moa else []
        files = _generated_files(Path(folder), n_rows, client)
        for name, file in islice(files, 1 if options.quick else None):
            for one in contenders:
                cell = measured(cells, name, one, Setting(n_rows, GENERATOR_CHUNK), file)
                if "windows" in cell:
                    found.setdefault(one.name, []).append(cell["windows"]["500"])
                else:
                    print(f"{one.name} failed on {name}: {cell['failed']}", file=sys.stderr)
    complete = {method: values for method, values in found.items() if len(values) == len(found[OURS])}
    for method, values in complete.items():  # a peer that failed on a generator has no mean over all of them
        auc, own, adaptive = np.mean(values, axis=0)
        ours = method == OURS
        yield Figure("survey's generators: AUC", method, auc, ours=ours)
        yield Figure("survey's generators: G-mean, own threshold", method, own, ours=ours)
        yield Figure("survey's generators: G-mean, adaptive threshold", method, adaptive, ours=ours)


# -- the papers -------------------------------------------------------------------------------------------


def papers(options: Options) -> Iterator[Figure]:
    """Run all experiments of the papers, which write their own tables. Yield a line with their folder."""
    if options.quick:
        return
    if options.data is None:
        raise MissingDataError("not run: --data is missing")
    command = [sys.executable, "-m", "papers", "run", "all", "--quick", "--data-dir", str(options.data)]
    subprocess.run([*command, "--output", "build/papers"], check=True)
    yield Figure("five papers", "published and computed numbers side by side in build/papers", float("nan"))


REFEREES = {
    "river": Referee(
        "river's binary classification benchmark",
        "test-then-train row by row, F1 of the positive class over all rows",
        "online-ml/river, benchmarks; figures of its last published tables",
        "BSD-3; Elec2 public, SMTP and Phishing CC BY 4.0",
        river_tables,
    ),
    "heart": Referee(
        "FLamby, Fed-Heart-Disease",
        "four hospitals, two thirds of the rows for training, accuracy on all test rows",
        "owkin/FLamby, result files of five seeds",
        "FLamby MIT; heart disease data of UCI, CC BY 4.0",
        heart,
    ),
    "handbook": Referee(
        "Fraud Detection Handbook",
        "four test weeks, labels seven days late, defrauded customers left out",
        "Le Borgne, Siblini, Lebichot, Bontempi, chapters 4 and 5",
        "code GPL-3; the simulated data has no licence file, so it is not distributed here",
        handbook,
    ),
    "survey": Referee(
        "generators of the survey on imbalanced streams, ensembles of stream-learn and MOA",
        f"{GENERATOR_ROWS:,} rows, 1 % positives, chunks of {GENERATOR_CHUNK}, means over windows of 500",
        "Aguiar, Krawczyk, Cano (2023); ensembles of stream-learn 0.9.2; generators of river, or of MOA",
        "stream-learn and MOA GPL-3, river and CapyMOA BSD-3; installed, not distributed",
        survey,
    ),
    "papers": Referee(
        "the five papers",
        "every table and figure of the papers",
        "docs/papers.md",
        "see docs/datasets.md",
        papers,
    ),
}


# -- the table --------------------------------------------------------------------------------------------


def rivals_of(figures: list[Figure]) -> list[Figure]:
    """Return the published results and those of peers run here, without other settings of our learner."""
    return [one for one in figures if not one.ours and not one.method.startswith(OURS)]


def place_of(figures: list[Figure]) -> int | None:
    """Return our rank among published results and peers, or None if there is no result of ours."""
    own = next((one.value for one in figures if one.ours), None)
    return None if own is None else 1 + sum(one.value > own for one in rivals_of(figures))


def case_line(case: str, figures: list[Figure]) -> str:
    """Return a line of the table: our result, the best published result, the best peer, and our rank."""
    place, rivals = place_of(figures), rivals_of(figures)
    if place is None:
        return f"| {case} | | | | {figures[0].method} |"
    cells = [_best([one for one in rivals if one.origin == origin]) for origin in (PRINTED, HERE)]
    own = _short(next(one.value for one in figures if one.ours))
    own = f"**{own}**" if place == 1 else own
    return f"| {case} | {own} | {cells[0]} | {cells[1]} | {place} of {len(rivals) + 1} |"


def _best(figures: list[Figure]) -> str:
    if not figures:
        return "none"
    best = max(figures, key=lambda one: one.value)
    return f"{best.method.removesuffix(', printed')} {_short(best.value)}"


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def first_line(cases: dict[str, list[Figure]]) -> str:
    """Return the line above the table: the number and the names of the cases in which we are not first."""
    places = {case: place_of(figures) for case, figures in cases.items()}
    compared = [case for case, place in places.items() if place is not None]
    behind = [case for case in compared if places[case] != 1]
    if not behind:
        return f"First in all {len(compared)} cases."
    return f"Not first in {len(behind)} of {len(compared)} cases: {'; '.join(behind)}."


def table(figures: list[Figure]) -> str:
    """Return the table of all cases."""
    cases: dict[str, list[Figure]] = {}
    for one in figures:
        cases.setdefault(one.case, []).append(one)
    head = ["| case | ours | best printed | best peer run here | place |", "|---|---|---|---|---|"]
    return "\n".join([first_line(cases), "", *head, *(case_line(*one) for one in cases.items())])


# -- generated data ---------------------------------------------------------------------------------------


def write_stand_ins(folder: Path, n_rows: int = 200) -> None:
    """Write files with generated rows under the names that the referees read."""
    rng = np.random.default_rng(0)
    y = (rng.random(n_rows) < 0.3).astype(int)
    X = rng.normal(size=(n_rows, 3)) + y[:, None]
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.assign(target=np.where(y, "UP", "DOWN")).to_csv(folder / "elec2.csv.gz", index=False)
    frame.assign(target=y).to_csv(folder / "kdd99_smtp.csv.gz", index=False)
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        with gzip.open(folder / f"fed_heart_{name}.csv.gz", "wt") as file:
            for _ in range(60):
                ill = int(rng.integers(2))
                values = [*rng.integers(0, 3, size=13), ill]
                values[0] = 50 + 10 * ill + int(rng.integers(10))
                file.write(",".join(map(str, values)) + "\n")
    days, per_day = 136, 12
    fraud = (rng.random(days * per_day) < 0.2).astype(int)
    payments = pd.DataFrame({"time": np.repeat(np.arange(days) * 86400, per_day), "target": fraud})
    payments["amount"] = rng.normal(size=len(fraud)) + 2 * fraud
    payments["customer"], payments["terminal"], payments["scenario"] = np.arange(len(fraud)), 0, fraud
    payments.to_parquet(folder / "fraud_handbook.parquet")


# -- command ----------------------------------------------------------------------------------------------


def run(names: list[str], options: Options) -> list[Figure]:
    """Return the results of the named referees. A referee without its data has one entry with the reason."""
    figures: list[Figure] = []
    for name in names:
        try:
            for one in REFEREES[name].run(options):
                print(f"{one.case}: {one.method} {_short(one.value)}", file=sys.stderr, flush=True)
                figures.append(one)
        except MissingDataError as reason:
            figures.append(Figure(REFEREES[name].title, str(reason), float("nan")))
    return figures


def main() -> None:
    """Run the referees and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", "--data-dir", type=Path, help="folder with data that is not distributed")
    parser.add_argument(
        "--only", action="append", choices=list(REFEREES), help="run only this referee; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="run on a few generated rows")
    parser.add_argument("--all-peers", action="store_true", help="also run the slow peers")
    parser.add_argument("--moa", default=os.environ.get("MOA_PYTHON"), help="Python interpreter with capymoa")
    parser.add_argument("--out", type=Path, default=Path("build/referees.md"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = options.only or list(REFEREES)
    with tempfile.TemporaryDirectory() as folder:
        if options.quick:
            write_stand_ins(Path(folder))
        data = Path(folder) if options.quick else options.data
        figures = run(names, Options(data, options.quick, options.all_peers, options.moa))
    lines = [table(figures), "", f"Measured with steelyard {version('steelyard')}."]
    lines += ["", "Generated rows: the numbers have no meaning."] if options.quick else []
    for name in names:
        one = REFEREES[name]
        lines += ["", f"**{one.title}** (`--only {name}`). Protocol: {one.protocol}. Source: {one.source}."]
        lines += [f"Licence: {one.licence}."]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
