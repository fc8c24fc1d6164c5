"""StreamClassifier, an ensemble of experts for imbalanced streams, and the adaptive decision threshold.

``stream_classifier`` defines the public class. ``expert_ensemble`` holds the learned state and learns a block
of rows in the five steps score, record, update, weigh and publish. ``experts`` contains the experts, one file
per kind of model. ``row_buffer`` stores the rows and ``scores`` the out-of-sample scores. ``views`` and
``layout`` convert and transform rows, ``change_monitor`` detects drift, ``explanation`` describes the model,
and ``state`` saves it. ``mixing`` and ``multiclass`` calibrate and combine scores. ``decision`` turns scores
into labels, for StreamClassifier and for the wrapper in ``adaptive_threshold``: read it before
``online_threshold``, which keeps target rates. Constants that several modules use are in ``settings``, the
others at the top of their module.
"""

from steelyard._deprecation import former_names
from steelyard.ensemble.adaptive_threshold import AdaptiveThresholdClassifier
from steelyard.ensemble.explanation import Explanation
from steelyard.ensemble.stream_classifier import StreamClassifier

__all__ = ["AdaptiveThresholdClassifier", "Explanation", "StreamClassifier"]

__getattr__ = former_names(__name__, MovingCut="AdaptiveThresholdClassifier")
