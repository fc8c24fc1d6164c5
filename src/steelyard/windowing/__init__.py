"""Wrappers that forget old rows and limit the part of a stream that an estimator has learned.

:class:`SlidingWindow` keeps the newest rows. :class:`ExponentialDecay` reduces the weight of a row with its
age. :class:`AdaptiveWindows` maintains windows of several lengths and predicts with the most accurate one.
:class:`Refit` fits any classifier again on the newest rows.
"""

from steelyard._deprecation import former_names
from steelyard.windowing.adaptive import AdaptiveWindows
from steelyard.windowing.decay import ExponentialDecay
from steelyard.windowing.refit import Refit
from steelyard.windowing.sliding import SlidingWindow

__all__ = ["AdaptiveWindows", "ExponentialDecay", "Refit", "SlidingWindow"]

__getattr__ = former_names(__name__, DriftWindows="AdaptiveWindows", Fading="ExponentialDecay")
