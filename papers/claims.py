"""Claims that the papers make in words, and the page with a verdict on each claim.

A claim names the experiments that it needs. Its verdict is computed from the numbers on the pages of these
experiments, so the verdict changes when the numbers change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from papers.dcil.cost import BATCH, CHUNKS
from papers.judges import Finding, Kind, dcil, distributed, kba, koil, mhe
from papers.sections import Section

__all__ = ["CLAIMS", "Claim", "Finding", "claims_page", "judged"]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper."""

    paper: str
    words: str
    needs: tuple[str, ...]  # names of experiments
    judge: Callable[..., Finding]  # checks the claim; one argument per experiment, with its numbers


def judged(claim: Claim, sections: Mapping[str, Section]) -> Finding:
    """Return the verdict on a claim, or "not measured" if an experiment is missing in ``sections``."""
    missing = [name for name in claim.needs if name not in sections or not sections[name].numbers()]
    if missing:
        return Finding("not measured", f"needs {', '.join(missing)}")
    return claim.judge(*(sections[name].numbers() for name in claim.needs))


def claims_page(sections: Mapping[str, Section], written: str) -> str:
    """Return the page of claims: ``written`` as introduction, counts, and one line per claim."""
    findings = [judged(claim, sections) for claim in CLAIMS]
    kinds = Counter(finding.kind for finding in findings)
    counted = ", ".join(f"{number} {_PLURAL[kind]}" for kind, number in kinds.most_common())
    lines = [
        "# What the papers claim in words\n",
        f"{written}\n",
        (
            "Each verdict is computed from the numbers of the experiments in the last column, as their pages "
            "show them. The names of the methods are explained at the beginning of these pages."
        ),
        f"Of {len(findings)} claims {counted}.\n",
        "| paper | claim | verdict | numbers | from |",
        "|---|---|---|---|---|",
    ]
    for claim, finding in zip(CLAIMS, findings, strict=True):
        sources = ", ".join(f"`{name}`" + _quick(sections.get(name)) for name in claim.needs)
        lines.append(
            f"| {claim.paper} | {claim.words} | **{finding.kind}** | {finding.numbers} | {sources} |"
        )
    return "\n".join(lines) + "\n"


_PLURAL: dict[Kind, str] = {
    "holds": "hold",
    "holds in part": "hold in part",
    "does not hold": "do not hold",
    "not measured": "are not measured",
}


def _quick(section: Section | None) -> str:
    return " (quick run)" if section is not None and section.circumstances.startswith("quick") else ""


def _of(paper: str, *claims: tuple[str, str, Callable[..., Finding]]) -> list[Claim]:
    """Return the claims of a paper from tuples (words, experiments separated by spaces, check function)."""
    return [Claim(paper, words, tuple(needs.split()), judge) for words, needs, judge in claims]


