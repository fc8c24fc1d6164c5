"""Single rows wait for each other: what a row brings with it costs more than the row.

A row that comes alone is scored at once, as every row is before it is learned, and its label counts at once
for the expert that follows labels. The other experts would wait for more rows anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard.ensemble.evidence import with_newcomers
from steelyard.ensemble.recent import Block

__all__ = ["Waiting"]


@dataclass(frozen=True)
class Waiting:
    """Rows that were scored and are not learned yet; it never changes."""

    blocks: tuple[Block, ...] = ()
    scores: tuple[FloatArray, ...] = ()
    n_rows: int = 0

    def __len__(self) -> int:
        return self.n_rows

    def joined_by(self, block: Block, scores: FloatArray) -> Waiting:
        """With another one at the end."""
        return Waiting((*self.blocks, block), (*self.scores, scores), self.n_rows + len(block))

    def together(self) -> tuple[Block, FloatArray]:
        """All rows and their scores."""
        X, ranks, codes, weights = (
            np.concatenate([getattr(block, name) for block in self.blocks])
            for name in ("X", "ranks", "codes", "weights")
        )
        # They have no numbers yet, nor times, and nobody has been spared any.
        block = replace(Block.of_ones(len(codes)), X=X, ranks=ranks, codes=codes, weights=weights)
        return block, np.concatenate(self.scores)

    def codes(self) -> list[int]:
        """Class numbers of the rows."""
        return [code for block in self.blocks for code in block.codes.tolist()]

    def get_state(self) -> dict[str, Any]:
        """The rows."""
        if not self.blocks:
            return {}
        block, scores = self.together()
        parts = {"X": block.X, "codes": block.codes, "weights": block.weights, "times": block.times}
        return {**parts, "scores": scores}

    @classmethod
    def from_state(cls, state: dict[str, Any], n_experts: int) -> Waiting:
        """What ``get_state`` describes, without ranks; ValueError if it makes no sense."""
        if not state:
            return cls()
        X, codes, weights, times, scores = (
            np.asarray(state[name]) for name in ("X", "codes", "weights", "times", "scores")
        )
        n = len(codes)
        scores = with_newcomers(scores, n_experts, np.nan, axis=1)
        if X.ndim != 2 or scores.ndim != 3 or {len(part) for part in (X, weights, times, scores)} != {n}:
            raise ValueError("rows that wait, their labels and scores must be of one length")
        numbers, offered = np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool)
        return cls((Block(X, X[:, :0], codes, weights, times, numbers, offered),), (scores,), n)
