"""The documentation pages of the results: a summary, one page per paper, and the claims."""

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

These pages recompute every table and figure of the five papers on which this library is based, and compare
the results with the published numbers. {{doc}}`from_the_papers` lists the systems by the papers' names. In a
clone of the repository `python -m papers list` lists the experiments and `python -m papers run NAME` runs
one; {{doc}}`datasets` says where the datasets come from.

A number is *reached* if it differs from the published one by no more than the tolerance of its row or two
standard errors of the difference of the means. Otherwise it is *better* or *short* by the difference. A
published number that is compared with several learners counts once for each, so the table counts comparisons.
"Better" includes times on a faster machine and the Bayes error of generated data; the last column leaves them
out. The experiments use the parameters that a paper reports, but never its results.
"""
_LEGEND = """The column "paper" has the published numbers, "ours" those of this library. In wide tables a cell
is "ours ± standard deviation (published)" and a sign: `=` reached, `+` better, `-` short. The standard
deviation is over the rounds. Each section says how its numbers were computed.
"""
_PLAIN_BETTER = "better, without times and Bayes errors"
_EASIER = "documents of one topic"  # easier than the problem of MHE-CIL
# Pages by the prefix of the experiments' names.
_PAGES = {
    "dcil": "DCIL-IncLPSVM",
    "distributed": "Distributed incremental wLPSVM",
    "koil": "KOIL",
    "kba": "Kernel boundary alignment",
    "mhe": "MHE-CIL",
    "own": "The best of this library on the papers' datasets",
}

# The names of the methods, for the beginning of each page.
_METHODS = {
    "dcil": """LPSVM is the linear proximal SVM and wLPSVM its version with class weights. IncLPSVM and
DCIL-IncLPSVM learn LPSVM and wLPSVM incrementally, and IncSVM is an incremental SVM.
""",
    "distributed": """wLPSVM is the linear proximal SVM with class weights. Nodes learn their rows
incrementally and send statistics, which are added.
""",
    "koil": """KOIL is kernelized online imbalanced learning, with one buffer of support vectors for each
class. When a buffer is full, RS (reservoir sampling) replaces a random vector and FIFO the oldest one;
RS++ and FIFO++ also add the weight of the replaced vector to the most similar remaining one. KOIL uses
the hinge loss and KOIL2 its square. MKL and MKL2 are the same with several kernels. The other learners
(Perceptron, OAM, OPAUC, NORMA, RBP, Forgetron, Projectron) are explained in {doc}`../learners/koil`.
""",
    "kba": """KBA (kernel boundary alignment) changes the kernel of an SVM near its decision boundary;
ACT is an earlier method that does this in input space. BP (biased penalties) is an SVM with a higher
penalty for the rare class.
""",
    "mhe": """HS encloses each class in a hypersphere, HE in a hyperellipsoid, and MHE in a
