"""Rows, specs and a clock for the tests of the service."""

from __future__ import annotations

import numpy as np

from steelyard.service import Spec

SPEC = {"target": "fraud", "subject": "customer", "id": "row"}


def spec(**changes):
    return Spec.from_mapping({**SPEC, **changes})


def records(n, seed=0, first=0):
    """Return labelled rows with a number, a category, a customer and an id."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(first, first + n):
        fraud = int(rng.random() < 0.3)
        rows.append(
            {
                "amount": round(float(rng.normal(2.0 * fraud)), 3),
                "country": ["DE", "FR", "NZ"][int(rng.integers(3))],
                "customer": f"c{int(rng.integers(8))}",
                "row": f"r{k}",
                "fraud": fraud,
            }
        )
    return rows


class Clock:
    """Clock with a settable time."""

    def __init__(self, now=1_000.0):
        self.now = now

    def __call__(self):
        return self.now


def n_unused_labels(store, model="m"):
    """Return the number of stored labels that wait for their rows or were refused."""
    return len(store.unused_labels(model, np.inf, 10_000))
