"""What a learner remembers: wrappers that let old rows go.

:class:`SlidingWindow` keeps the last rows, :class:`ExponentialDecay` lets all rows weigh less as they age, and
:class:`AdaptiveWindows` chooses among memories of several lengths. ``wrappers`` holds what they share.
"""

from steelyard._deprecation import renamed_class
from steelyard.windowing.adaptive import AdaptiveWindows
from steelyard.windowing.windows import ExponentialDecay, SlidingWindow

__all__ = ["AdaptiveWindows", "ExponentialDecay", "SlidingWindow"]


def __getattr__(name: str) -> type:
    return renamed_class(__name__, {"DriftWindows": "AdaptiveWindows", "Fading": "ExponentialDecay"}, name)
