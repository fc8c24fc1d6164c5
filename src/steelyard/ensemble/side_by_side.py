"""Work of experts side by side on the cores there are; what comes out does not depend on how many."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence

from steelyard._threads import num_threads, one_thread

__all__ = ["side_by_side"]

_Numbered = tuple[int, Callable[[], None]]


def side_by_side(tasks: Sequence[Callable[[], None]], *, worth_it: bool) -> None:
    """Do all tasks, which know nothing of each other; of several errors that of the first task is raised.

    Parameters
    ----------
    tasks : sequence of callables
        Whatever is dear comes first: then short tasks fill what is left. The first is done by the thread that
        calls. The others may still be at work for a moment when a signal has ended this call, so they must
        not change in place what outlives it.
    worth_it : bool
        Whether there is so much to do that threads pay.
    """
    n_threads = min(num_threads(), len(tasks)) if worth_it else 1
    if n_threads < 2:
        for task in tasks:
            task()
        return
    waiting, errors = deque(enumerate(tasks)), dict[int, BaseException]()
    first = waiting.popleft()
    # New threads, not a pool: nothing stays behind that a fork or the end of the process would have to mind.
    others = [
        threading.Thread(
            target=contextvars.copy_context().run,
            args=(_work, waiting.popleft(), waiting, errors),
            daemon=True,
        )
        for _ in range(n_threads - 1)
    ]
    for other in others:
        other.start()
    try:
        _work(first, waiting, errors)
    finally:
        for other in others:
            other.join()
    if errors:
        raise errors[min(errors)]


def _work(mine: _Numbered, waiting: deque[_Numbered], errors: dict[int, BaseException]) -> None:
    """Do a task, and then those that wait; what was begun before an error of others is ended."""
    with one_thread():
        while True:
            number, task = mine
            try:
                task()
            except BaseException as error:  # noqa: BLE001  it is raised where the tasks came from
                errors[number] = error
            if errors or not waiting:
                return
            try:
                mine = waiting.popleft()
            except IndexError:  # another one was faster
                return
