"""One line that needs no choices: a committee of exact experts, and the cut that moves with the stream.

``views`` say how experts see rows, ``recent`` holds the last rows, ``experts`` learn them and give ``rules``;
``evidence`` is what they answered before labels were known, ``cuts`` and ``panel`` make one answer of it,
and ``explain`` tells why. ``learning`` is all that changes it, ``side_by_side`` on the cores there are, and
``classifier`` answers; ``moving_cut`` is the cut alone, around any classifier.
"""

from steelyard._deprecation import renamed_class
from steelyard.ensemble.adaptive_threshold import AdaptiveThresholdClassifier
from steelyard.ensemble.classifier import StreamClassifier
from steelyard.ensemble.explain import Explanation

__all__ = ["AdaptiveThresholdClassifier", "Explanation", "StreamClassifier"]


def __getattr__(name: str) -> type:
    return renamed_class(__name__, {"MovingCut": "AdaptiveThresholdClassifier"}, name)
