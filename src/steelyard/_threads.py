"""Number of threads of native loops and of BLAS, and tasks on several threads."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from math import ceil
from numbers import Integral
from pathlib import Path
from typing import Any, Generic, TypeVar

from threadpoolctl import ThreadpoolController

from steelyard.exceptions import ParameterError

# Below this matrix order, a second BLAS thread gains little on an idle machine.
# On a busy machine BLAS threads wait for each other: order 1,000 took up to 10 times as long.
_MIN_BLAS_ORDER_FOR_THREADS = 3000
_CGROUP = Path("/sys/fs/cgroup")

_R = TypeVar("_R")

_single_threaded: contextvars.ContextVar[bool] = contextvars.ContextVar("_single_threaded", default=False)
_reserved_cores: contextvars.ContextVar[int] = contextvars.ContextVar("_reserved_cores", default=0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit native loops in this context to one thread, for callers that run them in parallel."""
    token = _single_threaded.set(True)
    try:
        yield
    finally:
        _single_threaded.reset(token)


@contextmanager
def reserve_core() -> Iterator[None]:
    """Limit native loops in this context to all cores but one, which stays free for other threads."""
    token = _reserved_cores.set(1)
    try:
        yield
    finally:
        _reserved_cores.reset(token)


def num_threads() -> int:
    """Return the number of usable cores, limited by affinity, CPU quota and ``STEELYARD_NUM_THREADS``."""
    if _single_threaded.get():
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores = max(min(cores, _cgroup_cores()) - _reserved_cores.get(), 1)
    limit = os.environ.get("STEELYARD_NUM_THREADS", "").strip()
    if not limit:
        return cores
    if not limit.isdecimal() or int(limit) == 0:
        raise ParameterError(
            f"STEELYARD_NUM_THREADS must be a positive integer; got {limit!r}.",
            source="num_threads",
            hint="set the environment variable to a number, or unset it to use all cores",
        )
    return min(cores, int(limit))


@cache
def _cgroup_cores() -> int:
    """Return the CPU quota of the container in cores, rounded up, or a large number without a quota."""
    return cgroup_quota(_CGROUP)


