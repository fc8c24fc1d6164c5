"""Datasets of the distributed paper: its learner and the best of this library. It reports no accuracy."""

from __future__ import annotations

from papers.context import Context
from papers.distributed import SETS, binary_problem
from papers.experiment import experiment
from papers.own.candidates import OWN, RULE, Contest, field_of, held, told
from papers.result import Result, Row, paragraphs

__all__ = ["on_distributed"]

_MOST_ROWS = 10_000


@experiment("own-distributed", paper=OWN, title="The distributed paper's datasets")
def on_distributed(context: Context) -> Result:
    contests = []
    field = field_of(context, plain=True)
    for name, data in context.sets([*SETS][: context.pick(4, 4, 2)]):
        X, y = binary_problem(name, data)
        for number in range(context.pick(5, 2, 1)):
            order = context.rng(name, number).permutation(len(y))[:_MOST_ROWS]
            cut, seed = int(0.7 * len(order)), context.integer(name, number)
            measures = ("G-mean", "AUC")
            contests.append(Contest(SETS[name], X, y, order[:cut], order[cut:], measures, field, seed))
    outcomes = held(context, contests)
    rows = [
        Row.of(subject, learner, measure, values)
        for subject, outcome in outcomes.items()
        for (learner, measure), values in outcome.values.items()
    ]
    return Result(rows, [*_NOTES, *RULE, told(outcomes)], layout="wide")


_NOTES = paragraphs(
    """
    The paper reports times and equality with batch learning, but no measure of quality. "wLPSVM" is its
    learner with C = 1, on standardised rows. The datasets are those of `distributed-table-1`, at most 10,000
    rows of each, 70 % of them for training.
    """
)
