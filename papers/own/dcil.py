"""Datasets of the DCIL thesis: table 5.3 with the best learner of this library."""

from __future__ import annotations

from papers.context import Context
from papers.dcil.static import Round, problem, sizes_of, table_row
from papers.experiment import experiment
from papers.own.candidates import OWN, RULE, Contest, field_of, held, told
from papers.result import Result, paragraphs

__all__ = ["on_dcil"]


@experiment("own-dcil", paper=OWN, title="DCIL's datasets")
def on_dcil(context: Context) -> Result:
    contests, sizes = [], {}
    field = field_of(context, components=(200,))
    for file, data in context.sets(["breast_wisconsin", "car", "abalone"]):
        name, X, y = problem(file, data)
        for n_common in sizes_of(name)[: context.pick(4, 4, 1)]:
            subject = f"{name}, {n_common // 20} : 1"
            sizes[subject] = name, n_common
            for number in range(context.pick(50, 20, 3)):
                seed = context.integer(name, n_common, number)
                train, test, _ = Round(X, y, n_common, seed).parts()
                contests.append(Contest(subject, X, y, train, test, ("G-mean",), field, seed))
    outcomes = held(context, contests)
    rows = [
        table_row(*sizes[subject], (learner, "DCIL-IncLPSVM"), measure, [100.0 * value for value in values])
        for subject, outcome in outcomes.items()
        for (learner, measure), values in outcome.values.items()
    ]
    return Result(rows, [*_NOTES, *RULE, told(outcomes)])


_NOTES = paragraphs(
    """
    The paper's number is the G-mean of DCIL-IncLPSVM in table 5.3. Training and test rows are drawn as in
    that table; 20 training rows are of the rare class. Exact learners do not depend on how the rows are
    divided into chunks. With so few rows, the learners with random features have 200 of them here. There are
    no lines for iris and WDBC, for which the thesis shows only equality with batch learning, and for the
    thesis's faces, which are not public.
    """
)
