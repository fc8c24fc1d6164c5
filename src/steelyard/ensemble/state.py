"""Saved state of StreamClassifier, also from files of version 0.2."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard._labels import restored_labels
from steelyard.ensemble.calibration import OnlineCalibration
from steelyard.ensemble.change_monitor import ChangeMonitor
from steelyard.ensemble.drift import DriftDetector
from steelyard.ensemble.experts import EXPERTS
from steelyard.ensemble.mixing import ExpertWeights
from steelyard.ensemble.multiclass import MulticlassWeights
from steelyard.ensemble.online_threshold import OnlineThreshold
from steelyard.ensemble.pending import PendingRows
from steelyard.ensemble.row_buffer import RowBuffer
from steelyard.ensemble.row_costs import RowCosts
from steelyard.ensemble.score_buffer import PredictedScores, ScoreBuffer
from steelyard.ensemble.snapshot import EnsembleSnapshot
from steelyard.ensemble.stacking import WeightCorrection
from steelyard.ensemble.views import HashedView, Views
from steelyard.tables.schema import Schema

if TYPE_CHECKING:
    from steelyard.ensemble.stream_classifier import StreamClassifier

__all__ = ["get_state", "set_state"]


def get_state(model: StreamClassifier) -> dict[str, Any]:
    """Return the learned state as arrays, plain values and storable learners."""
    weights = model._snapshot.weights
    keeps_wide = isinstance(model._hashed, HashedView) and model._hashed.keeps_wide
    return {
        **model._features(),
        "labels": list(model._labels),
        "class_numbers": np.flatnonzero(model._counts).tolist(),
        "class_counts": model._counts[model._counts > 0].tolist(),
        "seen": model._n_seen,
        "low": model._low,
        "judged_at": model._weighed_at,
        "settled_at": model._views_at,
        "recent": model._rows.get_state(with_keys=keeps_wide),
        "wide": keeps_wide,
        "waiting": model._pending.get_state(),
        "watch": model._drift.get_state(),
        "correction": model._correction.get_state(),
        "changes": model._changes.get_state(),
        "evidence": model._recent_scores.get_state(),
        "views": model._views.get_state(),
        "experts": [expert.get_state() for expert in model._copied_experts()],
        "judgement": None if weights is None else weights.get_state(),
        "row_costs": model._row_costs.get_state(),
        "calibration": model._calibration.get_state(),
        "promise": None if model._online_threshold is None else model._online_threshold.get_state(),
        "positive": model._positive,
        "first_width": model._first_width,
        "schema": None if model._schema is None else model._schema.get_state(),
    }


def set_state(model: StreamClassifier, state: dict[str, Any]) -> None:
    """Restore a state that :func:`get_state` returned; raise ValueError if it is inconsistent."""
    model._set_features(state)
    model._schema = Schema.from_state(state["schema"]) if state.get("schema") else None
    model._first_width = int(state.get("first_width", model.n_features_in_))
    model._hashed = model._hashed_view(model._first_width)
    if isinstance(model._hashed, HashedView):
        model._hashed = replace(model._hashed, keeps_wide=bool(state.get("wide", False)))
    model._labels = restored_labels(state["labels"])
    model._positive = state.get("positive")
    model._code_of = {label: code for code, label in enumerate(model._labels)}
    model._counts = np.zeros(len(model._labels), dtype=np.int64)
    model._counts[state["class_numbers"]] = state["class_counts"]
    model._n_seen, model._low, model._weighed_at, model._views_at = (
        int(state[name]) for name in ("seen", "low", "judged_at", "settled_at")
    )
    model._views = Views.from_state(state["views"])
    n_first = None if model._views.layout is None else model._views.layout.n_first
    model._rows = RowBuffer.from_state(state["recent"], n_first)
    numbers = model._rows.numbers
    is_seen = not len(numbers) or (numbers[0] >= 0 and numbers[-1] < model._n_seen)
    if not 0 <= model._low <= model._n_seen or not is_seen:
        raise ValueError("rows are remembered that have not been seen yet")
    model._recent_scores = ScoreBuffer.from_state(state["evidence"], len(EXPERTS))
    model._drift = DriftDetector.from_state(state.get("watch", {}))
    model._correction = WeightCorrection.from_state(state.get("correction", {}), len(EXPERTS))
    model._changes = ChangeMonitor.from_state(state.get("changes", {}))
    model._experts = [config.make(config) for config in EXPERTS]
    if len(state["experts"]) > len(EXPERTS):
        raise ValueError("there are more experts than this version knows")
    stream = model._stream()
    for expert, learned in zip(model._experts, state["experts"], strict=False):  # older files have fewer
        expert.set_state(_current_names(learned, state["recent"]), stream)
    classes = model._class_codes()
    rules = [expert.rule for expert in model._experts]
    model._snapshot = EnsembleSnapshot(classes, rules, _weights(state, len(classes)), model._views)
    model._predicted = PredictedScores()
    model._row_costs = RowCosts.from_state(state.get("row_costs"))
    model._calibration = OnlineCalibration.from_state(state.get("calibration"))
    # Files of version 0.2 have no online threshold: it starts with the first rows that are learned.
    model._online_threshold = OnlineThreshold.from_state(state.get("promise"))
    model._pending = PendingRows.from_state(state.get("waiting", {}), len(EXPERTS), n_first)
    if len(model._pending):
        model._snapshot = model._snapshot.after_labels(model._pending.codes())


def _current_names(expert: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an expert with the fields that version 0.2 did not have."""
    offered = rows.get("offered")  # version 0.2 marked the rows that the kernel SVM may learn
    if offered is None:
        return expert
    sampled = np.asarray(rows["numbers"])[np.asarray(offered, dtype=bool)]
    return {"sampled": sampled, "memory": expert["held"], "observed": expert["high"], **expert}


def _weights(state: dict[str, Any], n_classes: int) -> ExpertWeights | MulticlassWeights | None:
    # Files of version 0.2.0 contain a list with one entry per plane; with more than two classes it is
    # dropped, and the experts are weighed again later.
    is_early = "judgement" not in state
    saved = [*state["judgements"], None][0] if is_early else state["judgement"]
    if saved is None or (is_early and n_classes > 2):
        return None
    kind: Any = ExpertWeights if n_classes < 3 else MulticlassWeights
    weights: ExpertWeights | MulticlassWeights = kind.from_state(saved, len(EXPERTS))
    return weights
