"""What a learner remembers: wrappers that let old rows go.

:class:`SlidingWindow` keeps the last rows, :class:`Fading` lets all rows weigh less as they age, and
:class:`DriftWindows` chooses among memories of several lengths. ``wrappers`` holds what they share.
"""

from steelyard.memory.drift_windows import DriftWindows
from steelyard.memory.windows import Fading, SlidingWindow

__all__ = ["DriftWindows", "Fading", "SlidingWindow"]
