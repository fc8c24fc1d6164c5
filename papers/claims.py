"""What the papers say in words, and whether it holds by the numbers of the pages.

A claim names the experiments that it needs and is judged by their numbers alone, as the pages show them, so
that a verdict can't outlive the numbers that it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from papers import judges
from papers.judges import Finding
from papers.sections import Section

__all__ = ["CLAIMS", "Claim", "Finding", "claims_page", "judged"]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper."""

    paper: str
    words: str
    needs: tuple[str, ...]  # experiments
    judge: Callable[..., Finding]  # of the numbers of each


def judged(claim: Claim, sections: Mapping[str, Section]) -> Finding:
    """The verdict, or that something it needs was not run."""
    missing = [name for name in claim.needs if name not in sections or not sections[name].numbers()]
    if missing:
        return Finding("not measured", f"needs {', '.join(missing)}")
    return claim.judge(*(sections[name].numbers() for name in claim.needs))


def claims_page(sections: Mapping[str, Section], written: str) -> str:
    """A line for each claim."""
    lines = [
        "# What the papers claim in words\n",
        f"{written}\n",
        "Each verdict is computed from the numbers of the experiments it names, as their pages show them.\n",
        "| paper | claim | verdict | numbers | from |",
        "|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        finding = judged(claim, sections)
        sources = ", ".join(f"`{name}`" + _quick(sections.get(name)) for name in claim.needs)
        lines.append(
            f"| {claim.paper} | {claim.words} | **{finding.kind}** | {finding.numbers} | {sources} |"
        )
    return "\n".join(lines) + "\n"


def _quick(section: Section | None) -> str:
    return " (quick run)" if section is not None and section.circumstances.startswith("quick") else ""


_DCIL, _DISTRIBUTED, _KOIL, _KBA, _MHE = "DCIL", "Distributed", "KOIL", "KBA", "MHE-CIL"
_KERNEL_RIVALS = ("NORMA", "RBP", "Forgetron", "Projectron", "Projectron++")
CLAIMS = (
    Claim(
        _DCIL, "chunk by chunk the plane is that of batch learning", ("dcil-table-5.1",), judges.equal(1e-9)
    ),
    Claim(
        _DCIL,
        "imbalance draws LPSVM's plane farther than SVM's; weights undo it",
        ("dcil-figures-2.1-2.3",),
        judges.planes,
    ),
    Claim(
        _DCIL,
        "DCIL-IncLPSVM is the best under static imbalance",
        ("dcil-table-5.3",),
        judges.best_of_three("G-mean"),
    ),
    Claim(
        _DCIL,
        "DCIL-IncLPSVM is the best under dynamic imbalance",
        ("dcil-figure-5.2",),
        judges.best_of_three("mean G-mean"),
    ),
    Claim(
        _DCIL,
        "under rising imbalance its sensitivity is stable while that of SVM and LPSVM drops",
        ("dcil-table-5.3",),
        judges.stable,
    ),
    Claim(
        _DCIL,
        "the more people there are to tell apart, the farther DCIL-IncLPSVM is ahead",
        ("dcil-figures-5.3-5.6",),
        judges.farther,
    ),
    Claim(
        _DCIL, "IncLPSVM falls below .5 when class sizes are extreme", ("dcil-figure-5.1",), judges.below_half
    ),
    Claim(
        _DISTRIBUTED,
        "distributed and incremental learning give the batch classifier",
        ("distributed-table-1",),
        judges.equal(1e-9),
    ),
    Claim(_DISTRIBUTED, "a second core speeds it up as printed", ("distributed-table-2",), judges.speed_up),
    Claim(_DISTRIBUTED, "the speed-up is better with more rows", ("distributed-table-2",), judges.more_rows),
    Claim(
        _DISTRIBUTED,
        "incremental learning takes the time of the new rows alone",
        ("distributed-table-3",),
        judges.share,
    ),
    Claim(
        _DISTRIBUTED,
        "privacy is naturally preserved: only statistics leave a node",
        ("distributed-privacy",),
        judges.privacy,
    ),
    Claim(
        _KOIL,
        "beats nearly all kernel rivals (NORMA's figures here are better than printed, unexplained)",
        ("koil-table-3.3",),
        judges.wins(*_KERNEL_RIVALS),
    ),
    Claim(
        _KOIL,
        "on the generated sets kernel learners beat the linear ones",
        ("koil-table-3.2",),
        judges.kernels_win,
    ),
    Claim(_KOIL, "AUC grows with the budget and is then saturated", ("koil-figure-3.2",), judges.saturates),
    Claim(
        _KOIL, "beats linear online learners", ("koil-table-3.3",), judges.wins("Perceptron", "OAM", "OPAUC")
    ),
    Claim(
        _KOIL, "with compensation it approaches unlimited budgets", ("koil-figure-3.1",), judges.compensation
    ),
    Claim(_KOIL, "k is best at about a tenth of the budget", ("koil-figure-3.3",), judges.tenth),
    Claim(_KOIL, "the smooth loss is comparable or better", ("koil-table-3.3",), judges.smooth),
    Claim(
        _KOIL, "the Bayes error of the generated sets is about 4.5 %", ("koil-table-3.2-bayes",), judges.bayes
    ),
    Claim(
        _KOIL,
        "several kernels beat the best single one",
        ("koil-table-4.1",),
        judges.wins(
            "MKL RS++", "MKL FIFO++", "MKL2 RS++", "MKL2 FIFO++", of="wins : losses against one kernel, of"
        ),
    ),
    Claim(
        _KBA,
        "KBA has or ties the highest G-mean on all six sets",
        ("kba-tables-2-3",),
        judges.highest("G-mean"),
    ),
    Claim(_KBA, "KBA has the highest AUC on all six sets", ("kba-tables-2-3",), judges.highest("AUC")),
    Claim(
        _KBA,
        "alignment raises the G-mean of the SVM it starts from",
        ("kba-tables-2-3-letter",),
        judges.against_svm("G-mean", "rises"),
    ),
    Claim(_KBA, "alignment raises its AUC", ("kba-tables-2-3-letter",), judges.against_svm("AUC", "rises")),
    Claim(
        _KBA,
        "alignment lowers the ratio of support vectors",
        ("kba-tables-2-3-letter",),
        judges.against_svm("support ratio", "falls"),
    ),
    Claim(_KBA, "better than ACT on yeast and abalone", ("kba-tables-2-3",), judges.over_act),
    Claim(_KBA, "KBA has an AUC of 87.4 on abalone", ("kba-table-3-abalone",), judges.abalone),
    Claim(
        _KBA, "gains over an SVM grow with the rarity of an image category", ("kba-table-4",), judges.rarer
    ),
    Claim(_KBA, "biased penalties help little", ("kba-figure-2", "kba-tables-2-3"), judges.penalties),
    Claim(_KBA, "KBA finds about 30 points more suspicious trajectories", ("kba-figure-2",), judges.thirty),
    Claim(_KBA, "all methods keep a high specificity", ("kba-figure-2",), judges.specific),
    Claim(
        _MHE,
        "obviously higher than HS and HE (parameters chosen by validation)",
        ("mhe-table-2",),
        judges.obviously(""),
    ),
    Claim(
        _MHE,
        "the same, with the paper's own parameters and plain TF-IDF",
        ("mhe-table-2",),
        judges.obviously(", plain"),
    ),
    Claim(_MHE, "trains nearly as fast as HS", ("mhe-table-3",), judges.times("HS", 1.2, "training ms")),
    Claim(_MHE, "trains faster than HE", ("mhe-table-3",), judges.times("HE", 1.0, "training ms")),
    Claim(_MHE, "classifies about as fast as HE", ("mhe-table-3",), judges.times("HE", 1.1, "testing ms")),
)
