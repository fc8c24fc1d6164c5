"""Thread safety of learners: one re-entrant lock per learner, and copy-on-write updates.

Every learner and every wrapper of a learner follows these rules:

- **Writers are serialized.** A method that changes a learner holds the learner's lock until it returns.
- **Updates are atomic.** A mutating method runs on a shallow copy; its ``__dict__`` then replaces the
  original's in one assignment (:func:`transactional`). A native object that is too large to copy may be
  changed in place, by exactly one native call that changes all of it or nothing. Python values that belong
  to it are computed beforehand and selected by its version (:class:`VersionedValue`). An exception at any
  point, also from a signal handler, therefore leaves the learner as before the call or as after it.
- **Readers see one state.** A reading method uses the ``__dict__`` that was current when it began
  (:func:`snapshot_read`). It takes the lock only to derive a value that is then cached, or if the state is
  changed in place and nothing is cached (:func:`synchronized`).
- **Copies are independent.** Locks and caches are not copied and not pickled.
- **Forks wait for running updates.** Otherwise the child would inherit a lock that no thread releases, and
  native state in the middle of a change.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from inspect import unwrap
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakSet

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")
_V = TypeVar("_V")

_new = object.__new__


_locks: WeakSet[Any] = WeakSet()  # locks of all learners, which are acquired before a fork


def lock_of(owner: Any) -> Any:
    """Return the lock of a learner. The first call creates the lock."""
    attributes = owner.__dict__
    lock = attributes.get("_lock")
    if lock is None:
        lock = attributes.setdefault("_lock", threading.RLock())
        _locks.add(lock)
    return lock


def optional_lock(owner: Any) -> AbstractContextManager[Any]:
    """Return the lock of an object, or a null context if the object has no lock."""
    lock: Any = getattr(owner, "__dict__", {}).get("_lock")
    return nullcontext() if lock is None else lock


def state_without_lock(owner: Any) -> dict[str, Any]:
    """Return the attributes of an object without its lock, for ``__getstate__``; a copy gets its own lock."""
    with lock_of(owner):
        return {name: value for name, value in owner.__dict__.items() if name != "_lock"}


def shallow_copy(learner: _S) -> _S:
    """Return a new object of the same class that has the same attribute values."""
    copy = _new(type(learner))
    copy.__dict__ = learner.__dict__.copy()
    return copy


def snapshot_view(learner: _S) -> _S:
    """Return a view of the current state of a learner, which later transactional calls do not change."""
    view = _new(type(learner))
    view.__dict__ = learner.__dict__
    return view


def transactional(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Decorate a mutating method: it holds the lock and publishes its changes together or not at all.

    The method runs on a shallow copy of the learner. If it returns, the ``__dict__`` of the copy becomes that
    of the learner. If it raises, the copy is discarded.
    """

    @wraps(method)
    def guarded(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        with self.__dict__.get("_lock") or lock_of(self):
            working = _new(type(self))
            working.__dict__ = self.__dict__.copy()
            result = method(working, *args, **kwargs)
            self.__dict__ = working.__dict__
        return self if result is working else result

    return guarded


def synchronized(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Decorate a method that reads state which other calls change in place: the method holds the lock.

    Another decorator of this module on the method is removed, because the lock makes it unnecessary.
    """
    method = unwrap(method)

    @wraps(method)
    def guarded(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        with self.__dict__.get("_lock") or lock_of(self):
            return method(self, *args, **kwargs)

    return guarded


def snapshot_read(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Decorate a reading method: it sees the learner as of the start of the call."""

    @wraps(method)
    def guarded(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        view = _new(type(self))
        view.__dict__ = self.__dict__
        return method(view, *args, **kwargs)

    return guarded


@dataclass(slots=True, eq=False)
class VersionedValue(Generic[_V]):
    """Value that changes together with a native object that has a version number.

    The value ``before`` the native call belongs to the ``version`` before the call, the value ``after`` to
    every other version. Both are stored before the call, so the value changes in the same instant as the
    object.
    """

    _version: object
    _before: _V
    _after: _V

    @classmethod
    def constant(cls, value: _V) -> VersionedValue[_V]:
        """Return a versioned value that is the same for every version."""
        return cls(None, value, value)

    def at(self, version: object) -> _V:
        """Return the value for a version."""
        return self._before if version == self._version else self._after


class FrozenState:
    """Saved state of an object. Pickling or copying it restores an object of the same class."""

    def __init__(self, value: Any) -> None:
        self._class_and_state = type(value), value.__getstate__()

    def __reduce__(self) -> Any:
        return _restore, self._class_and_state


def _restore(cls: Any, state: Any) -> object:
    restored = cls.__new__(cls)
    if hasattr(restored, "__setstate__"):
        restored.__setstate__(state)
    else:
        restored.__dict__.update(state)
    return restored


class _ForkGuard:
    """Guard of ``os.fork``: acquires the locks of all learners before a fork and releases them afterwards."""

    timeout_seconds = 60.0  # after this time the fork proceeds, and the child may see a partial update
    _ACQUIRE_SECONDS, _RETRY_SECONDS = 0.05, 0.001

    def __init__(self) -> None:
        self._forking = threading.Lock()
        self._acquired: list[Any] = []
        self._missed: list[Any] = []

    def before(self) -> None:
        self._forking.acquire()
        deadline = time.monotonic() + self.timeout_seconds
        while not self._acquire_all() and time.monotonic() < deadline:
            # The thread that holds the missing lock may be waiting for a lock that is already acquired.
            self._release()
            time.sleep(self._RETRY_SECONDS)

    def _acquire_all(self) -> bool:
        self._acquired, self._missed = [], []
        timeout = min(self._ACQUIRE_SECONDS, self.timeout_seconds)
        for lock in _living_locks():
            acquired = lock.acquire(timeout=0.0 if self._missed else timeout)
            (self._acquired if acquired else self._missed).append(lock)
        return not self._missed

    def _release(self) -> None:
        for lock in self._acquired:
            lock.release()
        self._acquired, self._missed = [], []

    def after_in_parent(self) -> None:
        self._release()
        self._forking.release()

    def after_in_child(self) -> None:
        for lock in self._missed:
            lock._at_fork_reinit()  # the thread that held the lock does not exist in the child
        self.after_in_parent()


def _living_locks() -> list[Any]:
    while True:
        try:
            return list(_locks)
        except RuntimeError:  # another thread created a lock during the iteration
            continue


if hasattr(os, "register_at_fork"):
    _fork_guard = _ForkGuard()
    os.register_at_fork(
        before=_fork_guard.before,
        after_in_parent=_fork_guard.after_in_parent,
        after_in_child=_fork_guard.after_in_child,
    )
