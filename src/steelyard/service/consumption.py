"""Consumption of topics: messages are applied, and the position is moved, in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steelyard.exceptions import DataError, SteelyardError
from steelyard.service import rows as wire
from steelyard.service.errors import Conflict, PositionMoved
from steelyard.service.session import ModelSession
from steelyard.service.spec import Spec
from steelyard.service.stores import EarlyLabel, PendingRow
from steelyard.streams.predictions import Predictions
from steelyard.tables.columns import ColumnBatch

if TYPE_CHECKING:
    from steelyard.service.commands import Consume


class TopicConsumer(Protocol):
    """Thread that feeds a model from a topic while the service runs."""

    model: str

    def start(self) -> None:
        """Start consuming."""

    def stop(self) -> None:
        """Finish the messages in progress and stop."""

    def describe(self) -> dict[str, Any]:
        """Return role, address without credentials, state, error, lag, counts and throughput."""


def consume(session: ModelSession, request: Consume, max_pending: int, now: float) -> dict[str, Any]:
    """Apply the messages of a request. If an error is raised, nothing has changed."""
    store, engine = session.store, session.engine
    _check_positions(session, request)
    limit = min(max_pending, engine.spec.limit("waiting"))
    if session.n_pending + len(request.remember) > limit:
        raise Conflict(f"{session.n_pending:,} rows wait for their labels; at most {limit:,.0f} may wait.")
    n_learned = 0
    if request.learn is not None:
        n_learned = _learn(session, request.learn, now, skips_known=request.skips_known)
    # After this line, message contents cannot raise errors: refused labels are stored with the reason.
    rows = list(request.remember)
    if request.skips_known:
        learned = set(store.known_ids(engine.name, [row.id for row in rows]))
        rows = [row for row in rows if row.id not in learned]
    if rows:
        session.remember(rows, max_pending)
    ids = [row.id for row in rows]
    waiting = store.early_labels(engine.name, ids) if ids else {}
    n_labelled = _label(session, {**waiting, **request.labels}, now)
    store.drop_early_labels(engine.name, request.unused)
    after = {part: position for part, (_, position) in request.moves.items()}
    store.put_positions(engine.name, request.topic, after)
    counts = {"learned": n_learned, "labelled": n_labelled, "remembered": len(ids)}
    return {**counts, "version": engine.version}


def _check_positions(session: ModelSession, request: Consume) -> None:
    stored = session.store.positions(session.engine.name, request.topic, committed=False)
    for part, (before, _) in request.moves.items():
        if stored.get(part) != before:
            raise PositionMoved(
                f"the position in {request.topic!r} is {stored.get(part)!r}, not {before!r}; "
                "nothing was changed.",
                hint="read the topic again from the stored position",
            )


def _learn(session: ModelSession, batch: ColumnBatch, now: float, *, skips_known: bool) -> int:
    spec = session.engine.spec
    if skips_known and spec.id is not None and spec.id in batch.columns:
        batch = _new_rows(session, batch, spec.id)
    if spec.quarantines and batch.n_rows:
        batch = session.quarantine(batch, now=now)
    if batch.n_rows:
        wire.check_known_values(spec, session.engine.encoder, batch)
        session.learn(batch, now=now)
    return batch.n_rows


def _new_rows(session: ModelSession, batch: ColumnBatch, column: str) -> ColumnBatch:
    """Return the rows with new ids, which are neither in the store nor repeated in the batch."""
    ids = wire.identifiers(batch, column)
    seen = set(session.store.known_ids(session.engine.name, [row_id for row_id in ids if row_id]))
    is_new = []
    for row_id in ids:
        is_new.append(row_id is None or row_id not in seen)
        if row_id is not None:
            seen.add(row_id)
    return batch if all(is_new) else wire.select(batch, np.array(is_new))


def _label(session: ModelSession, labels: Mapping[str, Any], now: float) -> int:
    """Learn pending rows with their labels; store labels that are refused or have no pending row."""
    if not labels:
        return 0
    store, name = session.store, session.engine.name
    found = store.pending(name, list(labels))
    known = {row.id for row in found}
    others = [row_id for row_id in labels if row_id not in known]
    learned = set(store.known_ids(name, others))
    reasons: dict[str, str | None] = {
        row_id: "this row was learned with a label before" if row_id in learned else None for row_id in others
    }
    reasons |= _learn_labels(session, found, labels, now)
    store.drop_early_labels(name, [row_id for row_id in labels if row_id not in reasons])
    store.put_early_labels(
        name, [EarlyLabel(row_id, now, labels[row_id], reason) for row_id, reason in reasons.items()]
    )
    return len(labels) - len(reasons)


def _learn_labels(
    session: ModelSession, rows: Sequence[PendingRow], labels: Mapping[str, Any], now: float
) -> dict[str, str]:
    """Learn pending rows; return the error messages of refused rows, keyed by row id."""
    try:
        if rows:
            session.label(rows, labels, now=now)
    except SteelyardError as error:
        if len(rows) == 1:
            return {rows[0].id: error.summary}
        half = len(rows) // 2
        refused = _learn_labels(session, rows[:half], labels, now)
        return refused | _learn_labels(session, rows[half:], labels, now)
    return {}


def pending_rows(spec: Spec, batch: ColumnBatch, answers: Predictions | None, now: float) -> list[PendingRow]:
    """Return rows and their predictions, if any, as :class:`PendingRow` objects that wait for labels."""
    if spec.rows == "none":
        raise Conflict('this model stores no rows (rows = "none"), so no row can wait for its label.')
    if spec.subject is not None and spec.subject not in batch.columns:
        raise DataError(f"rows to remember need the subject column {spec.subject!r}.")
    if spec.time is not None and spec.time in batch.columns:
        present = [time is not None for time in wire.texts(batch, spec.time)]
        times = wire.times(wire.select(batch, np.array(present)), spec.time)
        wire.check_not_in_future(times, spec.time, now + spec.max_future_seconds)
    id_column = spec.id if spec.id in batch.columns else None
    ids = [row_id or uuid.uuid4().hex for row_id in wire.identifiers(batch, id_column)]
    if len(set(ids)) < len(ids):
        raise DataError("two of the rows have the same id; nothing was changed.", hint="ids must be unique")
    subjects = wire.identifiers(batch, spec.subject)
    labels = [] if answers is None else answers.labels.tolist()
    rows = []
    for row, row_id in enumerate(ids):
        predicted: dict[str, Any] = {}
        if answers is not None:
            scores, classes = np.asarray(answers.scores[row]), list(answers.classes)
            predicted = {"label": labels[row], "scores": scores, "classes": classes}
        values = wire.fill_missing(batch.take(row, row + 1), {spec.id: row_id, spec.time: now})
        rows.append(PendingRow(row_id, now, subjects[row], wire.pack(values, predicted)))
    return rows