def cgroup_quota(root: Path) -> int:
    """Return the CPU quota of a control group (version 2 or 1) in cores, rounded up."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = (
                (root / "cpu" / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")
            )
        except OSError:
            return 1 << 16
    # "max" and -1 mean that there is no quota.
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return 1 << 16
    return max(1, ceil(int(quota) / int(period)))


class _OneBlasThread:
    """Limit of BLAS to one thread, which concurrent users in the process share.

    The number of BLAS threads belongs to the process. The first user sets it to one, the last restores it.
    """

    def __init__(self) -> None:
        self._libraries: list[Any] | None = None
        self.reset()

    def reset(self) -> None:
        """Reset the number of users in a forked child, which has no other threads."""
        self._lock = threading.Lock()
        self._n_users = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._libraries is None:
                found = ThreadpoolController().select(user_api="blas").lib_controllers
                self._libraries = list(found)
            if self._n_users == 0:
                self._before = [library.num_threads for library in self._libraries]
                self._set([1] * len(self._before))
            self._n_users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_users -= 1
            if self._n_users == 0:
                self._set(self._before)

    def _set(self, numbers: list[int]) -> None:
        for library, number in zip(self._libraries or (), numbers, strict=True):
            # Recent threadpoolctl versions ignore set_num_threads() while another thread controls the number.
            getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


one_blas_thread = _OneBlasThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_blas_thread.reset)


@contextmanager
def limit_blas(order: int) -> Iterator[None]:
    """Limit BLAS and LAPACK to one thread unless matrices of the given order are large enough for several.

    Matrices below order 100 need no limit, because BLAS itself uses one thread for them.
    """
    if 100 <= order < _MIN_BLAS_ORDER_FOR_THREADS:
        with one_blas_thread:
            yield
    else:
        yield


def check_threads(n_threads: Any, source: str) -> int:
    """Return `n_threads`, or :func:`num_threads` if it is None."""
    if n_threads is None:
        return num_threads()
    if isinstance(n_threads, bool) or not isinstance(n_threads, Integral) or int(n_threads) < 1:
        raise ParameterError(
            f"n_threads must be a positive integer or None; got {n_threads!r}.", source=source
        )
    return int(n_threads)


class _TaskQueue:
    """Tasks of one call of :func:`run_tasks`, which several threads take in order until one has failed."""

    def __init__(self, tasks: Sequence[Callable[[], Any]]) -> None:
        self._tasks = tasks
        # Numbers of the tasks that no thread has taken yet, except the first task, which the caller runs.
        # Threads share this iterator, because its next() is atomic.
        self._numbers = iter(range(1, len(tasks)))
        self.results: list[Any] = [None] * len(tasks)
        self.errors: dict[int, BaseException] = {}
        self._context = contextvars.copy_context()
        self.changed = threading.Condition()  # protects the two attributes below
        self._is_open, self._n_helpers = True, 0

    def run(self, *first: int) -> None:
        """Run the task with the number ``first``, if it is given, and then tasks that no thread has taken."""
        with one_thread():
            for number in chain(first, self._numbers):
                try:
                    self.results[number] = self._tasks[number]()
                except BaseException as error:  # noqa: BLE001  run_tasks raises it in the calling thread
                    self.errors[number] = error
                if self.errors:
                    return

    def help(self) -> None:
        """Let the current thread, which has not called :func:`run_tasks`, run tasks.

        It runs none if the call has ended.
        """
        with self.changed:
            if not self._is_open:
                return
            self._n_helpers += 1
        try:
            self._context.copy().run(self.run)
        finally:
            with self.changed:
                self._n_helpers -= 1
                self.changed.notify_all()

    def close(self) -> None:
        """Wait until no thread helps, and let no further thread help."""
        with self.changed:
            self._is_open = False
            self.changed.wait_for(lambda: not self._n_helpers)


_open_queues: set[_TaskQueue] = set()


def run_tasks(tasks: Sequence[Callable[[], Any]], *, parallel: bool) -> list[Any]:
    """Run independent tasks on several threads, and return their results in the order of the list.

    If tasks fail, the error of the first one in the list is raised. The result does not depend on the number
    of threads.

    Parameters
    ----------
    tasks : sequence of callables
        The tasks in the order in which they begin; long tasks should come first. The calling thread runs the
        first one. A signal may end this call while the other threads still run, so their tasks must not
        change objects that outlive the call.
    parallel : bool
        Whether to use several threads, because there is enough work. Background tasks occupy cores; when
        one ends, its thread also takes tasks.
    """
    n_threads = min(num_threads(), len(tasks)) if parallel else 1
    if n_threads < 2:
        return [task() for task in tasks]
    queue = _TaskQueue(tasks)
    # New threads are started instead of a pool, so that no idle threads exist during a fork or at exit.
    others = [
        threading.Thread(target=queue.help, daemon=True) for _ in range(n_threads - 1 - len(_running()))
    ]
    try:
        # A new thread waits for this lock at once, so start() returns. A thread that ran its task instead
        # could delay start() for 5 ms, until it releases the interpreter lock.
        with queue.changed:
            for other in others:
                other.start()
        _open_queues.add(queue)
        queue.run(0)
    finally:
        _open_queues.discard(queue)
        queue.close()
        for other in others:
            if other.ident is not None:  # otherwise start() has failed
                other.join()
    if queue.errors:
        raise queue.errors[min(queue.errors)]
    return queue.results


class BackgroundTask(Generic[_R]):
    """Function that runs in another thread while the caller goes on.

    With one core, the function runs at once in the calling thread. The function must have no effects besides
    its result: it may run again, in a forked child or if it has failed, and its result may never be read. A
    fork and the end of the process wait for it. When the function has ended, its thread helps calls of
    :func:`run_tasks`.

    Parameters
    ----------
    function : callable
        The function.
    starts : bool, default=True
        Whether to run the function now. Otherwise it runs when the result is needed.
    """

    def __init__(self, function: Callable[[], _R], *, starts: bool = True) -> None:
        self._function: Callable[[], _R] | None = function
        self._results: list[_R] = []  # empty or one result
        self._ended: threading.Event | None = None
        if starts and num_threads() > 1:
            self._ended, self._start_lock = threading.Event(), threading.Lock()
            thread = threading.Thread(target=contextvars.copy_context().run, args=(self._run,))
            with self._start_lock:  # lets start() return at once, as in run_tasks()
                thread.start()
            _background[self._ended] = thread
            for ended in set(_background) - set(_running()):
                _background.pop(ended, None)
        elif starts:
            self.result()

    def result(self) -> _R:
        """Return the result, after waiting for it if necessary. An error of the function is raised here."""
        function = self._function
        if self._ended is not None and not self._ended.is_set():
            self._ended.wait()
        if not self._results:
            assert function is not None
            self._results.append(function())
            self._function = None
        return self._results[0]

    def __getstate__(self) -> dict[str, Any]:
        return {"_function": None, "_results": [self.result()], "_ended": None}

    def _run(self) -> None:
        assert self._function is not None
        assert self._ended is not None
        with self._start_lock:
            pass  # start() has returned
        # If the function fails, result() runs it again, in the thread that needs it.
        with suppress(BaseException):
            self._results.append(self._function())
            self._function = None  # the arguments of the function are no longer needed
        self._ended.set()
        for queue in tuple(_open_queues):
            queue.help()


_background: dict[threading.Event, threading.Thread] = {}  # end and thread of background tasks


def _running() -> dict[threading.Event, threading.Thread]:
    """Return the background tasks that have not ended."""
    return {ended: thread for ended, thread in _background.copy().items() if not ended.is_set()}


def _wait_for_background() -> None:
    """Wait for all background tasks, so that a forked child has no lock of a thread that it does not have."""
    for ended, thread in _running().items():
        if thread is not threading.current_thread():
            ended.wait()


if hasattr(os, "register_at_fork"):
    # A forked child has only the thread that forked, so no call of run_tasks goes on there.
    os.register_at_fork(before=_wait_for_background, after_in_child=_open_queues.clear)
