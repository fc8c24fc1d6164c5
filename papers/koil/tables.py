"""Tables 3.2, 3.3 and 4.1 of the KOIL thesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from papers.context import Context
from papers.experiment import experiment
from papers.koil import published
from papers.koil.contenders import AS_WRITTEN, COMPARED, MANY_KERNELS, ONE_KERNEL, Contender
from papers.koil.protocol import Benchmark, benchmarks, run_tasks
from papers.result import Result, Row, paragraphs
from papers.verdict import judge

__all__ = ["ARTICLE", "printed", "table_3_2", "table_3_3", "table_4_1", "table_4_1_written"]

ARTICLE = "KOIL"

SYNTHETIC = ("s4", "s10", "s50", "s100")
REAL = (
    "sonar", "australian", "heart", "ionosphere", "diabetes", "glass", "german", "svmguide2", "segment",
    "satimage", "vowel", "letter", "poker", "shuttle",
)  # fmt: skip
SHOWN = {"s4": "Syn1", "s10": "Syn2", "s50": "Syn3", "s100": "Syn4"}
WITHIN = 0.01  # largest difference to the paper's AUC that counts as reached
LEVEL = 0.05  # significance level of the paired t-tests

Areas = Mapping[tuple[str, str], Sequence[float]]


def printed(name: str, learner: str) -> dict[str, Any]:
    """Return the published number of a learner on a dataset as keyword arguments of :class:`Row`."""
    tables = (published.PAPER_ONE_KERNEL, published.PAPER_OTHERS, published.PAPER_MANY_KERNELS)
    mean, std = next(table[name][learner] for table in tables if learner in table.get(name, {}))
    return {"paper": mean, "paper_std": std, "tolerance": WITHIN}


# -- significance ---------------------------------------------------------------------------------


def better(ours: Sequence[float], theirs: Sequence[float]) -> int:
    """Return 1 or -1 if the paired t-test finds `ours` better or worse than `theirs`, else 0."""
    differences = np.asarray(ours) - np.asarray(theirs)
    if len(differences) < 2 or np.ptp(differences) == 0.0:
        return int(np.sign(differences).mean())  # the t-test needs a variance
    significant = stats.ttest_1samp(differences, 0.0).pvalue < LEVEL
    return int(np.sign(differences.mean())) if significant else 0


def _either(signs: Sequence[int]) -> int:
    """Return 1 (a win) if a sign is positive, else -1 (a loss) if a sign is negative, else 0."""
    return 1 if 1 in signs else -1 if -1 in signs else 0


def _counted(learner: str, signs: Sequence[int], paper: tuple[float, ...]) -> list[Row]:
    """Return rows with the numbers of wins and losses. A difference of one dataset counts as reached."""
    wins, _, losses = paper
    won, lost = float(signs.count(1)), float(signs.count(-1))
    return [
        Row("all sets", learner, "wins", won, paper=wins, digits=0, tolerance=1.0),
        Row("all sets", learner, "losses", lost, paper=losses, digits=0, tolerance=1.0, aim="low"),
    ]


# -- the tables -----------------------------------------------------------------------------------


def _area_rows(found: Sequence[Benchmark], contenders: Sequence[Contender], results: Areas) -> list[Row]:
    rows = []
    for benchmark in found:
        for contender in contenders:
            name = contender.name.removesuffix(AS_WRITTEN)
            values = results[benchmark.name, contender.name]
            subject = SHOWN.get(benchmark.name, benchmark.name)
            rows.append(Row.of(subject, contender.name, "AUC", values, **printed(benchmark.name, name)))
    return rows


def _one_kernel(context: Context, table: str, names: Sequence[str]) -> Result:
    found = benchmarks(context, names)
    contenders = ONE_KERNEL + COMPARED
    results = run_tasks(context, found, contenders)
    rows = _area_rows(found, contenders, results)
    lost = []
    for contender in contenders[2:]:
        signs = []
        for b in found:
            theirs = results[b.name, contender.name]
            signs.append(_either([better(results[b.name, own.name], theirs) for own in ONE_KERNEL[:2]]))
            if signs[-1] < 0:
                best = max(float(np.mean(results[b.name, own.name])) for own in ONE_KERNEL[:2])
                ahead = float(np.mean(theirs)) - best
                lost.append(f"{contender.name} on {SHOWN.get(b.name, b.name)} ({ahead:+.3f})")
        rows += _counted(contender.name, signs, published.PAPER_WINS[table][contender.name])
    differences = _NOTES_DATA if table == "3.3" else ()
    losses = f"Losses, with the mean difference to the better of RS++ and FIFO++: {', '.join(lost)}."
    findings = [_reached(found, results), *_differing(rows), *([losses] if lost else [])]
    return Result(rows, [*_NOTES, *differences, *findings])


def _differing(rows: Sequence[Row]) -> list[str]:
    """Return notes on the AUC of learners that differ from the thesis, except KOIL with the hinge loss."""
    hinge = {contender.name for contender in ONE_KERNEL[:2]}
    others = [row for row in rows if row.measure == "AUC" and row.learner not in hinge]
    sentences = []
    for kind, word in (("short", "below"), ("better", "above")):
        listed = [
            f"{row.learner} on {row.subject} ({row.mean - row.paper:+.3f})"
            for row in others
            if row.paper is not None and judge(row).kind == kind
        ]
        if listed:
            sentences.append(f"Other learners {word} the thesis: {', '.join(listed)}.")
    return sentences


def _reached(found: Sequence[Benchmark], results: Areas) -> str:
    """Return notes on the datasets on which KOIL with the hinge loss reaches the thesis."""
    sentences = []
    for contender in ONE_KERNEL[:2]:
        gaps = {
            b.name: float(np.mean(results[b.name, contender.name]))
            - published.PAPER_ONE_KERNEL[b.name][contender.name][0]
            for b in found
        }
        near = [name for name, gap in gaps.items() if abs(gap) <= WITHIN]
        above = [f"{name} ({gap:+.3f})" for name, gap in gaps.items() if gap > WITHIN]
        below = [f"{name} ({gap:+.3f})" for name, gap in gaps.items() if gap < -WITHIN]
        sentences.append(
            f"{contender.name}: within {WITHIN} of the paper's mean on {len(near)} of {len(found)} datasets"
            + (f", above on {', '.join(above)}" if above else "")
            + (f", below on {', '.join(below)}" if below else "")
            + "."
        )
    return " ".join(sentences)


@experiment("koil-table-3.2", paper=ARTICLE, title="Table 3.2: AUC on four generated datasets")
def table_3_2(context: Context) -> Result:
    return _one_kernel(context, "3.2", context.pick(SYNTHETIC, SYNTHETIC, SYNTHETIC[:1]))


@experiment("koil-table-3.3", paper=ARTICLE, title="Table 3.3: AUC on fourteen benchmark datasets")
def table_3_3(context: Context) -> Result:
    return _one_kernel(context, "3.3", context.pick(REAL, REAL, ("glass", "vowel")))


def _many_kernels(context: Context, contenders: Sequence[Contender], notes: Sequence[str]) -> Result:
    found = benchmarks(context, context.pick(REAL, REAL, ("glass",)))
    results = run_tasks(context, found, (*ONE_KERNEL, *contenders))
    rows = _area_rows(found, contenders, results)
    near = sum(row.paper is not None and abs(row.mean - row.paper) <= WITHIN for row in rows)
    counted = f"{near} of {len(rows)} AUC values are within {WITHIN} of the thesis's mean."
    for many, one in zip(contenders, ONE_KERNEL, strict=True):
        signs = [better(results[b.name, many.name], results[b.name, one.name]) for b in found]
        rows += _counted(many.name, signs, published.PAPER_WINS_MANY[many.name.removesuffix(AS_WRITTEN)])
    return Result(rows, [*notes, *_NOTES_MANY, counted])


@experiment("koil-table-4.1", paper=ARTICLE, title="Table 4.1: AUC with sixteen kernels, as programmed")
def table_4_1(context: Context) -> Result:
    return _many_kernels(context, MANY_KERNELS[:4], _NOTES_PROGRAMMED)


@experiment("koil-table-4.1-written", paper=ARTICLE, title="Table 4.1: AUC with sixteen kernels, as written")
def table_4_1_written(context: Context) -> Result:
    return _many_kernels(context, MANY_KERNELS[4:], _NOTES_WRITTEN)


_NOTES = paragraphs(
    """
    The files and splits are the authors': four partitions into five folds, 20 runs. Each run is one pass over
    the training rows in the order of the file. The learning rate is 0.01, the budget 100 for each class and k
    = 10 (on the generated datasets 50 and k = 5, as the thesis says). RBP and Forgetron, which have one
    buffer, get 200 (100). KOIL uses the hinge loss, KOIL2 its square. RS++ is the policy "reservoir++",
    FIFO++ is "fifo++".

    Parameters are chosen as in the authors' program: once for each dataset and learner, by five-fold
    cross-validation inside the training part of the first run, with the authors' inner folds and the thesis's
    ranges (C and the width of the Gaussian from 2**-10 to 2**10). The search is reduced in four ways. On the
    datasets of more than 10,000 rows (Syn4, letter, poker, shuttle) every second power is tried. Values that
    a learner cannot use are left out (nu above 1/2, projection thresholds above 1, steps that overshoot).
    NORMA's nu is tried at every second power and its lambda at every fourth. NORMA and Projectron, whose cost
    per row grows, are searched on the first 2,000 training rows of each inner fold.

    The learners that KOIL is compared with follow their articles here. Those of the thesis do not:
    `koil-table-3.3-toolbox` computes Perceptron, RBP, Forgetron and Projectron as in a toolbox that the
    thesis seems to have used, and reproduces most of their numbers, many to the last digit.

    Wins and losses are those of KOIL with the hinge loss against the learner, by paired t-tests at 95 %: a
    win if RS++ or FIFO++ is significantly better, a loss if one is worse and none better. All other datasets
    are ties. The runs are paired, so even an AUC difference of a few thousandths can be significant.
    """
)
_NOTES_DATA = paragraphs(
    """
    Where KOIL with the hinge loss is below the thesis on german, ionosphere and diabetes, the choice of C and
    gamma is the cause: `koil-table-3.3-choice` makes this choice in ten training parts instead of one, and
    most of the choices (on ionosphere some of them) give the thesis's number within the tolerance.
    benchmarks/accuracy/koil_figures.py shows that the learner itself is the authors': their program with
    their parameters prints .87816 on glass, .82045 on diabetes and .97015 on ionosphere for FIFO++ (where the
    thesis has .884, .830 and .985), and the learner here gives the same digits.

    Shuttle is not the authors' file but the same rows in the order of UCI with features from 0 to 1.
    `koil-table-3.3-orders` repeats the protocol in random orders and with features from -1 to 1. The results
    of KOIL and the Perceptron depend on both, and features from -1 to 1 in random order reproduce the
    thesis's numbers. KOIL2, which was not tried there, has the same kernels and ranges.

    NORMA, which keeps every support vector, is better here than in the thesis, and on half of the datasets
    better than KOIL with its budget; KOIL2 is better on some. The reason is not known. The choice of
    parameters is unlikely to be the reason: where it was repeated (`koil-table-3.3-choice`), the parameters
    chosen in ten training parts are almost always better than the thesis's number. The thesis does not say
    which implementation of NORMA it used.

    The inner folds of segment are damaged in the authors' repository; 146 of 1,848 rows are left out of the
    search.
    """
)
_NOTES_PROGRAMMED = paragraphs(
    """
    The authors' published program for many kernels differs from the thesis in five ways. It adds up weighted
    scores where the thesis's decision function (4.1) adds up signs. Its weights of support vectors decay,
    those of (4.2) do not. Its kernel weights follow the losses without the factor C. It uses five neighbours.
    Its thirteen Gaussians have gamma from 2**-6 to 2**6, those of the thesis have widths in this range. This
    table is computed as in the program, `koil-table-4.1-written` follows the formulas, and
    `koil-table-4.1-readings` changes from one to the other step by step. The AUC values show that the
    thesis's numbers come from the program.

    Outside of shuttle, two AUC values are short (FIFO++ on german, RS++ on letter) because of the choice of
    C: `koil-table-3.3-choice` shows the results of other choices. On shuttle the causes are the scale of the
    features, on which kernels of fixed widths depend, the order of the rows, and the coarser search of C:
    `koil-table-4.1-orders`.
    """
)
_NOTES_WRITTEN = paragraphs(
    """
    The table follows the formulas of the thesis: kernels vote (4.1), weights of support vectors do not decay
    (4.2), the weight of a kernel falls with C times its losses, a sample is compared with ten neighbours, and
    the Gaussians have widths from 2**-6 to 2**6. Voting gives many rows equal scores. The authors' program
    differs, see `koil-table-4.1`.
    """
)
_NOTES_MANY = paragraphs(
    """
    Protocol, data and parameters (C from 2**-10 to 2**10) are those of table 3.3. Wins and losses are against
    KOIL with one kernel of the same loss and policy, whose width was chosen by cross-validation; all other
    datasets are ties.
    """
)
