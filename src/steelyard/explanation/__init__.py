"""Explanations of predictions: contributions, nearest rows, and changes that lead to other predictions."""

from steelyard.explanation.neighbors import Change, NearRow
from steelyard.explanation.rows import RowExplanations

__all__ = ["Change", "NearRow", "RowExplanations"]
