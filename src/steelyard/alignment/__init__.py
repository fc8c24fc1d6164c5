"""Kernel boundary alignment: an SVM whose kernel is transformed near the decision boundary.

Modules: ``view`` computes kernel values after the transformations so far. ``boundary`` (KBA) and
``conformal`` (ACT) contain the two transformations, ``holdout`` the validation loss, ``rough`` an approximate
SVM solver for validation, and ``machine`` the training rounds and the binary model of one binary problem.
"""

from steelyard.alignment.classifier import AlignedSVC
from steelyard.alignment.machine import Round

__all__ = ["AlignedSVC", "Round"]
