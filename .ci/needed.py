"""Print the dependencies in pyproject.toml, so that they can be installed while the package is compiled.

python .ci/needed.py [EXTRA ...]
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def of_extra(extra: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """Yield the dependencies of an extra, which may contain other extras of this package."""
    for line in extras[extra]:
        inner = re.fullmatch(r"steelyard\[([\w,-]+)\]", line)
        if inner is None:
            yield line
        else:
            for name in inner[1].split(","):
                yield from of_extra(name, extras)


def needed(project: Path, extras: list[str]) -> list[str]:
    """Return the dependencies of the package and of some extras, each once."""
    table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = list(table["dependencies"])
    for extra in extras:
        found += of_extra(extra, table["optional-dependencies"])
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    print(*needed(ROOT, sys.argv[1:]), sep="\n")
