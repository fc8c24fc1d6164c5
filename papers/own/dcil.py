"""Data sets of the DCIL thesis: table 5.3 with the best of this library."""

from __future__ import annotations

from papers.context import Context
from papers.dcil.static import Round, problem, sizes_of, table_row
from papers.experiment import experiment
from papers.own.candidates import OWN, RULE, Contest, field_of, held, told
from papers.result import Result, paragraphs

__all__ = ["on_dcil"]


@experiment("own-dcil", paper=OWN, title="DCIL's sets")
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
    The paper's figure is DCIL-IncLPSVM's G-mean in table 5.3. Rows to learn and to ask are drawn as there, 20
    of those to learn being of the rare class. Exact learners do not depend on how the rows are cut into
    chunks. With so few rows the mapped learners have 200 random features here. Sets whose tables show
    equality with batch learning only (iris, WDBC) and the thesis' faces, which are not public, have no line.
    """
)
