"""How learners change under several threads and under signals: in turn, at once, and seen whole.

The rule, kept by every learner and by everything that wraps one:

- *Writers take turns.* A call that learns holds the learner's lock, which is re-entrant, from its first look
  at the learner to its last.
- *One moment.* It works on a twin of the learner and publishes all attributes of the twin by one assignment.
  An object too large to be copied for every call may be changed in place, by exactly one native call that
  changes all of it or nothing; whatever else must change with it is worked out before, and follows its
  version (:class:`Following`). So an exception from anywhere, a signal handler's too, finds the learner
  before the call or after it. There is nothing to undo, hence nothing that undoing could miss.
- *Readers see one state.* They hold on to what was published when they came (:func:`as_of_now`), or to an
  answer that was derived from it and is kept until the state changes. They wait for the lock only to derive a
  new one, or where a state that is changed in place has no such answer (:func:`in_turn`).
- *A copy is another learner.* Locks and derived answers are no part of what is copied or pickled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

__all__ = [
    "Following",
    "Lock",
    "Told",
    "all_or_nothing",
    "as_of_now",
    "in_turn",
    "lock_of",
    "of_one_moment",
    "turn_of",
    "twin_of",
]

_new = object.__new__

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")
_V = TypeVar("_V")


class Lock(type(threading.RLock())):  # type: ignore[misc]  # the type has no name of its own
    """A re-entrant lock that cannot be copied: a copy of its owner, pickled or not, gets a new one."""

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


def lock_of(owner: Any) -> Any:
    """The lock of a learner, made when it is first asked for."""
    attributes = owner.__dict__
    lock = attributes.get("_lock")
    return attributes.setdefault("_lock", Lock()) if lock is None else lock


def turn_of(owner: Any) -> AbstractContextManager[Any]:
    """The lock of a learner that has one; what never learned and what is no learner needs none."""
    lock: Any = getattr(owner, "__dict__", {}).get("_lock")
    return nullcontext() if lock is None else lock


def twin_of(learner: _S) -> _S:
    """A learner with the same attributes: what is published there does not show here."""
    twin = _new(type(learner))
    twin.__dict__ = learner.__dict__.copy()
    return twin


def all_or_nothing(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Let a method that learns wait for its turn, and change the learner at one moment or not at all.

    The method runs on a twin that has the attributes of the learner. When it returns, they become those of
    the learner; when it raises, the twin is dropped.
    """

    @wraps(method)
    def guarded(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        with self.__dict__.get("_lock") or lock_of(self):
            twin = _new(type(self))  # as twin_of does: a stream of single rows pays for every call
            twin.__dict__ = self.__dict__.copy()
            result = method(twin, *args, **kwargs)
            self.__dict__ = twin.__dict__  # the one moment
        return self if result is twin else result

    return guarded


def in_turn(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Let a method that asks wait for its turn: for learners that are changed in place and keep no answer."""

    @wraps(method)
    def waiting(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with lock_of(self):
            return method(self, *args, **kwargs)

    return waiting


def as_of_now(learner: _S) -> _S:
    """The learner as it is published now; calls that learn meanwhile change nothing of what it shows."""
    view = _new(type(learner))
    view.__dict__ = learner.__dict__
    return view


def of_one_moment(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Let a method that asks see the learner as it is published when it begins."""

    @wraps(method)
    def asked(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        view = _new(type(self))  # as as_of_now does
        view.__dict__ = self.__dict__
        return method(view, *args, **kwargs)

    return asked


class Following(Generic[_V]):
    """A value that changes at the very moment at which a native object does.

    The native object counts its changes. Before it is told to change, the value of the time after is put
    beside that of the time before; which of them holds is a matter of the count alone.

    Parameters
    ----------
    version : int
        The count before the change.
    before, after : object
        The value then, and the one from the next count on.
    """

    __slots__ = ("_after", "_before", "_version")

    def __init__(self, version: object, before: _V, after: _V) -> None:
        self._version, self._before, self._after = version, before, after

    def at(self, version: object) -> _V:
        """The value at a count."""
        return self._before if version == self._version else self._after


class Told:
    """An object as it is at this moment, to be pickled or copied later: what comes out is such an object."""

    def __init__(self, value: Any) -> None:
        self._told = type(value), value.__getstate__()

    def __reduce__(self) -> Any:
        return _made, self._told


def _made(kind: Any, state: Any) -> object:
    made = kind.__new__(kind)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        made.__dict__.update(state)
    return made
