"""Saved state of StreamClassifier, including files of version 0.2."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._labels import restored_labels
from steelyard.ensemble.change_monitor import ChangeMonitor, DriftDetector
from steelyard.ensemble.decision import DecisionState, RowCosts
from steelyard.ensemble.expert_ensemble import EnsembleParams, ExpertEnsemble
from steelyard.ensemble.experts import EXPERTS
from steelyard.ensemble.mixing import ExpertWeights, OnlineCalibration
from steelyard.ensemble.multiclass import MulticlassWeights
from steelyard.ensemble.online_threshold import OnlineThreshold
from steelyard.ensemble.row_buffer import PendingRows, RowBuffer
from steelyard.ensemble.scores import LabelRun, ScoreBuffer, WeightCorrection
from steelyard.ensemble.views import RowInput, Views


def get_state(ensemble: ExpertEnsemble) -> dict[str, Any]:
    """Return the learned state as arrays, plain values and storable learners.

    Files keep the names of earlier versions, also where an attribute is called otherwise now: "seen", "low"
    (the start of the window), "judged_at" (the last weighing), "settled_at" (the last fit of the views),
    "recent" (the row buffer), "waiting" (pending rows), "watch" (drift), "evidence" (the score buffer),
    "judgement" (weights), and "cut" in the weights.
    """
    weights, decision, schema = ensemble.snapshot.weights, ensemble.decision, ensemble.input.schema
    promise = decision.online_threshold
    return {
        "labels": list(ensemble.labels),
        "class_numbers": np.flatnonzero(ensemble.counts).tolist(),
        "class_counts": ensemble.counts[ensemble.counts > 0].tolist(),
        "seen": ensemble.n_seen,
        "low": ensemble.window_start,
        "judged_at": ensemble.weighed_at,
        "settled_at": ensemble.views_at,
        "recent": ensemble.rows.get_state(with_keys=ensemble.input.keeps_wide),
        "wide": ensemble.input.keeps_wide,
        "waiting": ensemble.pending.get_state(),
        "watch": ensemble.drift.get_state(),
        "label_run": ensemble.label_run.get_state(),
        "correction": ensemble.correction.get_state(),
        "changes": ensemble.changes.get_state(),
        "evidence": ensemble.recent_scores.get_state(),
        "views": ensemble.views.get_state(),
        "experts": [expert.get_state() for expert in ensemble.copied_experts()],
        "judgement": None if weights is None else weights.get_state(),
        "row_costs": decision.row_costs.get_state(),
        "calibration": ensemble.calibration.get_state(),
        "promise": None if promise is None else promise.get_state(),
        "positive": decision.positive,
        "first_width": ensemble.input.first_width,
        "schema": None if schema is None else schema.get_state(),
    }


def restored_ensemble(state: dict[str, Any], params: EnsembleParams, row_input: RowInput) -> ExpertEnsemble:
    """Restore the ensemble from the result of :func:`get_state`; raise ValueError if it is inconsistent."""
    ensemble = ExpertEnsemble(row_input.first_width, params, row_input)
    ensemble.codes_of(restored_labels(state["labels"]), learn=True)
    ensemble.counts = np.zeros(len(ensemble.labels), dtype=np.int64)
    ensemble.counts[state["class_numbers"]] = state["class_counts"]
    ensemble.n_seen, ensemble.window_start, ensemble.weighed_at, ensemble.views_at = (
        int(state[name]) for name in ("seen", "low", "judged_at", "settled_at")
    )
    ensemble.views = Views.from_state(state["views"])
    ensemble.rows = RowBuffer.from_state(state["recent"], ensemble.views.layout)
    numbers = ensemble.rows.numbers
    is_seen = not len(numbers) or (numbers[0] >= 0 and numbers[-1] < ensemble.n_seen)
    if not 0 <= ensemble.window_start <= ensemble.n_seen or not is_seen:
        raise ValueError("rows are remembered that have not been seen yet")
    ensemble.recent_scores = ScoreBuffer.from_state(state["evidence"], len(EXPERTS))
    ensemble.drift = DriftDetector.from_state(state.get("watch", {}))
    ensemble.label_run = LabelRun.from_state(state.get("label_run"))
    ensemble.correction = WeightCorrection.from_state(state.get("correction", {}), len(EXPERTS))
    ensemble.changes = ChangeMonitor.from_state(state.get("changes", {}))
    if len(state["experts"]) > len(EXPERTS):
        raise ValueError("there are more experts than this version knows")
    stream = ensemble.stream()
    # Old files have fewer experts.
    for expert, learned in zip(ensemble.experts, state["experts"], strict=False):
        expert.set_state(_current_names(learned, state["recent"]), stream)
        if expert.rule is None and expert.is_ready(stream.views):
            expert.refresh_rule(stream)
    ensemble.snapshot = ensemble.new_snapshot(_weights(state, int(np.count_nonzero(ensemble.counts))))
    ensemble.decision = DecisionState(
        state.get("positive"),
        # Files of version 0.2 have no online threshold: it starts with the first rows that are learned.
        OnlineThreshold.from_state(state.get("promise")),
        RowCosts.from_state(state.get("row_costs")),
    )
    ensemble.calibration = OnlineCalibration.from_state(state.get("calibration"))
    ensemble.pending = PendingRows.from_state(state.get("waiting", {}), len(EXPERTS), ensemble.views.layout)
    if ensemble.pending.n_rows:
        ensemble.snapshot = ensemble.snapshot.after_labels(ensemble.pending.codes())
    return ensemble


def _current_names(expert: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an expert, completed by the fields that version 0.2 did not have."""
    offered = rows.get("offered")  # name of version 0.2 for the rows that the kernel SVM may learn
    if offered is None:
        return expert
    sampled = np.asarray(rows["numbers"])[np.asarray(offered, dtype=bool)]
    return {"sampled": sampled, "memory": expert["held"], "observed": expert["high"], **expert}


def _weights(state: dict[str, Any], n_classes: int) -> ExpertWeights | MulticlassWeights | None:
    # Files of version 0.2.0 contain a list with one entry for two classes, else one per class.
    # With more than two classes this list is dropped, and the expert weights are computed again later.
    is_early = "judgement" not in state
    saved = next(iter(state["judgements"]), None) if is_early else state["judgement"]
    if saved is None or (is_early and n_classes > 2):
        return None
    kind: Any = ExpertWeights if n_classes < 3 else MulticlassWeights
    weights: ExpertWeights | MulticlassWeights = kind.from_state(saved, len(EXPERTS))
    return weights
