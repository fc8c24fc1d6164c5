"""Report words and names that the style guide excludes: python .ci/plain_words.py [PATH ...].

The patterns, the files that are excluded and the justified exceptions are in ``[tool.steelyard.plain-words]``
of pyproject.toml. The exit status is 1 if something was found.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "docs", "examples", "benchmarks", ".ci")
SUFFIXES = {".py", ".pyi", ".cpp", ".hpp", ".md", ".txt", ".toml", ".html", ".js"}
ROOT_FILES = ("README.md", "CONTRIBUTING.md", "Makefile")


@dataclass(frozen=True)
class Finding:
    """A line that matches a pattern."""

    path: str
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {self.advice}"


@dataclass(frozen=True)
class Rules:
    """The patterns, and the paths that are not checked.

    Parameters
    ----------
    patterns : list of (regular expression, advice)
        Patterns are case-sensitive; each contains its own word boundaries.
    excluded : list of str
        Path prefixes of files that are not checked.
    exceptions : list of (path prefix, text)
        Matched texts that are allowed in some files.
    """

    patterns: list[tuple[re.Pattern[str], str]]
    excluded: list[str]
    exceptions: list[tuple[str, str]]

    @classmethod
    def from_pyproject(cls, text: str) -> Rules:
        """Read the rules; raise ValueError for an exclusion or an exception without a reason."""
        table = tomllib.loads(text)["tool"]["steelyard"]["plain-words"]
        for entry in [*table["exclude"], *table["exceptions"]]:
            if not entry.get("reason"):
                raise ValueError(f"the entry for {entry['path']} needs a reason")
        return cls(
            [(re.compile(entry["pattern"]), entry["advice"]) for entry in table["patterns"]],
            [entry["path"] for entry in table["exclude"]],
            [(entry["path"], entry["text"]) for entry in table["exceptions"]],
        )

    def is_excluded(self, path: str) -> bool:
        return any(path.startswith(prefix) for prefix in self.excluded)

    def check(self, path: str, text: str) -> Iterator[Finding]:
        """Yield the findings in the text of a file."""
        allowed = {word for prefix, word in self.exceptions if path.startswith(prefix)}
        for number, line in enumerate(text.splitlines(), start=1):
            for pattern, advice in self.patterns:
                for match in pattern.finditer(line):
                    if match[0] not in allowed:
                        yield Finding(path, number, match[0], advice)


def files(root: Path) -> Iterator[str]:
    """Yield the paths of all files that are checked, relative to the root of the project."""
    yield from (name for name in ROOT_FILES if (root / name).is_file())
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and "_build" not in path.parts:
                yield path.relative_to(root).as_posix()


def main(arguments: list[str]) -> int:
    rules = Rules.from_pyproject((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    n_findings, needed = 0, set()
    for path in files(ROOT):
        if arguments and not any(path.startswith(argument) for argument in arguments):
            continue
        findings = list(rules.check(path, (ROOT / path).read_text(encoding="utf-8")))
        if rules.is_excluded(path):
            needed.update(prefix for prefix in rules.excluded if findings and path.startswith(prefix))
            continue
        n_findings += len(findings)
        for finding in findings:
            print(finding)
    for prefix in [] if arguments else sorted(set(rules.excluded) - needed):
        print(f"note: nothing is found under {prefix!r}; remove it from the excluded paths in pyproject.toml")
    if n_findings:
        print(f"{n_findings} findings; rules and exceptions: [tool.steelyard.plain-words] in pyproject.toml")
    return 1 if n_findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
