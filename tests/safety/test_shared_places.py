"""What several threads bring to a hub or a cube is all there, and an interrupted call has changed nothing."""

from __future__ import annotations

import copy
import threading

from steelyard.sites import Hub
from steelyard.sql import StatisticsCube
from tests.safety import documents
from tests.safety.interruption import interrupt_at
from tests.safety.threads import switching_often

ROWS = documents.frame()[["a", "b", "y"]]


def _bulletins(n):
    return [documents._site(f"s{k}", ROWS).publish() for k in range(n)]


def _at_once(tasks):
    threads = [threading.Thread(target=task) for task in tasks]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_no_bulletin_is_lost_and_no_row_of_a_cube_either():
    hub, cube = Hub(), StatisticsCube(["place"], "y", time="day")
    _at_once([lambda b=b: hub.receive(b) for b in _bulletins(4)])
    assert hub.statistics.n_rows == 4 * len(ROWS)
    _at_once([lambda: cube.add(documents.frame())] * 4)
    assert cube.n_rows == 4 * len(ROWS)


def test_an_interrupted_hub_is_the_one_before_or_after():
    first, second = _bulletins(2)
    before = Hub()
    before.receive(first)
    found = set()
    for moment in range(0, 2000, 7):
        hub = copy.deepcopy(before)
        done = not interrupt_at(moment, lambda: hub.receive(second))  # noqa: B023 - called at once
        found.add((tuple(hub.sites), float(hub.statistics.n_rows)))
        if done:
            break
    assert found == {(("s0",), 60.0), (("s0", "s1"), 120.0)}
