"""Explanations of predictions: contributions of columns, nearest rows, and changes of the prediction."""

from steelyard.explanation.neighbors import Change, NearRow
from steelyard.explanation.rows import RowExplanations

__all__ = ["Change", "NearRow", "RowExplanations"]
