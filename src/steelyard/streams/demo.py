"""The built-in stream: what goes wrong in real life, in a minute."""

from __future__ import annotations

from steelyard.streams.generators import Drift, Gaussians
from steelyard.streams.schedules import ImbalanceSchedule

__all__ = ["demo_stream"]


def demo_stream(n_rows: int = 60_000, *, chunk: int = 500, seed: int = 7) -> Gaussians:
    """Two clouds in ten dimensions; the share of one swings between 1 % and 50 %, and once both move.

    Parameters
    ----------
    n_rows : int, default=60000
        How many rows there are; shares and drift stretch with it.
    chunk : int, default=500
        Rows in a chunk.
    seed : int, default=7
        The same seed gives the same rows.

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
    stream.name = "the built-in stream: an imbalance that swings, and one drift"
    return stream
