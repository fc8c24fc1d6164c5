"""Drift reports of StreamClassifier."""

from __future__ import annotations

import numpy as np

from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.expert_ensemble import ExpertEnsemble
from steelyard.proximal.drift_report import ClassMoments, DriftReport, compare_moments


def labelled_report(ensemble: ExpertEnsemble, class_count: IntArray) -> DriftReport:
    """Compare the last labelled rows with earlier rows. With too few rows, no change is reported."""
    changes, has_gaps = ensemble.changes, ensemble.views.layout is not None
    _, names = ensemble.input.monitored(ensemble.rows.block.X[:0], has_gaps=has_gaps)
    report = changes.report(names)
    if report is not None:
        return report
    counts = class_count.astype(np.float64)
    shares = (counts / max(counts.sum(), 1.0)).tolist()
    both = {x: (share, share) for x, share in zip(ensemble.snapshot.labels.tolist(), shares, strict=True)}
    return DriftReport([], {}, [], both, (float(counts.sum()), 0.0), None, changes.event_list())


def unlabelled_report(ensemble: ExpertEnsemble, X: FloatArray) -> DriftReport:
    """Compare unlabelled rows and their scores with the rows in the row buffer."""
    snapshot, both = ensemble.snapshot, [ensemble.rows.block.X, X]
    has_gaps = ensemble.views.layout is not None
    (known, _), (new, names) = (ensemble.input.monitored(rows, has_gaps=has_gaps) for rows in both)
    names = names or [f"x{k}" for k in range(new.shape[1])]
    if len(snapshot.classes) == 2:
        scores = [snapshot.decide(snapshot.raw_scores(rows)) for rows in both]
        known, new = np.hstack([known, scores[0]]), np.hstack([new, scores[1]])
        names = [*names, "score"]
    before, after = (ClassMoments.of_rows(rows, np.zeros(len(rows), int), ["all"]) for rows in (known, new))
    return compare_moments(before, after, names)
