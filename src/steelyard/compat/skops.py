"""Registration of the learners for skops files, which happens when this module is imported (extra ``skops``).

A learner, alone or in a scikit-learn pipeline, becomes one entry of the archive, in the file format of this
package. Nothing is unpickled, so no type needs to be listed as trusted.

Examples
--------
>>> import skops.io  # doctest: +SKIP
>>> import steelyard.compat.skops  # doctest: +SKIP
>>> skops.io.dump(pipeline, "pipeline.skops")  # doctest: +SKIP
>>> skops.io.load("pipeline.skops")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from skops.io import _audit, _persist, _utils
from skops.io._protocol import PROTOCOL

from steelyard.base import BatchLearner
from steelyard.persistence import from_bytes, to_bytes

__all__ = ["LearnerNode"]


class LearnerNode(_audit.Node):
    """Node of a skops archive whose content is a learner in the file format of this package."""

    def __init__(self, state: dict[str, Any], load_context: Any, trusted: Any = None) -> None:
        super().__init__(state, load_context, trusted)
        # Loading the bytes executes no code. The class names in the archive are only informative.
        own = [f"{self.module_name}.{self.class_name}"] if self.module_name.startswith("steelyard.") else []
        self.trusted = self._get_trusted(trusted, own)
        self._bytes = load_context.src.read(state["file"])

    def _construct(self) -> Any:
        return from_bytes(self._bytes)


def _learner_state(learner: BatchLearner, context: Any) -> dict[str, Any]:
    """Write the learner to the archive and return the description of the node."""
    file = f"{context.memoize(learner)}.steelyard"
    if file not in context.zip_file.namelist():
        context.zip_file.writestr(file, to_bytes(learner))
    kind = type(learner)
    return {
        "__class__": kind.__name__,
        "__module__": kind.__module__,
        "__loader__": LearnerNode.__name__,
        "file": file,
    }


_utils._get_state.register(BatchLearner, _learner_state)
_persist.NODE_TYPE_MAPPING[LearnerNode.__name__, PROTOCOL] = LearnerNode
