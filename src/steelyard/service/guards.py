"""Guards of a model: allowed classes and ranges of values in labelled rows, and quotas."""

from __future__ import annotations

import numpy as np

from steelyard.service.engine import Engine
from steelyard.service.errors import Conflict
from steelyard.service.rows import REQUEST, texts
from steelyard.service.spec import Spec
from steelyard.tables.columns import ColumnBatch, did_you_mean

_MEGABYTE = 1_000_000
_MAX_LISTED = 99  # maximum length of the list of classes in a message


def violations(spec: Spec, batch: ColumnBatch) -> dict[int, tuple[str, str]]:
    """Return column and reason for each row that violates a guard. Reasons contain no values of rows."""
    found: dict[int, tuple[str, str]] = {}
    allowed = spec.allowed_labels
    if allowed is not None:
        reason = f"the label is not one of the classes {', '.join(sorted(allowed))[:_MAX_LISTED]}"
        labels = texts(batch, spec.target)
        found = {row: (spec.target, reason) for row, label in enumerate(labels) if label not in allowed}
    for name, (low, high) in (spec.ranges or {}).items():
        values = batch.columns.get(name)
        if values is None or values.dtype != np.float64:
            continue  # other checks report missing columns and texts
        outside = np.zeros(batch.n_rows, dtype=bool)
        if low is not None:
            outside |= values < low
        if high is not None:
            outside |= values > high
        for row in np.flatnonzero(outside).tolist():
            found.setdefault(row, (name, f"{name} is outside the range {low} to {high}"))
    return found


def check_rows(spec: Spec, batch: ColumnBatch) -> None:
    """Raise RowError if a row violates a guard."""
    found = violations(spec, batch)
    if found:
        row = min(found)
        column, reason = found[row]
        hint: str | None = "correct the row; the settings classes and ranges define what is allowed"
        if column == spec.target and spec.allowed_labels is not None:
            label = str(texts(batch, column)[row])
            reason = reason.replace("the label", f"the label {label[:60]!r}", 1)
            hint = did_you_mean(label, sorted(spec.allowed_labels), hint)
        raise REQUEST.error(f"{reason}; nothing was changed.", row, column, hint)


def check_quota(engine: Engine, batch: ColumnBatch, state_bytes: int) -> None:
    """Raise Conflict if learning the rows of ``batch`` would exceed a quota of the model."""
    spec = engine.spec
    n_new = len(set(spec.feature_names(batch.columns)) - engine.column_kinds().keys())
    used: dict[str, float] = {"columns": engine.n_features + n_new}
    if spec.window is None:
        used["rows"] = engine.n_rows + batch.n_rows
    used["megabytes"] = state_bytes / _MEGABYTE
    for name, value in used.items():
        if value > spec.limit(name):
            raise Conflict(
                f"the quota of this model is {spec.limit(name):,g} {name}, but it would have {value:,g}; "
                "nothing was changed.",
                hint="an administrator can change quota in the settings of the model",
            )
