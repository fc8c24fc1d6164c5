"""Kernel boundary alignment: an SVM whose kernel is reshaped around the boundary of the rarer class.

``view`` (rows as the current kernel sees them), ``boundary`` and ``conformal`` (the two ways to reshape),
``holdout`` (judging on held-out rows), ``rough`` (machines that only judge), ``machine`` (one side against
the other), ``classifier``.
"""

from steelyard.alignment.classifier import AlignedSVC
from steelyard.alignment.machine import Round

__all__ = ["AlignedSVC", "Round"]
