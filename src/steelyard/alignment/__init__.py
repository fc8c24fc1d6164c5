"""Kernel boundary alignment: an SVM whose kernel is transformed near the decision boundary.

Modules: ``view`` computes kernel values after the transformations so far. ``boundary`` finds the boundary
shift, ``bumps`` contains the transformations of KBA and ACT, ``rough`` an approximate SVM solver for
validation, and ``machine`` the training rounds, the validation loss and the model of one binary problem.
"""

from steelyard.alignment.classifier import AlignedSVC
from steelyard.alignment.machine import Round

__all__ = ["AlignedSVC", "Round"]
