"""The page of the documentation that shows the results of a run."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from papers.experiment import experiments
from papers.result import Report
from papers.storage import read_reports
from papers.tables import markdown_table
from papers.verdict import judge
from steelyard.exceptions import ParameterError

__all__ = ["write_page"]

_HEAD = """# Papers

<!-- Written by `python -m papers page`; change the experiments, not this page. -->

Every table and figure of the five papers this library grew out of, computed afresh by
`python -m papers run all` and shown beside what the papers print. `python -m papers list` names the
experiments, `python -m papers run NAME` runs one; data sets come from where {doc}`datasets` says.

**Verdicts.** A number is *reached* if it differs from the paper's by no more than the tolerance of its row or
two standard errors of the difference of the means; otherwise it is *better* or *short* by the difference. In
wide tables a cell reads "ours ± spread (paper's)" and a sign: `=` reached, `+` better, `-` short. "±" is the
standard deviation over the rounds. No number of a paper enters a computation.
"""


def write_page(results: Sequence[Path], page: Path) -> None:
    """Write the page from the reports below the folders; pictures go to ``_static/papers`` beside it."""
    if page.suffix != ".md":
        raise ParameterError(f"papers: the page must be a Markdown file; got `{page}`.")
    stored = {name: report for folder in results for name, report in read_reports(folder).items()}
    order = [name for name in experiments() if name in stored]
    pictures = page.parent / "_static" / "papers"
    parts, paper = [_HEAD, _glance([stored[name][0] for name in order])], None
    for name in order:
        report, files = stored[name]
        if report.paper != paper:
            paper = report.paper
            parts.append(f"## {paper}\n")
        parts.append(_section(report, files, pictures, page.parent))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(parts), encoding="utf-8")


def _glance(reports: Sequence[Report]) -> str:
    """How many numbers of each experiment are reached."""
    lines = [
        "## At a glance\n",
        "| experiment | printed numbers | reached | better | short |",
        "|---|---|---|---|---|",
    ]
    for report in reports:
        kinds = _kinds(report)
        counts = [kinds.total() - kinds["none"], kinds["reached"], kinds["better"], kinds["short"]]
        cells = " | ".join("-" if not counts[0] else str(count) for count in counts)
        lines.append(f"| {report.paper}: {report.title} | {cells} |")
    return "\n".join(lines) + "\n"


def _kinds(report: Report) -> Counter[str]:
    return Counter(judge(row).kind for row in report.result.rows)


def _section(report: Report, files: dict[Path, str], pictures: Path, base: Path) -> str:
    extent = "quick run" if report.quick else "full run"
    time = f"{report.seconds:,.0f} s"
    if report.saved_seconds:
        time += f", of which {report.saved_seconds:,.0f} s for cells kept from a run before"
    text = [f"### {report.title}\n"]
    text.append(f"`python -m papers run {report.name}` ({extent}, seed {report.seed}, {time})\n")
    if report.result.rows:
        text.append(f"{markdown_table(report.result)}\n")
    for file, caption in files.items():
        pictures.mkdir(parents=True, exist_ok=True)
        copy = pictures / f"{report.name}-{file.name}"
        if not copy.exists() or copy.read_bytes() != file.read_bytes():
            shutil.copyfile(file, copy)
        text.append(f"![{caption}]({copy.relative_to(base).as_posix()})\n\n{caption}\n")
    text += [f"- {note}" for note in report.result.notes]
    text += [f"- Not available: {_without_paths(sentence)}" for sentence in report.unavailable]
    return "\n".join(text) + "\n"


def _without_paths(text: str) -> str:
    """Where the data lay on the machine that ran it says nothing to a reader."""
    return re.sub(r"folder `[^`]*`", "the data folder", text)
