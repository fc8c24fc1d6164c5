"""Search the parameters of quick runs: ``python -m papers.koil.search --data-dir DIR``.

The search is that of a full run. With ``--results`` the parameters are read from the results of a full run
instead. They are written to ``parameters.json`` in the folder of this file, one line per learner.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from papers.cells import Cells
from papers.context import Context
from papers.koil.contenders import COMPARED, CONTENDERS, ONE_KERNEL
from papers.koil.protocol import benchmarks, parameters
from papers.koil.tables import REAL, SYNTHETIC

STORED = Path(__file__).with_name("parameters.json")


def main() -> None:
    """Search parameters for all datasets and learners of the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--results", type=Path, help="folder of `python -m papers run`")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    cells = Cells(options.results / "cells", resume=True) if options.results else None
    context = Context(options.data_dir, jobs=options.jobs, cells=cells)
    blocks = []
    for names, contenders in ((SYNTHETIC, ONE_KERNEL + COMPARED), (REAL, tuple(CONTENDERS.values()))):
        found = parameters(context, benchmarks(context, names), contenders)
        for name in names:
            lines = [f'  "{c.name}": {json.dumps(found[name, c.name])}' for c in contenders]
            blocks.append(f' "{name}": {{\n' + ",\n".join(lines) + "\n }")
    STORED.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
