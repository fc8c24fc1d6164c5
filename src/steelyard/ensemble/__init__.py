"""StreamClassifier, an ensemble of experts for imbalanced streams, and the adaptive decision threshold.

``stream_classifier`` defines the public class, and ``row_input`` converts its input. ``expert_ensemble``
holds the learned state and learns a block of rows in the five steps score, record, update, weigh and publish.
``experts`` contains one file per kind of expert. ``row_buffer`` stores the rows and ``score_buffer`` the out-
of-sample scores. ``views`` and ``layout`` transform rows, ``trees`` has the tree models, ``change_monitor``
detects drift, ``explanation`` describes the model, and ``state`` saves it. ``mixing`` and ``multiclass``
combine scores; ``snapshot`` has the immutable state used for prediction. ``decision`` turns scores into
labels, for StreamClassifier and for the wrapper in ``adaptive_threshold``: read it before
``online_threshold`` (target rates) and ``calibration``. Constants that several modules use are in
``settings``, the others at the top of their module.
"""

from steelyard._deprecation import former_names
from steelyard.ensemble.adaptive_threshold import AdaptiveThresholdClassifier
from steelyard.ensemble.explanation import Explanation
from steelyard.ensemble.stream_classifier import StreamClassifier

__all__ = ["AdaptiveThresholdClassifier", "Explanation", "StreamClassifier"]

__getattr__ = former_names(__name__, MovingCut="AdaptiveThresholdClassifier")