hyperellipsoid that may leave outliers outside. "CIL" is class-incremental learning: one class is
learned after the other.
""",
}

# Papers by the second part of the names of the experiments "own-...".
_PAPERS = {"dcil": "DCIL", "distributed": "Distributed", "koil": "KOIL", "kba": "KBA", "mhe": "MHE-CIL"}


def write_page(results: Sequence[Path], page: Path) -> None:
    """Write the summary to `page` and the other pages to the folder of the same name next to it.

    Sections come from the reports in the folders; sections of other experiments are kept from the existing
    pages. Pictures are written to ``_static/papers`` in the folder of the summary.
    """
    if page.suffix != ".md":
        raise ParameterError(f"papers: the page must be a Markdown file; got `{page}`.")
    folder = page.with_suffix("")
    stored = {name: report for one in results for name, report in read_reports(one).items()}
    sections = read_sections(folder) if folder.is_dir() else {}
    if page.exists():
        sections |= find_sections(page.read_text(encoding="utf-8"))
    for name, (report, files) in stored.items():
        sections[name] = section_of(report, _copied_pictures(name, files, page.parent / "_static" / "papers"))
    order = [name for name in experiments() if name in sections]
    folder.mkdir(parents=True, exist_ok=True)
    of_paper: dict[str, list[Section]] = {}
    for name in order:
        of_paper.setdefault(name.split("-")[0], []).append(sections[name])
    for key, own in of_paper.items():
        methods = [_METHODS[key]] if key in _METHODS else []
        head = [f"# {_PAGES[key]}\n", f"{_WRITTEN}\n", *methods, *_surpassed(own), _LEGEND]
        _write(folder / f"{key}.md", "\n".join([*head, *(section.text for section in own)]))
    _write(folder / "claims.md", claims_page({name: sections[name] for name in order}, _WRITTEN))
    _write(page, _summary(of_paper, page.stem))


def _surpassed(sections: Sequence[Section]) -> list[str]:
    """Return a table of the papers' best numbers and ours, one line per dataset and measure."""
    lines: list[str] = []
    counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}  # True: easier problems
    for section in sections:
        verdicts = section.verdicts()
        for (on, learner, measure), (ours, paper, verdict) in verdicts.items():
            if learner == CHOSEN:
                stream = verdicts.get((on, STREAM, measure), ("-", "", ""))[0]
                of = _PAPERS[section.name.split("-")[1]]
                extent = section.circumstances.split(" ")[0]
                cells = [of, on, measure, paper, ours, stream, verdict, extent]
                lines.append(f"| {' | '.join(cells)} |")
                counts[_EASIER in on][verdict] += 1
    if not lines:
        return []
    words = (
        "The table compares the best number that a paper reports for one of its own learners with two "
        "learners of this library: the one that cross-validation within the training rows selected, and "
        f"StreamClassifier with its default parameters. Of {_counted(counts[False])}."
    )
    if counts[True]:
        words += (
            f' "{_EASIER.capitalize()}" is an easier problem than the paper\'s: of {_counted(counts[True])}.'
        )
    words += "\n"
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


def _counted(counts: Counter[str]) -> str:
    kinds = ", ".join(f"{kind} {counts[kind]}" for kind in ("better", "reached", "short"))
    return f"{counts.total()} numbers: {kinds}"


def _write(path: Path, text: str) -> None:
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def _copied_pictures(name: str, files: Mapping[Path, str], pictures: Path) -> dict[str, str]:
    """Copy the pictures of a report; return their paths relative to the pages, and captions."""
    copied = {}
    for file, caption in files.items():
        pictures.mkdir(parents=True, exist_ok=True)
        copy = pictures / f"{name}-{file.name}"
        if not copy.exists() or copy.read_bytes() != file.read_bytes():
            shutil.copyfile(file, copy)
        copied[f"../_static/papers/{copy.name}"] = caption
    return copied


def _summary(of_paper: Mapping[str, Sequence[Section]], stem: str) -> str:
    lines = [
        f"| paper | experiments | comparisons | reached | better | short | {_PLAIN_BETTER} |",
        f"|{'---|' * 7}",
    ]
    total: Counter[str] = Counter()
    for key, sections in of_paper.items():
        counts: Counter[str] = sum((section.counts for section in sections), Counter())
        counts[_PLAIN_BETTER] = counts["better"] - sum(map(_times_and_bayes, sections))
        total += counts
        lines.append(f"| {{doc}}`{_PAGES[key]} <{stem}/{key}>` | {len(sections)} | {_cells(counts)} |")
    lines.append(f"| all | {sum(map(len, of_paper.values()))} | {_cells(total)} |")
    parts = ("claims", *of_paper, "aligned_evidence")
    pages = "\n".join(["from_the_papers", *(f"{stem}/{part}" for part in parts), "misprints"])
    links = (
        f"Claims of the papers in words, and whether they hold: {{doc}}`{stem}/claims`. Errors and "
        "ambiguities of the papers: {doc}`misprints`.\n"
    )
    return "\n".join([_SUMMARY, *lines, "", links, f"```{{toctree}}\n:maxdepth: 1\n:hidden:\n\n{pages}\n```"])


def _times_and_bayes(section: Section) -> int:
    """Return how many "better" verdicts of a section are about times or Bayes errors."""
    return sum(
        verdict == "better" and (learner == "Bayes" or measure == "seconds" or measure.endswith(" ms"))
        for (_, learner, measure), (_, _, verdict) in section.verdicts().items()
    )


def _cells(counts: Counter[str]) -> str:
    kinds = ("reached", "better", "short")
    compared = sum(counts[kind] for kind in kinds)
    numbers = [compared, *(counts[kind] for kind in (*kinds, _PLAIN_BETTER))]
    return " | ".join(str(number) if compared else "-" for number in numbers)
