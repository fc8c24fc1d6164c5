"""Work of experts side by side on the cores there are; what comes out does not depend on how many."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence

from steelyard._threads import num_threads, one_thread

__all__ = ["side_by_side"]


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

    def work(number: int, task: Callable[[], None]) -> None:
        # What was begun before an error is ended, so all tasks before the one that failed are done.
        with one_thread():
            while True:
                try:
                    task()
                except BaseException as error:  # noqa: BLE001  it is raised where the tasks came from
                    errors[number] = error
                if errors or not waiting:
                    return
                try:
                    number, task = waiting.popleft()
                except IndexError:  # another one was faster
                    return

    first = waiting.popleft()
    # New threads, not a pool: nothing stays behind that a fork or the end of the process would have to mind.
    others = [
        threading.Thread(target=contextvars.copy_context().run, args=(work, *waiting.popleft()), daemon=True)
        for _ in range(n_threads - 1)
    ]
    for other in others:
        other.start()
    try:
        work(*first)
    finally:
        for other in others:
            other.join()
    if errors:
        raise errors[min(errors)]
