"""One family of errors: sentences that say what came, what was expected and what to do.

Every error of the package is a :class:`SteelyardError` and also the built-in or scikit-learn error
that a caller would expect, so ``except ValueError`` keeps working.
"""

from __future__ import annotations

from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

__all__ = [
    "DataError",
    "DataTypeError",
    "DatasetUnavailable",
    "FileAccessError",
    "FileFormatError",
    "MemoryLimitError",
    "NotFittedError",
    "ParameterError",
    "SolverError",
    "SteelyardError",
]


class SteelyardError(Exception):
    """Base of all errors raised by this package.

    Parameters
    ----------
    message : str
        What was expected and what came, as a sentence.
    hint : str, optional
        What to do next; shown on a line of its own.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")
        self.message = message
        self.hint = hint


class ParameterError(SteelyardError, ValueError):
    """A parameter of an estimator or function has a value it cannot have."""


class DataError(SteelyardError, ValueError):
    """The rows, labels or weights that came cannot be used; nothing was changed."""


class DataTypeError(SteelyardError, TypeError):
    """What came is not of a kind that can be used here; nothing was changed."""


class DatasetUnavailable(SteelyardError, LookupError):  # noqa: N818  a state of the world, no mistake
    """A named set of data is neither installed nor in a known folder nor to be had from the network."""


class NotFittedError(SteelyardError, _SklearnNotFittedError):
    """The learner was asked before it had learned anything."""


class MemoryLimitError(SteelyardError, MemoryError):
    """What was asked for would need more memory than there is; nothing was allocated."""


class FileFormatError(SteelyardError, ValueError):
    """A file or message is not one of ours, is damaged, or is newer than this library."""


class FileAccessError(SteelyardError, OSError):
    """A file cannot be read or written where it was asked for."""


class SolverError(SteelyardError, RuntimeError):
    """A solver stopped without reaching the accuracy it promises; the model is as it was before."""
