"""Finds the parameters that a quick run takes: ``python -m steelyard.papers.koil.search --data-dir DIR``.

The search is that of a full run; what it finds is written to ``parameters.json`` beside this file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from steelyard.papers.context import Context
from steelyard.papers.koil.contenders import COMPARED, CONTENDERS, ONE_KERNEL
from steelyard.papers.koil.protocol import benchmarks, parameters
from steelyard.papers.koil.tables import REAL, SYNTHETIC

STORED = Path(__file__).with_name("parameters.json")


def main() -> None:
    """Search for all sets and learners of the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    context = Context(options.data_dir, jobs=options.jobs)
    stored: dict[str, dict[str, dict[str, float]]] = {}
    for names, contenders in ((SYNTHETIC, ONE_KERNEL + COMPARED), (REAL, tuple(CONTENDERS.values()))):
        for (name, contender), params in parameters(context, benchmarks(context, names), contenders).items():
            stored.setdefault(name, {})[contender] = dict(params)
    STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
