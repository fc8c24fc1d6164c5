"""Buffer of single rows that are learned together, because each update has a fixed cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard.ensemble.row_buffer import Block, wide_from_state, wide_state
from steelyard.ensemble.score_buffer import with_new_experts

__all__ = ["PendingRows"]


@dataclass(frozen=True)
class PendingRows:
    """Rows that have been scored but not yet learned; immutable.

    Only the label frequency experts use these rows immediately.
    """

    blocks: tuple[Block, ...] = ()
    scores: tuple[FloatArray, ...] = ()
    n_rows: int = 0

    def __len__(self) -> int:
        return self.n_rows

    def added(self, block: Block, scores: FloatArray) -> PendingRows:
        """Return these rows with another block appended."""
        return PendingRows((*self.blocks, block), (*self.scores, scores), self.n_rows + len(block))

    def widened(self, n_columns: int) -> PendingRows:
        """Return these rows padded with columns of missing values."""
        return PendingRows(tuple(block.widened(n_columns) for block in self.blocks), self.scores, self.n_rows)

    def together(self) -> tuple[Block, FloatArray]:
        """Return all rows as one block, and their scores."""
        return self.blocks[0].joined(*self.blocks[1:]), np.concatenate(self.scores)

    def codes(self) -> list[int]:
        """Return the class codes of all rows."""
        return [code for block in self.blocks for code in block.codes.tolist()]

    def get_state(self) -> dict[str, Any]:
        """Return the rows and their scores as arrays."""
        if not self.blocks:
            return {}
        block, scores = self.together()
        parts = {"X": block.X, "codes": block.codes, "weights": block.weights, "times": block.times}
        wide = {} if block.wide is None else {"wide": wide_state(block.wide)}
        return {**parts, **wide, "scores": scores}

    @classmethod
    def from_state(cls, state: dict[str, Any], n_experts: int, n_first: int | None = None) -> PendingRows:
        """Restore the rows from the result of :meth:`get_state`; raise ValueError if inconsistent."""
        if not state:
            return cls()
        X, codes, weights, times, scores = (
            np.asarray(state[name]) for name in ("X", "codes", "weights", "times", "scores")
        )
        n = len(codes)
        scores = with_new_experts(scores, n_experts, np.nan, axis=1)
        if X.ndim != 2 or scores.ndim != 3 or {len(part) for part in (X, weights, times, scores)} != {n}:
            raise ValueError("pending rows, their labels and scores must have the same length")
        X = np.ascontiguousarray(X, dtype=np.float64)
        wide = wide_from_state(state["wide"], n) if "wide" in state else None
        return cls((Block.from_rows(X, codes, weights, times, n_first=n_first, wide=wide),), (scores,), n)
