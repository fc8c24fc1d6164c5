"""Learners in files of skops: importing this module is enough (extra ``skops``).

A learner, alone or inside a pipeline of scikit-learn, becomes one entry of the archive, in the form of this
package's own files. Nothing of it is unpickled, so skops need not be told to trust it.

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
    """A learner as skops reads it: the bytes of a file of this package."""

    def __init__(self, state: dict[str, Any], load_context: Any, trusted: Any = None) -> None:
        super().__init__(state, load_context, trusted)
        # What is made follows from the bytes, which execute nothing; the names in the archive are only shown.
        own = [f"{self.module_name}.{self.class_name}"] if self.module_name.startswith("steelyard.") else []
        self.trusted = self._get_trusted(trusted, own)
        self._bytes = load_context.src.read(state["file"])

    def _construct(self) -> Any:
        return from_bytes(self._bytes)


def _learner_state(learner: BatchLearner, context: Any) -> dict[str, Any]:
    """What is written for a learner: its name, and where its bytes are."""
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
