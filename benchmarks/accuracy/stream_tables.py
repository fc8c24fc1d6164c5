"""Tables of results: means, mean ranks, and paired differences with standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata
from stream_peers import OURS

Cells = dict[str, dict[str, dict[str, Any]]]  # results by contender and stream

AUC, OWN, MOVED, COST = 0, 1, 2, 3

LEAD = 0.02  # required lead over the best peer, in mean AUC and mean G-mean
BEHIND = 0.03  # largest allowed AUC difference to the best rival on a single stream
# Kinds of rivals, and the beginning of their names.
RIVALS = {"forest": "balanced forest", "LightGBM": "LightGBM", "ARF": "MOA's ARF"}


def complete(cells: Cells, streams: Sequence[str]) -> list[str]:
    """Return the streams for which every contender has results."""
    return [s for s in streams if all("windows" in cells[name].get(s, {}) for name in cells)]


def missing(cells: Cells, streams: Sequence[str]) -> list[str]:
    """Return one line for each contender that failed and each run that is missing."""
    lines = []
    for name, row in cells.items():
        for stream in streams:
            if stream not in row:
                lines.append(f"{name} on {stream}: not run")
            elif "failed" in row[stream]:
                lines.append(f"{name} on {stream}: {row[stream]['failed']}")
    return lines


def table(cells: Cells, streams: Sequence[str], window: int) -> str:
    """Return a table of means, mean ranks (1 is best) and paired differences over ``streams``."""
    names = list(cells)
    values = np.array([[_figures(cells[name][s], window) for s in streams] for name in names])
    ranks = {k: rankdata(-values[:, :, k], axis=0).mean(axis=1) for k in (AUC, MOVED)}
    ours = values[names.index(OURS)]
    lines = [
        "| | AUC | rank | ours - it | G-mean, own | G-mean, adaptive | rank | ours - it | us per row |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for i in np.argsort(-values[:, :, AUC].mean(axis=1)):
        auc, own, adaptive, cost = values[i].mean(axis=0)
        gaps = {k: "" if names[i] == OURS else paired(ours[:, k] - values[i, :, k]) for k in (AUC, MOVED)}
        lines.append(
            f"| {names[i]} | {auc:.3f} | {ranks[AUC][i]:.1f} | {gaps[AUC]} | {own:.3f} | {adaptive:.3f} | "
            f"{ranks[MOVED][i]:.1f} | {gaps[MOVED]} | {cost:.0f} |"
        )
    return "\n".join(lines)


def verdicts(cells: Cells, streams: Sequence[str], peers: Sequence[str], window: int) -> str:
    """Return one line per target of StreamClassifier, with the numbers and whether the target is reached.

    Only ``peers``, the contenders of other libraries, are compared.
    """
    names = [OURS, *peers]
    values = np.array([[_figures(cells[name][s], window) for s in streams] for name in names])
    means, said = values.mean(axis=1), []
    for k, what in ((AUC, "AUC"), (MOVED, "G-mean")):
        best = 1 + int(np.argmax(means[1:, k]))
        lead = means[0, k] - means[best, k]
        line = f"{what} {means[0, k]:.4f}, best peer {means[best, k]:.4f} ({names[best]}): {lead:+.4f}"
        said.append((f"{line}, asked {LEAD:+.2f}", lead >= LEAD))
    for k, what in ((AUC, "AUC"), (MOVED, "G-mean")):
        ranks = rankdata(-values[:, :, k], axis=0).mean(axis=1)
        best = 1 + int(np.argmin(ranks[1:]))
        line = f"mean rank in {what} {ranks[0]:.2f}, best peer {ranks[best]:.2f} ({names[best]})"
        said.append((line, ranks[0] < ranks[best]))
    kinds = {kind: [i for i, name in enumerate(names) if name.startswith(b)] for kind, b in RIVALS.items()}
    rivals = sorted(i for found in kinds.values() for i in found)
    if rivals:
        gaps = values[0, :, AUC] - values[rivals, :, AUC].max(axis=0)
        below = [f"{s} {gap:+.3f}" for gap, s in sorted(zip(gaps, streams, strict=True)) if gap < -BEHIND]
        line = (
            f"streams more than {BEHIND} behind the best of {', '.join(k for k in kinds if kinds[k])} in AUC"
        )
        said.append((f"{line}: {', '.join(below) or 'none'} (worst {gaps.min():+.3f})", not below))
        cost = {kind: min(means[i, COST] for i in found) for kind, found in kinds.items() if found}
        told = ", ".join(f"{kind} {us:.0f}" for kind, us in cost.items())
        line = f"us per row {means[0, COST]:.0f}; cheapest of each kind: {told}"
        said.append((f"{line}; asked no more than the cheapest", means[0, COST] <= min(cost.values())))
        if "forest" in cost:
            said.append((f"{line}; asked half of the forest's", means[0, COST] <= cost["forest"] / 2))
    return "\n".join(f"- {'holds' if holds else 'missed'}: {line}" for line, holds in said)


def paired(differences: np.ndarray) -> str:
    """Return mean and standard error of the paired differences."""
    if len(differences) < 2:
        return f"{differences.mean():+.3f}"
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return f"{differences.mean():+.3f} ± {error:.3f}"


def by_stream(cells: Cells, streams: Sequence[str], peers: Sequence[str], window: int) -> str:
    """Return a table of AUC and G-mean (adaptive threshold) by stream: ours, and the best of the others."""
    lines = ["| stream | AUC | best other | | G-mean | best other | |", "|---|---|---|---|---|---|---|"]
    for stream in streams:
        row = []
        for k in (AUC, MOVED):
            figures = {name: _figures(cells[name][stream], window)[k] for name in (OURS, *peers)}
            best = max(peers or [OURS], key=lambda name: figures[name])
            row += [f"{figures[OURS]:.3f}", f"{figures[best]:.3f}", best]
        lines.append(f"| {stream} | {' | '.join(row)} |")
    return "\n".join(lines)


def _figures(cell: dict[str, Any], window: int) -> list[float]:
    return [*cell["windows"][str(window)], cell["us"]]
