"""Explanations of predictions: what each column contributes to a score, nearest rows, and changes."""

from steelyard.explanation.neighbors import Change, NearRow
from steelyard.explanation.rows import RowExplanations

__all__ = ["Change", "NearRow", "RowExplanations"]
