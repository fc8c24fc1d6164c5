"""Names on their way out: they work, say what to write instead, and say until when."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["deprecated"]

Thing = TypeVar("Thing", bound=Callable[..., Any])


def deprecated(*, since: str, gone_in: str, instead: str) -> Callable[[Thing], Thing]:
    """Mark a function, a method or a class that will go.

    It works as before and warns with a ``FutureWarning``, which users see by default, at the line that calls
    it. The docstring says the same. A thing stays for at least one minor version after ``since``.

    Parameters
    ----------
    since : str
        The version in which it was first marked.
    gone_in : str
        The version that will no longer have it.
    instead : str
        What to write now, as a user would write it.

    Examples
    --------
    >>> from steelyard._deprecation import deprecated
    >>> @deprecated(since="0.3.0", gone_in="0.5.0", instead="merge()")
    ... def combine(a, b):
    ...     return a + b
    >>> combine.__doc__.splitlines()[-1]
    'Deprecated since 0.3.0 and gone in 0.5.0: write ``merge()``.'
    """
    if _numbers(gone_in)[:2] <= _numbers(since)[:2]:
        raise ValueError(
            f"a deprecation must last for a minor version; got since={since!r}, gone_in={gone_in!r}."
        )

    def mark(thing: Thing) -> Thing:
        note = f"Deprecated since {since} and gone in {gone_in}: write ``{instead}``."
        name = thing.__qualname__
        said = f"{name} is deprecated since {since} and will be gone in {gone_in}; write {instead}."
        if inspect.isclass(thing):
            _warn_when_made(thing, said)
            marked: Any = thing
        else:

            @functools.wraps(thing)
            def marked(*args: Any, **kwargs: Any) -> Any:
                warnings.warn(said, FutureWarning, stacklevel=2)
                return thing(*args, **kwargs)

        marked.__doc__ = f"{inspect.cleandoc(thing.__doc__ or '')}\n\n{note}".strip()
        marked.__deprecated__ = said
        return marked

    return mark


def _warn_when_made(kind: Any, said: str) -> None:
    first = kind.__init__

    @functools.wraps(first)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  it takes the place of one
        warnings.warn(said, FutureWarning, stacklevel=2)
        first(self, *args, **kwargs)

    kind.__init__ = __init__


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
