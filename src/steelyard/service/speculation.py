"""Rows that are learned while others are being written: written, shown and answered in their own turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steelyard.service import rows as wire
from steelyard.service.commands import Learn, Request
from steelyard.service.engine import Published
from steelyard.service.queue import RequestQueue
from steelyard.service.session import ModelSession, TakenIn
from steelyard.tables.columns import ColumnBatch

__all__ = ["SpeculativeBatch", "next_rows", "together"]

_MANY_ROWS = 200  # that wait together are worth it


@dataclass
class SpeculativeBatch:
    """Requests whose rows were learned while others were being written."""

    requests: list[Request]
    before: Published | None = None  # the model as the others have left it
    taken: TakenIn | None = None  # None: to be learned when it is their turn


def next_rows(line: RequestQueue, sessions: Mapping[str, ModelSession], most: int) -> list[Learn]:
    """Requests at the head of the line that can be learned ahead, taken from it: many rows for one model."""
    waiting = line.first(most)
    alike: list[Learn] = []
    for request in waiting:
        if not isinstance(request, Learn) or request.key is not None or request.model != waiting[0].model:
            break
        alike.append(request)
    session = sessions.get(alike[0].model) if alike else None
    if session is None or not session.takes_in_alone or sum(r.batch.n_rows for r in alike) < _MANY_ROWS:
        return []
    line.take(len(alike))
    return [request for request in alike if request.future.begin()]


def together(session: ModelSession, requests: Sequence[Learn]) -> ColumnBatch:
    """The rows of several requests; each of them must have what the model wants."""
    rows = wire.joined([r.batch for r in requests])
    for request in () if wire.are_alike(rows) else requests:
        session.engine.check_rows(request.batch, labelled=True)
    return rows
