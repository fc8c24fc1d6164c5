"""Values of unknown origin in messages: short, on one line, and never an error themselves."""

from __future__ import annotations

import reprlib

from steelyard.exceptions import SteelyardError

__all__ = ["quote", "reason"]

_MAX_REASON = 500


def quote(value: object) -> str:
    """Show a value in a few characters."""
    try:
        return reprlib.repr(value)
    except Exception:  # noqa: BLE001  # Python refuses to print integers of thousands of digits
        return f"a {type(value).__name__} that cannot be shown"


def reason(error: Exception) -> str:
    """Say in one line why something failed."""
    if isinstance(error, SteelyardError):
        return error.summary[:_MAX_REASON]
    try:
        return f"{type(error).__name__}: {error}"[:_MAX_REASON]
    except Exception:  # noqa: BLE001  # the text of a KeyError is the key, and may be such an integer
        return type(error).__name__
