"""Output of ``steelyard stream --versus``: the better model, and how often it is better."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialResult

# The measures for two classes do not depend on thresholds, so that unsuitable thresholds are not penalised.
_MEASURES = {"average_precision": "average precision", "auc": "AUC", "brier": "Brier score (lower is better)"}
_MEASURES_OF_MANY = {"macro_recall": "mean recall", "log_loss": "log-loss (lower is better)"}


def versus_sentences(result: PrequentialResult, n_peers: int) -> list[str]:
    """Return one line for each measure and each pair of a model and a peer.

    The peers are the last ``n_peers`` models. A line contains the measure of both over all rows, and the
    number of windows in which the model is better than the peer. The counted windows do not overlap.
    """
    names = list(result.models)
    measures = _MEASURES if result.positive is not None else _MEASURES_OF_MANY
    return [
        line
        for peer in names[len(names) - n_peers :]
        for model in names[: len(names) - n_peers]
        for measure, text in measures.items()
        if (line := _sentence(result, model, peer, measure, text)) is not None
    ]


def _sentence(result: PrequentialResult, model: str, peer: str, measure: str, text: str) -> str | None:
    from steelyard.evaluation.tracking import LOSSES

    ours, theirs = (result.totals(name).get(measure, math.nan) for name in (model, peer))
    if math.isnan(ours) or math.isnan(theirs):
        return None
    sign = -1 if measure in LOSSES else 1
    verdict = (
        "equal" if f"{ours:.3f}" == f"{theirs:.3f}" else "better" if sign * (ours - theirs) > 0 else "worse"
    )
    better, n_windows = _windows(result, model, peer, measure, sign)
    windows = (
        f"; better in {better:,} of {n_windows:,} windows of {result.window:,} rows" if n_windows else ""
    )
    return f"{model} against {peer}, {text}: {ours:.3f} and {theirs:.3f}, {verdict}{windows}"


def _windows(result: PrequentialResult, model: str, peer: str, measure: str, sign: int) -> tuple[int, int]:
    """Return the number of disjoint windows in which the model is better, and the number of all windows."""
    of_peer = {record["row"]: record[measure] for record in result.records(peer)}
    better = n_windows = 0
    free_from = 0
    for record in result.records(model):
        difference = sign * (record[measure] - of_peer.get(record["row"], math.nan))
        if record["row"] - result.window >= free_from and not math.isnan(difference):
            free_from = record["row"]
            n_windows += 1
            better += difference > 0
    return better, n_windows
