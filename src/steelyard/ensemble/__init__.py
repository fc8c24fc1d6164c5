"""StreamClassifier, an ensemble of experts for imbalanced streams, and the adaptive decision threshold.

``stream_classifier`` defines the public class. ``expert_ensemble`` holds the learned state and learns a block
of rows in the five steps score, record, update, weigh and publish. ``experts`` contains the experts, one file
per kind of model. ``row_buffer`` stores the rows and ``scores`` the out-of-sample scores. ``views`` and
``layout`` convert and transform rows, ``change_monitor`` detects drift, ``explanation`` describes the model,
and ``state`` saves it. ``mixing`` and ``multiclass`` calibrate and combine scores. ``decision`` turns scores
into labels, for StreamClassifier and for the wrapper in ``adaptive_threshold``: read it before
``online_threshold``, which keeps target rates. Constants that several modules use are in ``settings``, the
others at the top of their module.

Words of these modules: the *code* of a class is its number in the order of first occurrence. Rules have their
classes in the order of codes, snapshots in the order of labels. With scores, *places* are indices of classes
in such a list. The *number* of a row counts all rows of the stream, the *key* of a row is a hash of its
features. A *plane* is one score per row: two classes have one plane, more classes have one each. A *view* is
a fitted transformation of rows. The experts' *raw* scores are combined to *totals*, and these become
*decisions*, which are positive for the second of two classes. A *promise* is a goal of ``threshold=`` with a
target rate, and the online threshold that keeps it.
"""

from steelyard._deprecation import former_names
from steelyard.ensemble.adaptive_threshold import AdaptiveThresholdClassifier
from steelyard.ensemble.explanation import Explanation
from steelyard.ensemble.stream_classifier import StreamClassifier

__all__ = ["AdaptiveThresholdClassifier", "Explanation", "StreamClassifier"]

__getattr__ = former_names(__name__, MovingCut="AdaptiveThresholdClassifier")