CLAIMS = (
    *_of(
        "DCIL",
        ("learning chunk by chunk gives the plane of batch learning", "dcil-table-5.1", dcil.equal(1e-9)),
        (
            "with equally many rows of both classes the planes of SVM and LPSVM are near the ideal one",
            "dcil-figures-2.1-2.3",
            dcil.balanced_planes,
        ),
        (
            "imbalance shifts the plane of LPSVM farther than that of SVM; class weights undo the shift",
            "dcil-figures-2.1-2.3",
            dcil.planes,
        ),
        (
            "DCIL-IncLPSVM is the best under static imbalance",
            "dcil-table-5.3",
            dcil.best_of_three("G-mean"),
        ),
        (
            (
                "on imbalanced breast Wisconsin DCIL-IncLPSVM has the highest F-measure and G-mean, and its "
                "RS is nearest to 1"
            ),
            "dcil-table-5.3",
            dcil.three_measures,
        ),
        (
            "as imbalance rises the sensitivity of DCIL-IncLPSVM is stable while that of SVM and LPSVM drops",
            "dcil-table-5.3",
            dcil.stable,
        ),
        (
            "at high ratios SVM and LPSVM never predict the rare class",
            "dcil-table-5.3",
            dcil.given_up,
        ),
        (
            (
                "with equally many rows of both classes a plane may still favour one class, because of their "
                "scatter"
            ),
            "dcil-table-5.3",
            dcil.leaning,
        ),
        (
            "on balanced breast Wisconsin SVM is slightly ahead",
            "dcil-table-5.3",
            dcil.svm_ahead_in_balance,
        ),
        (
            "some imbalance can help: SVM on abalone is better at 5 : 1 than at 1 : 1",
            "dcil-table-5.3",
            dcil.helped_by_imbalance,
        ),
        (
            "IncLPSVM learns at lower cost than IncSVM",
            "dcil-cost",
            dcil.cheaper("IncLPSVM", "IncSVM", CHUNKS),
        ),
        (
            "DCIL-IncLPSVM is the best under dynamic imbalance",
            "dcil-figure-5.2",
            dcil.best_of_three("mean G-mean"),
        ),
        (
            "the G-mean of DCIL-IncLPSVM keeps growing, that of the others falls as imbalance rises",
            "dcil-figure-5.2",
            dcil.keeps_growing,
        ),
        (
            "once the classes are balanced again all three learners end alike",
            "dcil-figure-5.2",
            dcil.alike("final G-mean", 0.02),
        ),
        (
            "with about as many members as others all three learners are alike",
            "dcil-figure-5.1",
            dcil.alike("final G-mean", 0.02, "balanced"),
        ),
        ("IncLPSVM falls below .5 when class sizes are extreme", "dcil-figure-5.1", dcil.below_half),
        (
            "DCIL-IncLPSVM stays above IncSVM and above .8 when class sizes are extreme",
            "dcil-figure-5.1",
            dcil.above_svm,
        ),
        (
            "the more people there are to distinguish, the farther DCIL-IncLPSVM is ahead",
            "dcil-figures-5.3-5.6",
            dcil.farther,
        ),
        (
            "DCIL-IncLPSVM is ahead by less in mean accuracy than in final accuracy",
            "dcil-figures-5.3-5.6",
            dcil.mean_lead,
        ),
        (
            "accuracy falls with the number of people",
            "dcil-figures-5.3-5.6",
            dcil.fewer_are_easier,
        ),
    ),
    *_of(
        "Distributed",
        (
            "distributed and incremental learning give the batch classifier",
            "distributed-table-1",
            dcil.equal(1e-9),
        ),
        ("a second core gives the published speed-up", "distributed-table-2", distributed.speed_up),
        ("n cores are less than n times as fast as one", "distributed-table-2", distributed.less_than_linear),
        ("the speed-up is better with more rows", "distributed-table-2", distributed.more_rows),
        ("m times the rows take less than m times as long", "distributed-table-2", distributed.size_up),
        (
            "incremental learning takes the time of the new rows alone",
            "distributed-table-3",
            distributed.share,
        ),
        (
            (
                "the time of batch learning grows with all rows, that of incremental learning falls as fewer "
                "new rows come"
            ),
            "distributed-table-3",
            distributed.grows_and_falls,
        ),
        (
            "several cores clearly reduce the time",
            "distributed-table-3",
            distributed.parallel,
        ),
        (
            "privacy is naturally preserved: only statistics leave a node",
            "distributed-privacy",
            distributed.privacy,
        ),
        ("wLPSVM is robust to class imbalance", "distributed-esvm", distributed.robust),
        (
            "wLPSVM is much more efficient than SVM",
            "dcil-cost",
            dcil.cheaper("wLPSVM", "SVM (LIBSVM)", BATCH),
        ),
    ),
    *_of(
        "KOIL",
        (
            (
                "KOIL beats nearly all other kernel learners (NORMA is better here than in the thesis, for "
                "an unknown reason)"
            ),
            "koil-table-3.3",
            koil.wins("NORMA", "RBP", "Forgetron", "Projectron", "Projectron++"),
        ),
        ("KOIL beats linear online learners", "koil-table-3.3", koil.wins("Perceptron", "OAM", "OPAUC")),
        (
            "on most datasets kernel learners have a higher AUC than linear ones",
            "koil-table-3.3",
            koil.kernels_mostly,
        ),
        (
            "on five datasets a linear learner is enough (australian, heart, diabetes, german, shuttle)",
            "koil-table-3.3",
            koil.plane_is_enough,
        ),
        ("the weights of the kernels converge", "koil-epochs", koil.converges),
        (
            (
                "the hinge loss beats the smooth one on five datasets and ties on nine (the thesis's table: "
                "6 : 0, 7 : 0)"
            ),
            "koil-table-3.3",
            koil.wins("KOIL2 RS++", "KOIL2 FIFO++", of="wins : losses of the hinge loss against"),
        ),
        (
            "on the generated datasets kernel learners beat the linear ones",
            "koil-table-3.2",
            koil.kernels_win,
        ),
        ("Perceptron and OAM rank Syn1 worse than a random guess", "koil-table-3.2", koil.guesses),
        (
            "with 50 vectors per class KOIL beats NORMA, which keeps all vectors, on the generated datasets",
            "koil-table-3.2",
            koil.fewer_vectors,
        ),
        (
            "on the generated datasets the smooth loss is comparable or better",
            "koil-table-3.2",
            koil.smooth,
        ),
        ("the Bayes error of the generated datasets is about 4.5 %", "koil-table-3.2-bayes", koil.bayes),
        ("with compensation KOIL approaches unlimited budgets", "koil-figure-3.1", koil.compensation),
        (
            "compensation is clearly better than none once a buffer is full",
            "koil-figure-3.1",
            koil.over_plain,
        ),
        ("without compensation the AUC fluctuates", "koil-figure-3.1", koil.fluctuates),
        ("AUC grows with the budget and then saturates", "koil-figure-3.2", koil.saturates),
        ("k is best at about a tenth of the budget", "koil-figure-3.3", koil.tenth),
        ("k = 1 is too few", "koil-figure-3.3", koil.too_few),
        ("beyond a tenth of the budget AUC falls as k grows", "koil-figure-3.3", koil.declines),
        ("svmguide2 and german are less sensitive to k", "koil-figure-3.3", koil.sensitive),
        (
            "several kernels beat the best single one",
            "koil-table-4.1",
            koil.wins(
                "MKL RS++",
                "MKL FIFO++",
                "MKL2 RS++",
                "MKL2 FIFO++",
                of="wins : losses against one kernel:",
            ),
        ),
        (
            (
                "with the smooth loss several kernels beat the best single one on at least 7 of 14 datasets "
                "(the thesis's table: 6)"
            ),
            "koil-table-4.1",
            koil.at_least_seven,
        ),
        (
            "on sonar and ionosphere several kernels cannot beat the tuned kernel",
            "koil-table-4.1 koil-table-3.3",
            koil.limited,
        ),
    ),
    *_of(
        "KBA",
        (
            "KBA has or ties the highest G-mean on all six datasets",
            "kba-tables-2-3",
            kba.highest("G-mean"),
        ),
        ("KBA has the highest AUC on all six datasets", "kba-tables-2-3", kba.highest("AUC")),
        (
            "alignment raises the G-mean of the SVM it starts from",
            "kba-tables-2-3-letter",
            kba.against_svm("G-mean", "rises"),
        ),
        (
            "alignment raises the AUC of the SVM it starts from",
            "kba-tables-2-3-letter",
            kba.against_svm("AUC", "rises"),
        ),
        (
            "alignment lowers the ratio of support vectors",
            "kba-tables-2-3-letter",
            kba.against_svm("support ratio", "falls"),
        ),
        (
            "changing the kernel helps, changing the bias b or the multipliers does not",
            "kba-tables-2-3",
            kba.only_kernel,
        ),
        ("KBA is better than ACT on yeast and abalone", "kba-tables-2-3", kba.over_act),
        ("SVM and SMOTE cannot predict the rare class of abalone", "kba-tables-2-3", kba.abalone_lost),
        ("KBA has an AUC of 87.4 on abalone", "kba-table-3-abalone", kba.abalone),
        ("gains over an SVM grow with the rarity of an image category", "kba-table-4", kba.rarer),
        ("biased penalties help little", "kba-figure-2 kba-tables-2-3", kba.penalties),
        ("KBA finds about 30 points more suspicious trajectories", "kba-figure-2", kba.thirty),
        ("all methods keep a high specificity", "kba-figure-2", kba.specific),
    ),
    *_of(
        "MHE-CIL",
        (
            "MHE is obviously higher than HS and HE (parameters chosen by validation)",
            "mhe-table-2",
            mhe.obviously(""),
        ),
        (
            (
                "MHE is obviously higher than HS and HE (plain TF-IDF; number of terms and 30 % outliers are "
                "our choice)"
            ),
            "mhe-table-2",
            mhe.obviously(", plain"),
        ),
        (
            "one reason for the lead of MHE is that it excludes outliers",
            "mhe-table-2",
            mhe.reason("MHE", "HE"),
        ),
        ("the other reason is the Mahalanobis distance", "mhe-table-2", mhe.reason("HE", "HS")),
        ("MHE trains nearly as fast as HS", "mhe-table-3", mhe.times("HS", 1.2, "training ms")),
        ("MHE trains faster than HE", "mhe-table-3", mhe.times("HE", 0.9, "training ms")),
        ("MHE classifies about as fast as HE", "mhe-table-3", mhe.times("HE", 1.1, "testing ms")),
        ("MHE classifies faster than HS", "mhe-table-3", mhe.times("HS", 0.9, "testing ms")),
        ("a new class costs only the training of its own ellipsoid", "mhe-table-3", mhe.own_body),
    ),
)
