"""How learners change under several threads and under signals: in turn, at once, and seen whole.

The rule, kept by every learner and by everything that wraps one:

- *Writers take turns.* A call that learns holds the learner's lock, which is re-entrant, from its first look
  at the learner to its last.
- *One moment.* It works on a twin of the learner and publishes all attributes of the twin by one assignment.
  An object too large to be copied for every call may be changed in place, by exactly one native call that
  changes all of it or nothing; whatever else must change with it is worked out before, and follows its
  version (:class:`VersionedValue`). So an exception from anywhere, a signal handler's too, finds the learner
  before the call or after it. There is nothing to undo, hence nothing that undoing could miss.
- *Readers see one state.* They hold on to what was published when they came (:func:`snapshot_view`), or to an
  answer that was derived from it and is kept until the state changes. They wait for the lock only to derive a
  new one, or where a state that is changed in place has no such answer (:func:`synchronized`).
- *A copy is another learner.* Locks and derived answers are no part of what is copied or pickled.
- *A fork waits for its turn as well.* A process that forks while another thread learns would hand its child a
  lock that nobody releases, and a state in the middle of a change; so it waits until nobody learns.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from inspect import unwrap
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakSet

from steelyard._native import TurnLock, ask_at_once, ask_in_turn, change_at_once

__all__ = [
    "FrozenState",
    "Lock",
    "VersionedValue",
    "lock_of",
    "optional_lock",
    "shallow_copy",
    "snapshot_read",
    "snapshot_view",
    "synchronized",
    "transactional",
]

_new = object.__new__

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")
_V = TypeVar("_V")


_locks: WeakSet[Lock] = WeakSet()
_a_fork_waits = False
_PAUSE = (
    0.01  # seconds that a call steps back for a fork; not until it is done: the caller may hold other locks
)


class Lock(TurnLock):
    """A re-entrant lock that cannot be copied: a copy of its owner, pickled or not, gets a new one."""

    def __init__(self) -> None:
        super().__init__()
        _locks.add(self)

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


def lock_of(owner: Any) -> Any:
    """The lock of a learner, made when it is first asked for."""
    attributes = owner.__dict__
    lock = attributes.get("_lock")
    return attributes.setdefault("_lock", Lock()) if lock is None else lock


def optional_lock(owner: Any) -> AbstractContextManager[Any]:
    """The lock of a learner that has one; what never learned and what is no learner needs none."""
    lock: Any = getattr(owner, "__dict__", {}).get("_lock")
    return nullcontext() if lock is None else lock


def shallow_copy(learner: _S) -> _S:
    """A learner with the same attributes: what is published there does not show here."""
    twin = _new(type(learner))
    twin.__dict__ = learner.__dict__.copy()
    return twin


def transactional(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Let a method that learns wait for its turn, and change the learner at one moment or not at all.

    The method runs on a twin that has the attributes of the learner. When it returns, they become those of
    the learner; when it raises, the twin is dropped.
    """

    @wraps(method)
    def guarded(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        if _a_fork_waits:
            time.sleep(_PAUSE)
        return change_at_once(self.__dict__.get("_lock") or lock_of(self), method, self, args, kwargs)

    return guarded


def synchronized(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Let a method that asks wait for its turn: for learners that are changed in place and keep no answer.

    Whoever holds the lock needs no view of the learner: where the method has another guard, it loses it.
    """
    method = unwrap(method)

    @wraps(method)
    def waiting(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        if _a_fork_waits:
            time.sleep(_PAUSE)
        return ask_in_turn(self.__dict__.get("_lock") or lock_of(self), method, self, args, kwargs)

    return waiting


def snapshot_view(learner: _S) -> _S:
    """The learner as it is published now; calls that learn meanwhile change nothing of what it shows."""
    view = _new(type(learner))
    view.__dict__ = learner.__dict__
    return view


def snapshot_read(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Let a method that asks see the learner as it is published when it begins."""

    @wraps(method)
    def asked(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        return ask_at_once(method, self, args, kwargs)

    return asked


class VersionedValue(Generic[_V]):
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


class FrozenState:
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


class _Forks:
    """Lets a fork wait until no other thread learns, and both processes go on with locks that are free."""

    longest = 60.0  # seconds; then the child gets new locks, and states that may be in the middle of a change

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._held: list[Lock] = []
        self._missed: list[Lock] = []

    def before(self) -> None:
        global _a_fork_waits  # noqa: PLW0603 - every call that learns reads it, and an attribute costs more
        self._one_at_a_time.acquire()
        deadline = time.monotonic() + self.longest
        # All or none: whoever holds one lock while waiting for another may hold up whoever does the reverse.
        while not self._took_all() and time.monotonic() < deadline:
            self._release()
            _a_fork_waits = True
            time.sleep(_PAUSE / 10.0)
        _a_fork_waits = False

    def _took_all(self) -> bool:
        self._held, self._missed = [], []
        for lock in _living_locks():
            (self._held if lock.acquire(blocking=False) else self._missed).append(lock)
        return not self._missed

    def _release(self) -> None:
        for lock in self._held:
            lock.release()
        self._held, self._missed = [], []

    def after_in_parent(self) -> None:
        self._release()
        self._one_at_a_time.release()

    def after_in_child(self) -> None:
        for lock in _living_locks():
            lock.start_anew_after_fork()
        self.after_in_parent()


def _living_locks() -> list[Lock]:
    while True:
        try:
            return list(_locks)
        except RuntimeError:  # another thread made one meanwhile
            continue


if hasattr(os, "register_at_fork"):
    _forks = _Forks()
    os.register_at_fork(
        before=_forks.before,
        after_in_parent=_forks.after_in_parent,
        after_in_child=_forks.after_in_child,
    )
