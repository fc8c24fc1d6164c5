"""Explanations of predictions and of recent alarms, and the importance of columns."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from steelyard.service.http.responses import Problem
from steelyard.service.http.routes import MODEL, route
from steelyard.service.published import PublishedModel
from steelyard.streams.predictions import Predictions
from steelyard.tables.columns import ColumnBatch

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

_MAX_ROWS = 1000  # maximum number of rows in a request
_MAX_ALARMS = 10  # maximum number of alarms per model, kept in memory
_IMPORTANCE_SECONDS = 10.0  # minimum time between two computations of the importance of columns
_MAX_COLUMNS = 30  # maximum length of the list of important columns


@dataclass
class _Alarm:
    at: float
    label: str  # the prediction; with a target rate of alarms it can differ from the sign of the score
    row: ColumnBatch
    explanation: dict[str, Any] | None = None  # computed at the first request


class RecentAlarms:
    """Recent alarms of each model: rows whose predicted class is not the most frequent class.

    Rows are kept in memory only. A forget request removes all alarms of its model in all processes: every
    process drops the alarms that are older than the latest certificate.
    """

    def __init__(self) -> None:
        self._alarms: dict[str, deque[_Alarm]] = {}
        self._importance: dict[str, tuple[float, list[dict[str, Any]]]] = {}

    def add(self, published: PublishedModel, batch: ColumnBatch, answers: Predictions, at: float) -> None:
        """Add the alarms among the predictions ``answers`` of the rows ``batch``."""
        usual = published.most_frequent_class
        is_alarm = np.array([str(label) != usual for label in answers.predicted], dtype=bool)
        if usual is None or not is_alarm.any():
            return
        rows = np.flatnonzero(is_alarm[answers.indices] & (answers.indices >= 0))[-_MAX_ALARMS:]
        alarms = self._alarms.setdefault(published.name, deque(maxlen=_MAX_ALARMS))
        labels = answers.predicted
        alarms.extend(
            _Alarm(at, str(labels[answers.indices[row]]), batch.take(row, row + 1)) for row in rows.tolist()
        )

    def drop(self, name: str, until: float = np.inf) -> None:
        """Remove the alarms of a model that were raised up to a time."""
        kept = [alarm for alarm in self._alarms.get(name, ()) if alarm.at > until]
        self._alarms[name] = deque(kept, maxlen=_MAX_ALARMS)

    def explain(self, published: PublishedModel, forgotten_at: float) -> dict[str, Any]:
        """Return the alarms of a model with explanations, newest first, and the importance of its columns."""
        self.drop(published.name, forgotten_at)
        alarms = list(self._alarms[published.name])[::-1]
        for alarm in (one for one in alarms if one.explanation is None):
            found = published.explain(alarm.row)[0]
            # With a target rate, a change that makes the score positive does not lead away from the alarm.
            changes = [one for one in found.get("changes", ()) if str(one["label"]) != alarm.label]
            alarm.explanation = found | {"changes": changes}
        known = self._importance.get(published.name)
        if known is None or time.monotonic() - known[0] > _IMPORTANCE_SECONDS:
            known = self._importance[published.name] = time.monotonic(), published.importance()
        return {
            "version": published.version,
            "alarms": [
                {"at": alarm.at, **(alarm.explanation or {}), "label": alarm.label} for alarm in alarms
            ],
            "importance": known[1][:_MAX_COLUMNS],
        }


@route("POST", f"{MODEL}/explain", "predict", response="Explained", body="Rows", takes_rows=True)
async def explain(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Explain predictions: contributions of columns."""
    published = service.model(name)
    batch = await service.rows(await service.read_body(request), request, published)
    if batch.n_rows > _MAX_ROWS:
        raise Problem(413, f"a request can explain at most {_MAX_ROWS:,} rows; got {batch.n_rows:,}.")
    found = await run_in_threadpool(published.explain, batch)
    return {"explanations": found, "version": published.version}


@route("GET", f"{MODEL}/explanations", "predict", response="Explanations")
async def explanations(service: Service, _: Request, name: str) -> dict[str, Any]:
    """Return recent alarms with explanations, and the importance of columns."""
    published = service.model(name)
    certificates = await run_in_threadpool(service.writer.store.certificates, name, 1)
    forgotten_at = max((float(one["at"]) for one in certificates), default=-np.inf)
    return await run_in_threadpool(service.alarms.explain, published, forgotten_at)
