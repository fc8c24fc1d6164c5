"""Implementation of ``explain(X)`` for all learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steelyard._concurrency import shallow_copy
from steelyard._labels import winners
from steelyard._types import FloatArray
from steelyard.explanation.neighbors import ChangeSearch, find_nearest
from steelyard.explanation.rows import RowExplanations, mean_sizes

if TYPE_CHECKING:
    from steelyard.base import BatchLearner

_MAX_ROWS_WITH_CHANGES = 20


def explain_rows(
    learner: BatchLearner, X: Any, background: Any = None, changes: bool | None = None
) -> RowExplanations:
    """Explain the predictions of rows; see :meth:`steelyard.base.BatchLearner.explain`."""
    rows = learner._explained_rows(X)
    names = learner._explained_names(rows.shape[1])
    others = None if background is None else learner._explained_rows(background)
    plain = shallow_copy(learner)  # the rows are already validated, so column names are not checked again
    plain.__dict__.pop("feature_names_in_", None)
    scores, classes = plain._explained_scores(rows)
    remembered = plain._remembered_rows()
    if others is None and remembered is not None and remembered.has_values:
        others = remembered.X
    attribution = plain._attribution(rows, others).adjusted(scores)
    is_single = scores.shape[1] == 1
    found = RowExplanations(
        contributions=attribution.contributions[:, :, 0] if is_single else attribution.contributions,
        base=float(attribution.base[0]) if is_single else attribution.base,
        score=scores[:, 0] if is_single else scores,
        column_names=names,
        values=rows,
        classes=classes,
        labels=classes[winners(scores, len(classes))],
        nearest=find_nearest(remembered, rows),
    )
    if changes is False or (changes is None and len(rows) > _MAX_ROWS_WITH_CHANGES):
        return found
    search = ChangeSearch(lambda tried: plain._explained_scores(tried)[0], classes, names, remembered)
    found.changes.extend(search.of_row(values, found.support(row)) for row, values in enumerate(rows))
    return found


def mean_contributions(learner: BatchLearner, X: Any, *, are_remembered: bool = False) -> FloatArray:
    """Return the mean absolute contribution of each column over given or remembered rows."""
    plain = shallow_copy(learner)
    plain.__dict__.pop("feature_names_in_", None)
    rows = X if are_remembered else plain._explained_rows(X)
    remembered = plain._remembered_rows()
    others = None if remembered is None or not remembered.has_values else remembered.X
    return mean_sizes(plain._attribution(rows, others).contributions)
