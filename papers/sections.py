"""Sections of the result pages: functions to create, find and parse them.

A full run of all experiments takes hours. Sections of experiments that were not run again are kept as they
are in the page, with the conditions of their run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from papers.result import Report
from papers.tables import markdown_table
from papers.verdict import judge

__all__ = ["Figure", "Key", "Numbers", "Section", "find_sections", "read_sections", "section_of"]

Key = tuple[str, str, str]  # subject, learner and measure


class Figure(NamedTuple):
    """A number of a table, rounded as on the page."""

    ours: float
    paper: float | None
    spread: float = 0.0  # standard deviation of our number


Numbers = dict[Key, Figure]

_NAME = re.compile(r"^`python -m papers run ([\w.\-]+)`", re.MULTILINE)
_COUNTS = re.compile(r"^Published numbers: (\d+); reached (\d+), better (\d+), short (\d+)\.$", re.MULTILINE)
_KINDS = ("reached", "better", "short")
_MARKED = {"=": "reached", "+": "better", "-": "short"}


@dataclass(frozen=True)
class Section:
    """Section of one experiment as Markdown, starting with its heading."""

    name: str
    text: str

    @property
    def counts(self) -> Counter[str]:
        """Counts of the verdicts."""
        found = _COUNTS.search(self.text)
        if found is None:
            return Counter()
        return Counter(dict(zip(_KINDS, map(int, found.groups()[1:]), strict=True)))

    @property
    def circumstances(self) -> str:
        """Conditions of the run, such as "full run, seed 0, 6 s"."""
        found = re.search(r"^`python -m papers run [^`]*` \(([^)]*)\)", self.text, re.MULTILINE)
        return found[1] if found else ""

    def numbers(self) -> Numbers:
        """Return the numbers of the table, rounded as shown."""
        found: Numbers = {}
        for key, ours, paper, _ in self._cells():
            number = _number(ours)
            if number is not None:
                found[key] = Figure(number, _number(paper), _number(ours.partition("±")[2]) or 0.0)
        return found

    def verdicts(self) -> dict[Key, tuple[str, str, str]]:
        """Return (computed, published, verdict) for every number that the paper contains."""
        return {
            key: (ours, paper, verdict)
            for key, ours, paper, verdict in self._cells()
            if _number(ours) is not None and verdict in _KINDS
        }

    def _cells(self) -> Iterator[tuple[Key, str, str, str]]:
        """Yield key, computed and published number and verdict of every cell, for both table layouts."""
        lines = [line for line in self.text.splitlines() if line.startswith("|")]
        if len(lines) < 3:
            return
        names, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
        for cells in body[1:]:
            if len(cells) != len(names):
                continue
            if names[2:4] == ["measure", "paper"]:
                yield (cells[0], cells[1], cells[2]), cells[4], cells[3], cells[5].split(" ")[0]
                continue
            for measure, cell in zip(names[2:], cells[2:], strict=True):
                ours, _, rest = cell.partition(" (")
                paper, _, mark = rest.partition(")")
                yield (cells[0], cells[1], measure), ours, paper, _MARKED.get(mark.strip(), "none")


def _number(cell: str) -> float | None:
    found = re.match(r"[-+]?[\d,]*\.?\d+(e[-+]?\d+)?", cell.strip())
    return float(found[0].replace(",", "")) if found else None


def find_sections(page: str) -> dict[str, Section]:
    """Return the sections of a page by experiment name."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    found = {}
    for part in parts:
        text = part.rstrip() + "\n"
        name = _NAME.search(text)
        if name:
            found[name[1]] = Section(name[1], text)
    return found


def section_of(report: Report, pictures: dict[str, str]) -> Section:
    """Return a report as a section. ``pictures`` maps paths relative to the page to captions."""
    extent = "quick run" if report.quick else "full run"
    time = f"{report.seconds:,.0f} s"
    if report.saved_seconds:
        time += f", of which {report.saved_seconds:,.0f} s for cells kept from a run before"
    if report.commit:
        time += f", commit {report.commit}"
    text = [f"## {report.title}\n"]
    text.append(f"`python -m papers run {report.name}` ({extent}, seed {report.seed}, {time})\n")
    kinds: Counter[str] = Counter(judge(row).kind for row in report.result.rows)
    if printed := kinds.total() - kinds["none"]:
        counted = ", ".join(f"{kind} {kinds[kind]}" for kind in _KINDS)
        text.append(f"Published numbers: {printed}; {counted}.\n")
    if report.result.rows:
        text.append(f"{markdown_table(report.result)}\n")
    text += [f"![{caption}]({path})\n\n{caption}\n" for path, caption in pictures.items()]
    text += [f"- {note}" for note in report.result.notes]
    text += [f"- Not available: {_without_paths(sentence)}" for sentence in report.unavailable]
    return Section(report.name, "\n".join(text).rstrip() + "\n")


def _without_paths(text: str) -> str:
    """Remove paths of the machine that ran the experiment."""
    return re.sub(r"folder `[^`]*`", "the data folder", text)


def read_sections(folder: Path) -> dict[str, Section]:
    """Return the sections of all pages in a folder."""
    found: dict[str, Section] = {}
    for page in sorted(folder.glob("*.md")):
        found |= find_sections(page.read_text(encoding="utf-8"))
    return found
