"""Demonstration stream with changing class imbalance and one concept drift."""

from __future__ import annotations

from steelyard.streams.generators import Drift, Gaussians
from steelyard.streams.schedules import ImbalanceSchedule


def demo_stream(n_rows: int = 60_000, *, chunk: int = 500, seed: int = 7) -> Gaussians:
    """Return a stream of two Gaussian classes in ten dimensions, with one concept drift.

    The share of the rare class oscillates between 1 % and 50 %.

    Parameters
    ----------
    n_rows : int, default=60000
        Number of rows; the oscillation and the position of the drift scale with it.
    chunk : int, default=500
        Rows per chunk.
    seed : int, default=7
        Random seed.

    Returns
    -------
    Gaussians
    """
    stream = Gaussians(
        n_rows,
        n_features=10,
        distance=1.5,
        drifts=[Drift(2 * n_rows // 3, width=n_rows // 60)],
        schedule=ImbalanceSchedule.sine(0.01, 0.5, period=max(1, n_rows // 2)),
        chunk=chunk,
        seed=seed,
    )
    stream.name = "the built-in stream: oscillating imbalance and one drift"
    return stream
