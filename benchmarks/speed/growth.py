"""Growth of time per row and model size with the numbers of rows, columns and classes.

    python benchmarks/speed/growth.py measure --out growth.json [--only ProximalSVC ...] [--seconds 2]
    python benchmarks/speed/growth.py page growth.json ... --images docs/images

``measure`` predicts and then learns chunks of 500 rows on one thread. Times are processor times, so other
load has little effect. A point that takes longer than ``--seconds`` of processor time (three times as long
for the run over rows) stops early and is marked. Rows are measured in one run. The time of a point is the
mean over the last half of its rows, also if it stopped early. The size is the length of the pickled model.
``page`` prints the tables and draws the curves.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import thread_time
from typing import Any

os.environ["STEELYARD_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

CHUNK_ROWS = 500
ROWS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
COLUMNS = (10, 100, 1_000, 10_000)
CLASSES = (2, 10, 100, 1_000)
POINT_ROWS = 3_000  # number of rows for each point of the curves over columns and classes
FIXED_COLUMNS = 20
REFIT_ROWS, REFIT_EVERY = 5_000, 1_000


class Refit:
    """LightGBM refitted on the last 5,000 rows after every 1,000 rows."""

    def __init__(self) -> None:
        self.X: list[Any] = []
        self.y: list[Any] = []
        self.n_waiting, self.model = 0, None

    def predict(self, X: Any) -> Any:
        return None if self.model is None else self.model.predict(X)

    def partial_fit(self, X: Any, y: Any) -> None:
        from lightgbm import LGBMClassifier

        n_kept = REFIT_ROWS // CHUNK_ROWS
        self.X, self.y = [*self.X, X][-n_kept:], [*self.y, y][-n_kept:]
        self.n_waiting += len(y)
        if self.n_waiting >= REFIT_EVERY and len(np.unique(np.concatenate(self.y))) > 1:
            self.n_waiting = 0
            self.model = LGBMClassifier(n_jobs=1, verbose=-1)
            self.model.fit(np.concatenate(self.X), np.concatenate(self.y))


class River:
    """Adapter for a learner of river, which learns row by row."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def partial_fit(self, X: Any, y: Any) -> None:
        names = range(X.shape[1])
        for x, label in zip(X.tolist(), y.tolist(), strict=True):
            row = dict(zip(names, x, strict=True))
            self.model.predict_one(row)
            self.model.learn_one(row, label)

    def predict(self, X: Any) -> None:
        """Do nothing, because partial_fit predicts every row before it learns the row."""


class Sgd:
    """Adapter for SGDClassifier, which must know all classes in the first call."""

    def __init__(self, n_classes: int) -> None:
        from sklearn.linear_model import SGDClassifier

        self.model, self.classes = SGDClassifier(random_state=0), np.arange(n_classes)

    def partial_fit(self, X: Any, y: Any) -> None:
        self.model.partial_fit(X, y, classes=self.classes)

    def predict(self, X: Any) -> Any:
        return self.model.predict(X)


def _ours(name: str, **parameters: Any) -> Callable[[int], Any]:
    def make(n_classes: int) -> Any:  # noqa: ARG001
        import steelyard

        return getattr(steelyard, name)(**parameters)

    return make


def _river(kind: str) -> Callable[[int], Any]:
    def make(n_classes: int) -> Any:
        from river import forest, linear_model, multiclass, preprocessing

        if kind == "ARF":
            return River(forest.ARFClassifier(seed=0))
        linear = linear_model.LogisticRegression()
        model = linear if n_classes == 2 else multiclass.OneVsRestClassifier(linear)
        return River(preprocessing.StandardScaler() | model)

    return make


LEARNERS: dict[str, Callable[[int], Any]] = {
    "ProximalSVC": _ours("ProximalSVC"),
    "StreamClassifier": _ours("StreamClassifier"),
    "IncrementalSVC": _ours("IncrementalSVC"),
    "KOIL": _ours("KOIL", random_state=0),
    "EnclosingClassifier": _ours("EnclosingClassifier"),
    "SGDClassifier": Sgd,
    "river LogisticRegression": _river("linear"),
    "river ARF": _river("ARF"),
    "LightGBM refits": lambda n_classes: Refit(),  # noqa: ARG005
}


def chunk(begin: int, n_columns: int, n_classes: int) -> tuple[Any, Any]:
    """Return 500 rows of classes with different means.

    With two classes, 5 % of the rows belong to the second class. More classes are equally frequent.
    """
    rng = np.random.default_rng([begin, n_columns, n_classes])
    if n_classes == 2:
        y = (rng.random(CHUNK_ROWS) < 0.05).astype(int)
    else:
        y = rng.integers(0, n_classes, size=CHUNK_ROWS)
    n_informative = min(n_columns, 10)
    means = np.random.default_rng(n_classes).normal(size=(n_classes, n_informative))
    X = rng.normal(size=(CHUNK_ROWS, n_columns))
    X[:, :n_informative] += means[y]
    return X, y


