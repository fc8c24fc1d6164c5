"""Repeat the experiments of a survey on imbalanced streams that use generators, with the generators of MOA.

    python benchmarks/accuracy/survey.py --moa PYTHON [--out DIR] [--limit 50000] [--chunk 1]
        [--experiment NAME] [--generator NAME] [--stream NAME] [--only NAME] [--skip NAME] [--again NAME]
        [--tables]

G. Aguiar, B. Krawczyk, A. Cano: A survey on learning from imbalanced data streams: taxonomy, challenges,
empirical study, and reproducible experimental framework, Machine Learning, 2023. This script contains its
experiments with two classes that need only generators. There are eight generators. Each generator has streams
with six fixed class ratios (1 to 100), with a ratio that increases, increases and decreases, or is reversed,
and, at a ratio of 100, with five concepts that change suddenly or gradually. These are 88 streams of 50,000
rows (200,000 in the survey), with the same number of stages.

As in the survey, windows have 500 rows, and the measures are G-mean and AUC. Here they are computed in
windows that have both classes. The peers are the learners of the survey that are part of MOA, with the
parameters of the survey except for ten trees per forest. Each peer is evaluated with its own threshold and
with that of :class:`steelyard.AdaptiveThresholdClassifier`. Peers get categorical columns, and
StreamClassifier gets indicator columns. ROSE, KUE, OOB and UOB are those of stream-learn. They learn in
chunks, so use ``--chunk 500`` to compare them.

``--chunk 1`` predicts and learns row by row, as the survey does. With larger chunks, labels arrive later for
all learners. Every result is a line of JSON in ``--out``. Existing results are not computed again, and
``--tables`` prints them. ``--moa`` is a Python interpreter with capymoa (see ``moa_worker.py``).
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from moa_client import MoaClient
from stream_cells import WINDOWS, Cells, Setting, measured
from stream_data import FloatArray, IntArray
from stream_peers import CONTENDERS, OURS, STREAM_LEARN, moa_contenders
from stream_tables import by_stream, complete, missing, table, verdicts

from streams import gathered

WINDOW = 500
RATIOS = (1, 5, 10, 20, 50, 100)

_G = "moa.streams.generators"


def _functions(name: str, *functions: int) -> Callable[[int, int], str]:
    return lambda seed, concept: f"{_G}.{name} -i {seed} -f {functions[concept % len(functions)]}"


GENERATORS: dict[str, Callable[[int, int], str]] = {
    "Agrawal": _functions("AgrawalGenerator", 1, 2, 3, 4, 5),
    "asset negotiation": _functions("AssetNegotiationGenerator", 1, 2, 3, 4, 5),
    "hyperplane": lambda seed, concept: (
        f"{_G}.HyperplaneGenerator -i {seed + 100 * concept} -a 10 -c 2 -k 2 -t 0.0"
    ),
    "mixed": _functions("MixedGenerator", 1, 2),
    "random RBF": lambda seed, concept: f"{_G}.RandomRBFGenerator -i {seed} -r {1 + concept} -a 10 -c 2",
    "random tree": lambda seed, concept: (
        f"{_G}.RandomTreeGenerator -i {seed} -r {1 + concept} -o 5 -u 5 -c 2"
    ),
    "SEA": _functions("SEAGenerator", 1, 2, 3, 4),
    "sine": _functions("SineGenerator", 1, 2, 3, 4),
}
"""Command line of each generator of MOA, as a function of the seed of its rows and its concept number."""

_SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
_FLIPPING = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)


@dataclass(frozen=True)
class Experiment:
    """Experiment of the survey. A stream has stages of equal length.

    Attributes
    ----------
    shares : tuple of float
        Share of class 1 in each stage.
    drifts : bool
        Whether every stage has a concept of its own.
    decay : float
        Fraction of a stage over which its concept changes gradually into the next.
    """

    shares: tuple[float, ...]
    drifts: bool = False
    decay: float = 0.0

    def stages(self, generator: str) -> list[tuple[str, float]]:
        """Return the generators of MOA with their shares of class 1."""
        make = GENERATORS[generator]
        return [(make(k + 1, k if self.drifts else 0), share) for k, share in enumerate(self.shares)]

    def width(self, n_rows: int) -> int:
        """Number of rows over which a concept changes gradually into the next."""
        return max(1, round(self.decay * n_rows / len(self.shares)))


EXPERIMENTS: dict[str, Experiment] = {
    **{f"ratio {ratio}": Experiment((1.0 / ratio if ratio > 1 else 0.5,)) for ratio in RATIOS},
    "increasing": Experiment(_SHARES),
    "increasing, then decreasing": Experiment((0.5, 0.2, 0.1, 0.05, 0.01, 0.05, 0.1, 0.2, 0.5)),
    "flipping": Experiment(_FLIPPING),
    "sudden drift, ratio 100": Experiment((0.01,) * 5, drifts=True),
    "gradual drift, ratio 100": Experiment((0.01,) * 5, drifts=True, decay=0.5),
}

STREAMS = {f"{what}: {name}": (what, name) for name in GENERATORS for what in EXPERIMENTS}


def indicators(raw: FloatArray, kinds: IntArray) -> FloatArray:
    """Return rows with one indicator column per category. Numeric columns do not change."""
    parts = [
        (raw[:, [k]] == np.arange(n)).astype(np.float64) if n > 2 else raw[:, [k]]
        for k, n in enumerate(kinds.tolist())
    ]
    return np.ascontiguousarray(np.hstack(parts))


def rows_of(stream: str, limit: int, out: Path, client: MoaClient) -> Path:
    """Return the file with the rows of a stream. Write the file if it does not exist."""
    what, name = STREAMS[stream]
    file = out / f"{stream.replace(': ', '-').replace(', ', '-').replace(' ', '_')}-{limit}.npz"
    if not file.exists():
        experiment, made = EXPERIMENTS[what], file.with_suffix(".raw.npz")
        client.ask(
            do="generate",
            stages=experiment.stages(name),
            n_rows=limit,
            width=experiment.width(limit),
            seed=list(STREAMS).index(stream),
            rows=str(made),
        )
        with np.load(made) as kept:
            raw, y, kinds = kept["raw"], kept["y"], kept["kinds"]
        np.savez(file, X=indicators(raw, kinds), raw=raw, y=y, kinds=kinds)
        made.unlink()
    return file


def report(cells: Cells, streams: list[str], names: list[str], setting: Setting) -> str:
    """Return a table of all streams, and one table for each kind of experiment."""
    contenders = [
        one for one in [*CONTENDERS, *STREAM_LEARN, *moa_contenders(MoaClient(""))] if one.name in names
    ]
    found = gathered(cells, streams, contenders, setting)
    there = complete(found, streams)
    if OURS not in found or len(there) < 2:
        return "too few streams have results of all contenders"
    peers = [name for name in found if name != OURS]
    parts = []
    for window in WINDOWS:
        parts += [f"All {len(there)} streams, windows of {window}:", table(found, there, window)]
        parts += [verdicts(found, there, peers, window)] if peers else []
    for what in EXPERIMENTS:
        some = [stream for stream in there if STREAMS[stream][0] == what]
        parts += [f"{what} ({len(some)} streams):", table(found, some, WINDOW)] if len(some) > 1 else []
    parts.append(by_stream(found, there, peers, WINDOW))
    left_out = missing(found, streams)
    parts += ["Not in the tables:\n\n" + "\n".join(f"- {line}" for line in left_out)] if left_out else []
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--moa", default=os.environ.get("MOA_PYTHON"), help="Python interpreter with capymoa")
    parser.add_argument("--out", type=Path, default=Path("build/survey"))
    parser.add_argument("--limit", type=int, default=50_000, help="number of rows of a stream")
    parser.add_argument("--chunk", type=int, default=1)
    parser.add_argument("--late", type=int, default=0, help="number of rows by which labels arrive later")
    parser.add_argument("--experiment", action="append", choices=list(EXPERIMENTS))
    parser.add_argument("--generator", action="append", choices=list(GENERATORS))
    parser.add_argument("--stream", action="append", choices=list(STREAMS), metavar="EXPERIMENT: GENERATOR")
    parser.add_argument("--only", action="append", help="run only this contender; may be repeated")
    parser.add_argument("--skip", action="append", default=[], help="skip this contender; may be repeated")
    parser.add_argument(
        "--again", action="append", default=[], help="run this contender again; may be repeated"
    )
    parser.add_argument("--tables", action="store_true", help="run nothing, print the existing results")
    options = parser.parse_args()
    if not (options.moa or options.tables):
        parser.error("--moa PYTHON is required: a Python interpreter with capymoa")
    warnings.simplefilter("ignore")
    setting, cells = Setting(options.limit, options.chunk, options.late), Cells(options.out)
    streams = options.stream or [
        stream
        for one in options.experiment or EXPERIMENTS  # experiment by experiment
        for stream, (what, name) in STREAMS.items()
        if what == one and name in (options.generator or GENERATORS)
    ]
    with MoaClient(options.moa or "") as client:
        contenders = [one for one in CONTENDERS if one.name == OURS] + STREAM_LEARN + moa_contenders(client)
        wanted = options.only or [one.name for one in contenders]
        contenders = [one for one in contenders if one.name in wanted and one.name not in options.skip]
        for stream in [] if options.tables else streams:
            rows = rows_of(stream, options.limit, options.out, client)
            for one in contenders:
                cell = measured(cells, stream, one, setting, rows, again=one.name in options.again)
                print(f"{stream}, {one.name}: {cell.get('windows', cell.get('failed'))}", flush=True)
    text = report(cells, streams, [one.name for one in contenders], setting)
    (options.out / f"table-{options.limit}-{options.chunk}-{options.late}.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
