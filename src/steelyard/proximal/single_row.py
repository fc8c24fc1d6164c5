"""Single-row path: prediction and learning of one row by one native call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from steelyard import _native
from steelyard.proximal.planes import PlaneRule, uses_native_solver

if TYPE_CHECKING:
    from steelyard.proximal.folds import FoldState


class SingleRowModel(_native.SingleRowModel):
    """Native model for calls with one row, which implements the single-row path of a ProximalSVC.

    ``label(attributes, X)`` predicts and ``learn(learner, attributes, X, y)`` learns one row. They return
    None and False, respectively, and change nothing if the call needs the general path: X is not an array
    with one row of doubles, the label is new, a parameter has changed, another thread is learning, or the
    statistics have been changed by anything but this model.
    """

    @classmethod
    def create(
        cls, rule: PlaneRule, state: FoldState, parameters: Mapping[str, Any], *, can_learn: bool
    ) -> Self | None:
        """Create the model of a state, or return None if the state or a parameter is not supported.

        The model is valid while the parameters of the learner are the same objects as ``parameters``. Without
        ``can_learn`` it only predicts.
        """
        if not state.is_plain or rule.C == "auto":
            return None
        version, classes = state.statistics.version, state.class_labels()
        labels = classes.labels
        if not uses_native_solver(rule, state.statistics.n_features, len(labels)):
            return None
        sums, slots = state.statistics.slots_of(labels)
        return cls(
            sums,
            version,
            slots,
            [classes.array[k : k + 1].copy() for k in range(len(labels))],
            dict(zip(labels, slots, strict=True)) if can_learn else {},
            dict(parameters),
            "feature_names_in_",
            *rule.native_arguments(float(rule.C), labels),
        )
