"""Number of threads of native loops and of BLAS, and tasks on several threads."""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from math import ceil
from numbers import Integral
from pathlib import Path
from typing import Any, Generic, TypeVar

from threadpoolctl import ThreadpoolController

from steelyard.exceptions import ParameterError

__all__ = [
    "BackgroundTask",
    "check_threads",
    "limit_blas",
    "num_threads",
    "one_blas_thread",
    "one_thread",
    "reserve_core",
    "run_tasks",
]

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


_Task = tuple[int, Callable[[], Any]]


def run_tasks(tasks: Sequence[Callable[[], Any]], *, parallel: bool) -> list[Any]:
    """Run independent tasks on several threads, and return their results in the order of the list.

    If tasks fail, the error of the first one in the list is raised. The result does not depend on the number
    of threads.

    Parameters
    ----------
    tasks : sequence of callables
        The tasks, longest first. The calling thread runs the first task. A signal may end this call while the
        other threads still run, so their tasks must not change objects that outlive the call.
    parallel : bool
        Whether to use several threads, because there is enough work. Cores on which background tasks run
        are not used.
    """
    n_threads = min(num_threads() - len(_running()), len(tasks)) if parallel else 1
    if n_threads < 2:
        return [task() for task in tasks]
    queue, errors = deque(enumerate(tasks)), dict[int, BaseException]()
    results: list[Any] = [None] * len(tasks)
    first = queue.popleft()
    # New threads are started instead of a pool, so that no idle threads exist during a fork or at exit.
    taken = [queue.popleft() for _ in range(n_threads - 1)]
    others = [_started(partial(_run_queue, task, queue, results, errors), daemon=True) for task in taken]
    try:
        _run_queue(first, queue, results, errors)
    finally:
        for other in others:
            other.join()
    if errors:
        raise errors[min(errors)]
    return results


def _run_queue(
    current: _Task, queue: deque[_Task], results: list[Any], errors: dict[int, BaseException]
) -> None:
    """Run a task and then tasks from the queue until it is empty or a task has failed."""
    with one_thread():
        while True:
            number, task = current
            try:
                results[number] = task()
            except BaseException as error:  # noqa: BLE001  run_tasks raises it in the calling thread
                errors[number] = error
            if errors or not queue:
                return
            try:
                current = queue.popleft()
            except IndexError:  # another thread has taken the last task
                return


def _started(function: Callable[[], Any], *, daemon: bool) -> threading.Thread:
    """Return a new thread that runs a function in the context of the caller.

    ``Thread.start`` returns when the new thread gives up the interpreter lock, which may take 5 ms. So the
    function only begins after that.
    """
    may_begin = threading.Lock()

    def run() -> None:
        with may_begin:
            pass
        function()

    with may_begin:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=daemon)
        thread.start()
    return thread


class BackgroundTask(Generic[_R]):
    """Function that runs in another thread while the caller goes on.

    With one core, the function runs at once in the calling thread. The function must have no effects besides
    its result: it may run again, in a forked child or if it has failed, and its result may never be read. A
    fork and the end of the process wait for it.

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
        self._thread: threading.Thread | None = None
        if starts and num_threads() > 1:
            self._thread = _started(self._run, daemon=False)
            _background.difference_update(_background - _running())
            _background.add(self._thread)
        elif starts:
            self.result()

    def result(self) -> _R:
        """Return the result, after waiting for it if necessary. An error of the function is raised here."""
        function = self._function
        if self._thread is not None:
            self._thread.join()
        if not self._results:
            assert function is not None
            self._results.append(function())
            self._function = None
        return self._results[0]

    def __getstate__(self) -> dict[str, Any]:
        return {"_function": None, "_results": [self.result()], "_thread": None}

    def _run(self) -> None:
        assert self._function is not None
        try:
            self._results.append(self._function())
        except BaseException:  # noqa: BLE001  result() runs the function again, in the thread that needs it
            return
        self._function = None  # the arguments of the function are no longer needed


_background: set[threading.Thread] = set()  # threads of background tasks, some of which have ended


def _running() -> set[threading.Thread]:
    """Return the threads of the background tasks that have not ended."""
    return {thread for thread in tuple(_background) if thread.is_alive()}


def _wait_for_background() -> None:
    """Wait for all background tasks, so that a forked child has no lock of a thread that it does not have."""
    for thread in _running() - {threading.current_thread()}:
        thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_background)