def run(
    make: Callable[[int], Any], marks: tuple[int, ...], n_columns: int, n_classes: int, seconds: float
) -> list[Any]:
    """Learn chunks; return rows, microseconds per row, bytes and whether the run finished, at every mark."""
    model, spent, points = make(n_classes), [0.0], []  # seconds after each chunk
    marks_left, n_rows = list(marks), 0
    while marks_left:
        X, y = chunk(n_rows, n_columns, n_classes)
        begin = thread_time()
        if n_rows:
            model.predict(X)
        model.partial_fit(X, y)
        spent.append(spent[-1] + thread_time() - begin)
        n_rows += CHUNK_ROWS
        is_over = spent[-1] > seconds and n_rows < marks_left[0]
        if n_rows >= marks_left[0] or is_over:
            half = (len(spent) - 1) // 2
            cost = 1e6 * (spent[-1] - spent[half]) / (n_rows - half * CHUNK_ROWS)
            points.append((n_rows, cost, len(pickle.dumps(model)), not is_over))
            if is_over:
                break
            marks_left.pop(0)
    return points


def measure(options: argparse.Namespace) -> None:
    found: dict[str, Any] = {}
    for name in options.only or LEARNERS:
        make, series = LEARNERS[name], {}
        series["rows"] = run(make, ROWS, FIXED_COLUMNS, 2, 3 * options.seconds)
        for axis, values in (("columns", COLUMNS), ("classes", CLASSES)):
            series[axis] = []
            for value in values:
                shape = (value, 2) if axis == "columns" else (FIXED_COLUMNS, value)
                try:
                    point = run(make, (POINT_ROWS,), *shape, options.seconds)[-1]
                except MemoryError as error:
                    point = (0, None, 0, str(error).split(";", maxsplit=1)[0])
                series[axis].append([value, *point])
                if point[3] is not True:
                    break  # larger values take longer still
        found[name] = series
        print(name, series, file=sys.stderr, flush=True)
        Path(options.out).write_text(json.dumps(found, indent=1), encoding="utf-8")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000 or unit == "GB":
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    raise AssertionError


def print_table(found: dict[str, Any], axis: str, values: tuple[int, ...]) -> None:
    """Print a Markdown table of microseconds per row and bytes at every value of the axis."""
    print(f"\n| learner | {' | '.join(f'{value:,}' for value in values)} |\n|---|{'---|' * len(values)}")
    for name, series in found.items():
        cells = []
        for point in series[axis]:
            n_rows, cost, n_bytes, finished = point if axis == "rows" else point[1:]
            if cost is None:
                cells.append("refused: memory")
            elif finished:
                cells.append(f"{_number(cost)} µs, {_size(n_bytes)}")
            else:
                cells.append(f"stopped after {n_rows:,} rows: {_number(cost)} µs, {_size(n_bytes)}")
        cells += ["not run"] * (len(values) - len(cells))
        print(f"| {name} | {' | '.join(cells)} |")


def draw(found: dict[str, Any], folder: Path) -> None:
    """Draw microseconds per row against rows, columns and classes as one SVG file."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "steelyard"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True)
    for axis, name in zip(axes, ("rows", "columns", "classes"), strict=True):
        for number, (learner, series) in enumerate(found.items()):
            points = [(p[0], p[1] if name == "rows" else p[2]) for p in series[name]]
            points = [(x, cost) for x, cost in points if cost is not None]
            style = "-o" if number < 5 else "--s"
            axis.plot(*zip(*points, strict=True), style, label=learner, markersize=3, linewidth=1.2)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(name)
        axis.grid(visible=True, alpha=0.3)
    axes[0].set_ylabel("microseconds per row, predict and learn")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=5, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(folder / "growth.svg", metadata={"Date": None})


def page(options: argparse.Namespace) -> None:
    found: dict[str, Any] = {}
    for path in options.files:
        found |= json.loads(Path(path).read_text(encoding="utf-8"))
    found = {name: found[name] for name in LEARNERS if name in found}
    for axis, values in (("rows", ROWS), ("columns", COLUMNS), ("classes", CLASSES)):
        print_table(found, axis, values)
    if options.images:
        draw(found, Path(options.images))


def main() -> int:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(required=True)
    measured = commands.add_parser("measure")
    measured.add_argument("--out", required=True)
    measured.add_argument("--only", action="append", choices=list(LEARNERS))
    measured.add_argument("--seconds", type=float, default=2.0)
    measured.set_defaults(run=measure)
    printed = commands.add_parser("page")
    printed.add_argument("files", nargs="+")
    printed.add_argument("--images")
    printed.set_defaults(run=page)
    options = parser.parse_args()
    options.run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
