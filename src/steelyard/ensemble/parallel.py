"""Independent tasks on several threads; the result does not depend on the number of threads."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence

from steelyard._threads import num_threads, one_thread

__all__ = ["run_tasks"]

_Task = tuple[int, Callable[[], None]]


def run_tasks(tasks: Sequence[Callable[[], None]], *, parallel: bool) -> None:
    """Run independent tasks; if several fail, raise the error of the first in the list.

    Parameters
    ----------
    tasks : sequence of callables
        The tasks, longest first. The calling thread runs the first task. A signal may end this call while the
        other threads still run, so their tasks must not change objects that outlive the call.
    parallel : bool
        Whether there is enough work to pay for threads.
    """
    n_threads = min(num_threads(), len(tasks)) if parallel else 1
    if n_threads < 2:
        for task in tasks:
            task()
        return
    queue, errors = deque(enumerate(tasks)), dict[int, BaseException]()
    first = queue.popleft()
    # New threads instead of a pool, so that no idle threads exist during a fork or at process exit.
    others = [
        threading.Thread(
            target=contextvars.copy_context().run,
            args=(_run_queue, queue.popleft(), queue, errors),
            daemon=True,
        )
        for _ in range(n_threads - 1)
    ]
    for other in others:
        other.start()
    try:
        _run_queue(first, queue, errors)
    finally:
        for other in others:
            other.join()
    if errors:
        raise errors[min(errors)]


def _run_queue(current: _Task, queue: deque[_Task], errors: dict[int, BaseException]) -> None:
    """Run a task, then tasks from the queue until it is empty or some task has failed."""
    with one_thread():
        while True:
            number, task = current
            try:
                task()
            except BaseException as error:  # noqa: BLE001  run_tasks raises it in the calling thread
                errors[number] = error
            if errors or not queue:
                return
            try:
                current = queue.popleft()
            except IndexError:  # another thread took the last task
                return
