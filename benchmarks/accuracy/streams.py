"""Test-then-train evaluation on imbalanced streams: StreamClassifier, forests, boosting and stream ensembles.

    python benchmarks/accuracy/streams.py --data-dir DIR [--moa PYTHON] [--out DIR] [--limit 10000]
        [--chunk 100] [--late 0] [--half reporting] [--only NAME] [--skip NAME] [--again NAME] [--tables]

Every chunk is scored before it is learned. With ``--late N`` labels arrive N rows later. The measures are AUC
and G-mean in windows of 1,000 and of 500 rows (fewer in short streams) that have both classes, averaged over
the windows of a stream, then over streams. The G-mean is computed with the own threshold of each contender
and with the threshold that :class:`steelyard.AdaptiveThresholdClassifier` chooses from its scores.
StreamClassifier always uses its own threshold. Ranks are computed for each stream, and 1 is best. Differences
are paired: StreamClassifier minus the other.

Experts and settings were chosen on half of the streams. Results are printed separately for both halves, and
those of the other half are reported. Each result is a line of JSON in ``--out`` and is computed again only
with ``--again``. ``--tables`` prints the existing results. The script needs imbalanced-learn, lightgbm and
river (extra ``peers``). The ensembles of MOA need a Python interpreter with capymoa, ``--moa`` (see
``moa_worker.py``).
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
from moa_client import MoaClient
from stream_cells import WINDOWS, Cells, Setting, measured
from stream_data import CHOOSING, STREAMS
from stream_peers import CONTENDERS, OURS, Contender, moa_contenders
from stream_tables import by_stream, complete, missing, table, verdicts

MOA = ["MOA's ARF, 10 trees", "MOA's SRP, 10 trees"]


def rows_of(stream: str, data: Path, limit: int, out: Path) -> Path:
    """Return the file with the rows of a stream. Write the file if it does not exist."""
    file = out / f"{stream}-{limit}.npz"
    if not file.exists():
        X, y = STREAMS[stream](data, limit)
        np.savez(file, X=X, raw=X, y=y, kinds=np.zeros(X.shape[1], dtype=np.int64))
    return file


def gathered(
    cells: Cells, streams: list[str], contenders: list[Contender], setting: Setting
) -> dict[str, dict[str, dict[str, object]]]:
    """Return the stored results by contender and stream, without contenders that have no results."""
    found = {
        one.name: {s: cell for s in streams if (cell := cells.get(s, one.name, setting)) is not None}
        for one in contenders
    }
    return {name: row for name, row in found.items() if row}


def report(
    cells: Cells, halves: dict[str, list[str]], contenders: list[Contender], options: argparse.Namespace
) -> str:
    """Return tables and verdicts of both halves of the streams and both window sizes."""
    setting = Setting(options.limit, options.chunk, options.late)
    parts = []
    for title, half in halves.items():
        found = gathered(cells, half, contenders, setting)
        streams = complete(found, half)
        if OURS not in found or len(streams) < 2:
            continue
        peers = [one.name for one in contenders if not one.ours and one.name in found]
        parts.append(f"{title} ({len(streams)}: {', '.join(streams)})")
        for window in WINDOWS:
            parts += [f"Windows of {window}:", table(found, streams, window)]
            if peers:
                parts += [verdicts(found, streams, peers, window), by_stream(found, streams, peers, window)]
        left_out = missing(found, half)
        parts += ["Not in the tables:\n\n" + "\n".join(f"- {line}" for line in left_out)] if left_out else []
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--moa", default=os.environ.get("MOA_PYTHON"), help="Python interpreter with capymoa")
    parser.add_argument("--out", type=Path, default=Path("build/streams"))
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--late", type=int, default=0, help="number of rows by which labels arrive later")
    parser.add_argument("--limit", type=int, default=10_000, help="maximum number of rows of a stream")
    parser.add_argument(
        "--half", choices=["choosing", "reporting"], help="half of the streams; both halves by default"
    )
    parser.add_argument("--only", action="append", help="run only this contender; may be repeated")
    parser.add_argument("--skip", action="append", default=[], help="skip this contender; may be repeated")
    parser.add_argument(
        "--again", action="append", default=[], help="run this contender again; may be repeated"
    )
    parser.add_argument("--stream", action="append", help="run only this stream; may be repeated")
    parser.add_argument("--tables", action="store_true", help="run nothing, print the existing results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    setting, cells = Setting(options.limit, options.chunk, options.late), Cells(options.out)
    halves = {
        "Streams on which settings were chosen": [s for s in options.stream or STREAMS if s in CHOOSING],
        "Streams for reporting": [s for s in options.stream or STREAMS if s not in CHOOSING],
    }
    if options.half is not None:
        del halves[list(halves)[options.half == "choosing"]]
    with MoaClient(options.moa or "") as client:
        contenders = [*CONTENDERS, *moa_contenders(client, MOA if options.moa or options.tables else [])]
        wanted = options.only or [one.name for one in contenders]
        contenders = [one for one in contenders if one.name in wanted and one.name not in options.skip]
        for stream in [] if options.tables else [s for half in halves.values() for s in half]:
            rows = rows_of(stream, options.data_dir, options.limit, options.out)
            for one in contenders:
                cell = measured(cells, stream, one, setting, rows, again=one.name in options.again)
                print(f"{stream}, {one.name}: {cell.get('windows', cell.get('failed'))}", flush=True)
        text = report(cells, halves, contenders, options)
    name = f"table-{options.limit}-{options.chunk}-{options.late}.md"
    (options.out / name).write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
