"""Exceptions, whose messages contain the source, the expectation, the value and a hint.

Every error of the package is a :class:`SteelyardError` and also the corresponding built-in or scikit-learn
error, so ``except ValueError`` works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steelyard._deprecation import renamed_attribute, renamed_method

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
        The expected and the actual value.
    source : str, optional
        The call or file that reports the error, such as ``"ProximalSVC.forget"``; printed before the message.
    hint : str, optional
        What to do next; printed on a separate line.

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
        """Return the same error with a more precise source."""
        return type(self)(self.message, source=source, hint=self.hint)

    sentence = renamed_attribute("message", "sentence")
    who = renamed_attribute("source", "who")
    told_by = renamed_method("with_source", "told_by")


class ParameterError(SteelyardError, ValueError):
    """A parameter of an estimator or function has an invalid value."""


class DataError(SteelyardError, ValueError):
    """Rows, labels or weights have invalid values; nothing was changed."""


class DataTypeError(SteelyardError, TypeError):
    """An argument has an unsupported type; nothing was changed."""


class DatasetUnavailable(SteelyardError, LookupError):  # noqa: N818  not a mistake of the caller
    """A dataset is not installed, not in a known folder, and not available from the network."""


if TYPE_CHECKING:

    class NotFittedError(SteelyardError, _SklearnNotFittedError):
        """A method needs a fitted learner."""


def __getattr__(name: str) -> Any:
    # The class is created on first use, because importing its base class from scikit-learn takes seconds.
    # Commands that only print help must not wait for this import.
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import NotFittedError as Base

    attributes = {"__module__": __name__, "__doc__": "A method needs a fitted learner."}
    globals()[name] = type(name, (SteelyardError, Base), attributes)
    return globals()[name]


class MemoryLimitError(SteelyardError, MemoryError):
    """A call would need more memory than available; nothing was allocated."""


class FileFormatError(SteelyardError, ValueError):
    """A file or message has an unknown format, is damaged, or was written by a newer version."""


class FileAccessError(SteelyardError, OSError):
    """A file cannot be read or written."""

    @classmethod
    def from_os_error(cls, action: str, error: OSError, source: object) -> FileAccessError:
        """Return the error for a path that cannot be "read", "written", "created" or "removed"."""
        return cls(f"cannot be {action}: {error.strerror or error}.", source=str(source))


class SolverError(SteelyardError, RuntimeError):
    """A solver stopped before it reached its tolerance; the model was not changed."""
