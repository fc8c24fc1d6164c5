"""The pages of the documentation that show the results: a summary, a page for each paper, and the claims."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from papers.claims import claims_page
from papers.experiment import experiments
from papers.own.candidates import CHOSEN, STREAM
from papers.sections import Section, find_sections, read_sections, section_of
from papers.storage import read_reports
from steelyard.exceptions import ParameterError

__all__ = ["write_page"]

_WRITTEN = "<!-- Written by `python -m papers page`; change the experiments, not this page. -->"
_SUMMARY = f"""# Papers

{_WRITTEN}

Every table and figure of the five papers this library grew out of, computed afresh and shown beside what the
papers print. In a clone of the repository `python -m papers list` names the experiments and
`python -m papers run NAME` runs one; data sets come from where {{doc}}`datasets` says.

A number is *reached* if it differs from the paper's by no more than the tolerance of its row or two standard
errors of the difference of the means; otherwise it is *better* or *short* by the difference. No number of a
paper enters a computation.
"""
_LEGEND = """In wide tables a cell reads "ours ± spread (paper's)" and a sign: `=` reached, `+` better, `-`
short. "±" is the standard deviation over the rounds. Each section says how its numbers were run.
"""
# Pages by the beginning of the experiments' names.
_PAGES = {
    "dcil": "DCIL-IncLPSVM",
    "distributed": "Distributed incremental wLPSVM",
    "koil": "KOIL",
    "kba": "Kernel boundary alignment",
    "mhe": "MHE-CIL",
    "own": "The best of this library on the papers' sets",
}

# Papers by the second part of the names of the experiments with our best.
_PAPERS = {"dcil": "DCIL", "distributed": "Distributed", "koil": "KOIL", "kba": "KBA", "mhe": "MHE-CIL"}


def write_page(results: Sequence[Path], page: Path) -> None:
    """Write the summary to `page` and the others to the folder of its name beside it.

    Experiments come from the reports below the folders; what these do not hold stays as the pages have it.
    Pictures go to ``_static/papers`` beside the summary.
    """
    if page.suffix != ".md":
        raise ParameterError(f"papers: the page must be a Markdown file; got `{page}`.")
    folder = page.with_suffix("")
    stored = {name: report for one in results for name, report in read_reports(one).items()}
    sections = read_sections(folder) if folder.is_dir() else {}
    if page.exists():
        sections |= find_sections(page.read_text(encoding="utf-8"))
    for name, (report, files) in stored.items():
        sections[name] = section_of(report, _kept_pictures(name, files, page.parent / "_static" / "papers"))
    order = [name for name in experiments() if name in sections]
    folder.mkdir(parents=True, exist_ok=True)
    of_paper: dict[str, list[Section]] = {}
    for name in order:
        of_paper.setdefault(name.split("-")[0], []).append(sections[name])
    for key, own in of_paper.items():
        head = [f"# {_PAGES[key]}\n", f"{_WRITTEN}\n", *_surpassed(own), _LEGEND]
        _write(folder / f"{key}.md", "\n".join([*head, *(section.text for section in own)]))
    _write(folder / "claims.md", claims_page({name: sections[name] for name in order}, _WRITTEN))
    _write(page, _summary(of_paper, page.stem))


def _surpassed(sections: Sequence[Section]) -> list[str]:
    """The papers' best beside what validation chose here, a line for each set and measure."""
    lines: list[str] = []
    counts: Counter[str] = Counter()
    for section in sections:
        verdicts = section.verdicts()
        for (on, learner, measure), (ours, paper, verdict) in verdicts.items():
            if learner == CHOSEN:
                stream = verdicts.get((on, STREAM, measure), ("-", "", ""))[0]
                of = _PAPERS[section.name.split("-")[1]]
                extent = section.circumstances.split(" ")[0]
                cells = [of, on, measure, paper, ours, stream, verdict, extent]
                lines.append(f"| {' | '.join(cells)} |")
                counts[verdict] += 1
    if not lines:
        return []
    counted = ", ".join(f"{kind} {counts[kind]}" for kind in ("better", "reached", "short"))
    words = (
        "The best figure that a paper prints for one of its own learners, beside the learner of this library "
        "that validation inside the rows to learn chose, and beside StreamClassifier, for which nothing is "
        f"chosen. Of {counts.total()} figures: {counted}.\n"
    )
    return [
        words,
        "\n".join(
            [
                f"| paper | on | measure | its best | {CHOSEN} | {STREAM} | verdict | run |",
                f"|{'---|' * 8}",
                *lines,
                "",
            ]
        ),
    ]


def _write(path: Path, text: str) -> None:
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def _kept_pictures(name: str, files: Mapping[Path, str], pictures: Path) -> dict[str, str]:
    """Copy the pictures of a report; returns their paths, as the pages see them, and captions."""
    kept = {}
    for file, caption in files.items():
        pictures.mkdir(parents=True, exist_ok=True)
        copy = pictures / f"{name}-{file.name}"
        if not copy.exists() or copy.read_bytes() != file.read_bytes():
            shutil.copyfile(file, copy)
        kept[f"../_static/papers/{copy.name}"] = caption
    return kept


def _summary(of_paper: Mapping[str, Sequence[Section]], stem: str) -> str:
    lines = ["| paper | experiments | printed numbers | reached | better | short |", f"|{'---|' * 6}"]
    total: Counter[str] = Counter()
    for key, sections in of_paper.items():
        counts: Counter[str] = sum((section.counts for section in sections), Counter())
        total += counts
        lines.append(f"| {{doc}}`{_PAGES[key]} <{stem}/{key}>` | {len(sections)} | {_cells(counts)} |")
    lines.append(f"| all | {sum(map(len, of_paper.values()))} | {_cells(total)} |")
    pages = "\n".join([f"{stem}/claims", *(f"{stem}/{key}" for key in of_paper), "misprints"])
    links = (
        f"What the papers say in words, and whether it holds: {{doc}}`{stem}/claims`. Where their print and "
        "their meaning part, and what is done here: {doc}`misprints`.\n"
    )
    return "\n".join([_SUMMARY, *lines, "", links, f"```{{toctree}}\n:maxdepth: 1\n:hidden:\n\n{pages}\n```"])


def _cells(counts: Counter[str]) -> str:
    printed = counts.total()
    numbers = [printed, *(counts[kind] for kind in ("reached", "better", "short"))]
    return " | ".join(str(number) if printed else "-" for number in numbers)
