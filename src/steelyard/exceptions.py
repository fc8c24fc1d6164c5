"""One family of errors: sentences that say what came, what was expected and what to do.

Every error of the package is a :class:`SteelyardError` and also the built-in or scikit-learn error
that a caller would expect, so ``except ValueError`` keeps working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    """Base class of all errors raised by this package.

    Parameters
    ----------
    message : str
        What was expected and what came.
    source : str, optional
        The call or file that reports the error, such as ``"ProximalSVC.forget"``; printed before the message.
    hint : str, optional
        What to do next; printed on a line of its own.

    Attributes
    ----------
    summary : str
        Source and message, without the hint.
    """

    def __init__(self, message: str, *, source: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.source = source
        self.hint = hint
        super().__init__(self.summary if hint is None else f"{self.summary}\nhint: {hint}")

    @property
    def summary(self) -> str:
        return self.message if self.source is None else f"{self.source}: {self.message}"

    def with_source(self, source: str) -> SteelyardError:
        """Return the same error with another source, for callers that know better where it happened."""
        return type(self)(self.message, source=source, hint=self.hint)


class ParameterError(SteelyardError, ValueError):
    """A parameter of an estimator or function has a value it cannot have."""


class DataError(SteelyardError, ValueError):
    """The rows, labels or weights that came cannot be used; nothing was changed."""


class DataTypeError(SteelyardError, TypeError):
    """What came is not of a kind that can be used here; nothing was changed."""


class DatasetUnavailable(SteelyardError, LookupError):  # noqa: N818  a state of the world, no mistake
    """A named set of data is neither installed nor in a known folder nor to be had from the network."""


if TYPE_CHECKING:

    class NotFittedError(SteelyardError, _SklearnNotFittedError):
        """The learner was asked before it had learned anything."""


def __getattr__(name: str) -> Any:
    # Made when asked for: its base is scikit-learn's, which takes seconds to import, and whoever only
    # raises other errors (a command that shows its help) need not wait.
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import NotFittedError as Base

    words = {"__module__": __name__, "__doc__": "The learner was asked before it had learned anything."}
    globals()[name] = type(name, (SteelyardError, Base), words)
    return globals()[name]


class MemoryLimitError(SteelyardError, MemoryError):
    """What was asked for would need more memory than there is; nothing was allocated."""


class FileFormatError(SteelyardError, ValueError):
    """A file or message is not one of ours, is damaged, or is newer than this library."""


class FileAccessError(SteelyardError, OSError):
    """A file cannot be read or written where it was asked for."""


class SolverError(SteelyardError, RuntimeError):
    """A solver stopped without reaching the accuracy it promises; the model is as it was before."""
