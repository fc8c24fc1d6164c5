"""Test, then train: StreamClassifier beside forests, boosting and stream ensembles on imbalanced streams.

    python benchmarks/accuracy/streams.py --data-dir DIR [--out DIR] [--chunk 100] [--late 0] [--limit 10000]

Every chunk is scored before it is learned; with ``--late`` labels come so many rows later. Measured are the
AUC and the G-mean in windows of 1,000 rows (500 or 250 in short streams) that have both classes, averaged
over the windows of a stream, then over streams. The G-mean is given for each contender's own cut, and for
the cut of :class:`steelyard.MovingCut` on its scores, so that nobody loses by a cut alone; StreamClassifier
has its own. Ranks are by stream, 1 is best; differences are paired, StreamClassifier minus the other.

Half of the streams served to choose the experts and their settings; figures are given for both halves apart
and those of the other half are the result. Scores and times are kept in ``--out``; what is there is not
computed again. Needs imbalanced-learn, lightgbm and river.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from stream_data import CHOOSING, STREAMS, FloatArray, IntArray
from stream_peers import CONTENDERS

from steelyard.committee.cuts import choose_cut
from steelyard.committee.evidence import Evidence

OURS = "StreamClassifier"


def run(name: str, X: FloatArray, y: IntArray, chunk: int, late: int) -> tuple[FloatArray, float, float]:
    """Scores given before learning, the contender's own cut, and microseconds of processor time a row."""
    contender = CONTENDERS[name].make()
    scores = np.zeros(len(y))
    began, learned = time.process_time(), 0
    for begin in range(0, len(y), chunk):
        end = min(begin + chunk, len(y))
        scores[begin:end] = contender.scores(X[begin:end])
        if end - late > learned:
            contender.learn(X[learned : end - late], y[learned : end - late])
            learned = end - late
    cost = (time.process_time() - began) / len(y) * 1e6
    return scores, contender.own_cut, cost


def moved(scores: FloatArray, y: IntArray, chunk: int, late: int) -> NDArray[np.bool_]:
    """What MovingCut would have answered with these scores."""
    evidence, answers, learned = Evidence(1), np.zeros(len(y), dtype=bool), 0
    evidence.know([0, 1])
    for begin in range(0, len(y), chunk):
        end = min(begin + chunk, len(y))
        (sides,) = evidence.sides()
        if min(len(sides.positive), len(sides.negative)) >= 5:
            cut = choose_cut(sides.positive[:, 0], sides.negative[:, 0], "gmean", sides.share)
            answers[begin:end] = scores[begin:end] > cut
        if end - late > learned:
            known = slice(learned, end - late)
            keys = np.zeros(end - late - learned, dtype=np.uint64)
            evidence.push(y[known], scores[known, None, None], keys)
            learned = end - late
    return answers


def window_means(y: IntArray, scores: FloatArray, answers: list[NDArray[np.bool_]]) -> list[float]:
    """AUC, then the G-mean of each of the answers, averaged over the windows that have both classes."""
    size = 1000 if len(y) >= 5000 else 500 if len(y) >= 1500 else 250
    rows = []
    for begin in range(0, len(y), size):
        part = slice(begin, begin + size)
        positive = y[part] == 1
        if 0 < positive.sum() < len(positive):
            ranks, n = rankdata(scores[part]), positive.sum()
            auc = (ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(positive) - n))
            hits = [np.sqrt(a[part][positive].mean() * (1.0 - a[part][~positive].mean())) for a in answers]
            rows.append([auc, *hits])
    return np.mean(rows, axis=0).tolist()


def measured(options: argparse.Namespace, name: str, stream: str) -> list[float]:
    """AUC, G-mean by the own and by the moved cut, and cost; computed once."""
    rows_file = options.out / f"{stream}-{options.limit}.npz"
    if not rows_file.exists():
        X, y = STREAMS[stream](options.data_dir, options.limit)
        np.savez(rows_file, X=X, y=y)
    kept = np.load(rows_file)
    X, y = kept["X"], kept["y"]
    file = (
        options.out / f"{stream}-{options.limit}-{options.chunk}-{options.late}-{name.replace(',', '')}.npz"
    )
    if not file.exists():
        scores, own_cut, cost = run(name, X, y, options.chunk, options.late)
        np.savez(file, scores=scores, own_cut=own_cut, cost=cost)
    kept = np.load(file)
    scores = kept["scores"]
    answers = [scores > float(kept["own_cut"])]
    answers.append(answers[0] if name == OURS else moved(scores, y, options.chunk, options.late))
    return [*window_means(y, scores, answers), float(kept["cost"])]


def table(results: dict[str, dict[str, list[float]]], streams: list[str]) -> str:
    """Means, mean ranks and paired differences over some streams."""
    names = list(results)
    values = np.array([[results[name][stream] for stream in streams] for name in names])
    ranks = [rankdata(-values[:, :, k], axis=0).mean(axis=1) for k in (0, 2)]
    ours = values[names.index(OURS)]
    lines = [
        "| | AUC | rank | ours - it | G-mean, own cut | G-mean, moved cut | rank | ours - it | us a row |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for i in np.argsort(-values[:, :, 0].mean(axis=1)):
        auc, own, cut, cost = values[i].mean(axis=0)
        differences = []
        for k in (0, 2):
            d = ours[:, k] - values[i, :, k]
            paired = f"{d.mean():+.3f} ± {d.std(ddof=1) / np.sqrt(len(d)):.3f}"
            differences.append("" if names[i] == OURS else paired)
        lines.append(
            f"| {names[i]} | {auc:.3f} | {ranks[0][i]:.1f} | {differences[0]} | {own:.3f} | {cut:.3f} | "
            f"{ranks[1][i]:.1f} | {differences[1]} | {cost:.0f} |"
        )
    return "\n".join(lines)


def by_stream(results: dict[str, dict[str, list[float]]], streams: list[str]) -> str:
    """AUC and G-mean (moved cut) of every stream: ours, and the best of the others."""
    lines = ["| stream | AUC | best other | | G-mean | best other | |", "|---|---|---|---|---|---|---|"]
    peers = [name for name in results if not CONTENDERS[name].ours] or [OURS]
    for stream in streams:
        cells = []
        for k in (0, 2):
            best = max(peers, key=lambda name: results[name][stream][k])
            cells += [f"{results[OURS][stream][k]:.3f}", f"{results[best][stream][k]:.3f}", best]
        lines.append(f"| {stream} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("build/streams"))
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--late", type=int, default=0, help="rows by which labels come later")
    parser.add_argument("--limit", type=int, default=10_000, help="rows of a stream at most")
    parser.add_argument("--only", action="append", help="a contender; may be given several times")
    parser.add_argument("--stream", action="append", help="a stream; may be given several times")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, list[float]]] = {}
    streams = options.stream or list(STREAMS)
    for name in options.only or CONTENDERS:
        results[name] = {}
        for stream in streams:
            results[name][stream] = measured(options, name, stream)
        print(f"{name}: {np.mean([row[0] for row in results[name].values()]):.3f}", flush=True)
    halves = {
        "Streams that served to choose": [stream for stream in streams if stream in CHOOSING],
        "Streams that did not": [stream for stream in streams if stream not in CHOOSING],
    }
    text = "\n\n".join(
        f"{title} ({', '.join(half)}):\n\n{table(results, half)}\n\n{by_stream(results, half)}"
        for title, half in halves.items()
        if len(half) > 1 and OURS in results
    )
    (options.out / f"table-{options.limit}-{options.chunk}-{options.late}.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
