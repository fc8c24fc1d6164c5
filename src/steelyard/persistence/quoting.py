"""Short, safe representations of untrusted values for error messages."""

from __future__ import annotations

import reprlib

from steelyard.exceptions import SteelyardError

_MAX_REASON_CHARACTERS = 500


def quote(value: object) -> str:
    """Return a short representation of a value."""
    try:
        return reprlib.repr(value)
    except Exception:  # noqa: BLE001  # Python refuses to format integers of thousands of digits
        return f"a {type(value).__name__} that cannot be displayed"


def reason(error: Exception) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, SteelyardError):
        return error.summary[:_MAX_REASON_CHARACTERS]
    try:
        return f"{type(error).__name__}: {error}"[:_MAX_REASON_CHARACTERS]
    except Exception:  # noqa: BLE001  # the message may contain an integer that Python refuses to format
        return type(error).__name__
