"""What is no learner keeps its promise, too: threads lose nothing, interrupted calls change nothing."""

from __future__ import annotations

import copy
import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from steelyard import Client, ProximalSVC
from steelyard.distributed.files import StatisticsPart, statistics, unlearned, update
from steelyard.federated import Hub, ReleasePolicy, Site
from steelyard.sql import StatisticsCube
from steelyard.tables import TableModel
from tests.safety import documents
from tests.safety.interruption import interrupt_at
from tests.safety.threads import switching_often

ROWS = documents.frame()[["a", "b", "y"]]
MORE = documents.frame(40, seed=3)[["a", "b", "y"]]
MOMENTS = 60  # of each call, spread over its length


def _site_updates(n):
    return [documents._site(f"s{k}", ROWS).publish() for k in range(n)]


def _part(rows, source):
    return statistics(ProximalSVC(), [(rows[["a"]].to_numpy(), rows["y"].to_numpy())], source=source)


def _at_once(tasks):
    threads = [threading.Thread(target=task) for task in tasks]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


# -- threads ----------------------------------------------------------------------------------------------


def test_no_bulletin_is_lost_and_no_row_of_a_cube_either():
    hub, cube = Hub(), StatisticsCube(["place"], "y", time="day")
    _at_once([lambda b=b: hub.receive(b) for b in _site_updates(4)])
    assert hub.statistics.n_rows == 4 * len(ROWS)
    _at_once([lambda: cube.add(documents.frame())] * 4)
    assert cube.n_rows == 4 * len(ROWS)


def test_no_row_of_a_site_a_model_of_tables_or_a_part_is_lost():
    site = Site("north", "y", policy=ReleasePolicy.open())
    model = TableModel(ProximalSVC(), target="y").fit(ROWS)
    part = _part(ROWS, "first")
    _at_once([lambda: site.learn(ROWS)] * 4)
    assert site.publish().statistics.n_rows == 4 * len(ROWS)
    _at_once([lambda: model.partial_fit(ROWS)] * 4)
    assert model.learner.class_count_.sum() == 5 * len(ROWS)
    assert sum(entry["rows"] for entry in model.history) == 5 * len(ROWS)
    others = [_part(documents.frame(30, seed=k), str(k)) for k in range(10, 14)]
    _at_once([lambda other=other: part.merge(other) for other in others])
    assert part.model.class_count_.sum() == len(ROWS) + 4 * 30
    assert len(part.sources) == 5


def test_a_learner_that_several_threads_bring_parts_to_has_them_all():
    learner = _part(ROWS, "first").model
    others = [
        statistics(unlearned(learner), [(frame[["a"]].to_numpy(), frame["y"].to_numpy())], source=str(k))
        for k in range(10, 14)
        for frame in [documents.frame(30, seed=k)]
    ]
    _at_once([lambda other=other: update(learner, [other]) for other in others])
    assert learner.class_count_.sum() == len(ROWS) + 4 * 30


def test_a_client_serves_several_threads_each_with_its_own_answer():
    keys: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["Idempotency-Key"])
        return httpx.Response(200, json={"learned": json.loads(request.content)["rows"][0]["n"]})

    with Client("http://test", transport=httpx.MockTransport(answer)) as client:
        came: dict[int, Any] = {}

        def work(first: int) -> None:
            for n in range(first, first + 25):
                came[n] = client.learn("m", [{"n": n}])["learned"]

        _at_once([lambda first=first: work(first) for first in range(0, 100, 25)])
    assert came == {n: n for n in range(100)}
    assert len(set(keys)) == 100


# -- interruption -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A thing, a call that changes it, and what there is to see of it."""

    name: str
    make: Callable[[], Any]
    call: Callable[[Any], object]
    look: Callable[[Any], Any]


def _hub() -> Hub:
    hub = Hub()
    hub.receive(_site_updates(1)[0])
    return hub


def _see_hub(hub: Hub) -> Any:
    return hub.sites, hub.gone, hub.digest() if hub.sites else None


def _see_site(site: Site) -> Any:
    before = copy.deepcopy(site)  # to publish is to change
    moved, version = dict(before._n_changed), before.version
    return version, moved, before.publish().statistics.digest(), before.model.encoder.categories_


def _see_table_model(model: TableModel) -> Any:
    done = [(entry["what"], entry["rows"], entry.get("id")) for entry in model.history]
    return model.learner.digest(), model.encoder.categories_, done


def _see_part(part: StatisticsPart) -> Any:
    return part.model.digest(), part.sources, None if part.retired is None else part.retired.sources


def _see_cube(cube: StatisticsCube) -> Any:
    return cube.statistics().digest(), cube.cells, cube._encoder.categories_


BULLETINS = _site_updates(2)
OTHER_PART = _part(MORE, "other")
CASES = [
    Case("Hub receive", _hub, lambda h: h.receive(BULLETINS[1]), _see_hub),
    Case("Hub drop", _hub, lambda h: h.drop("s0"), _see_hub),
    Case("Site learn", lambda: documents._site("s", ROWS), lambda s: s.learn(MORE), _see_site),
    Case("Site forget", lambda: documents._site("s", ROWS), lambda s: s.forget(ROWS[:5]), _see_site),
    Case("Site publish", lambda: documents._site("s", ROWS), lambda s: s.publish(), _see_site),
]
CASES += [
    Case(
        f"TableModel {name}", lambda: TableModel(ProximalSVC(), target="y").fit(ROWS), call, _see_table_model
    )
    for name, call in {
        "fit": lambda m: m.fit(MORE),
        "partial_fit": lambda m: m.partial_fit(MORE),
        "forget": lambda m: m.forget(ROWS),
        "merge": lambda m: m.merge(TableModel(ProximalSVC(), target="y").fit(MORE)),
    }.items()
]
CASES += [
    Case("StatisticsPart merge", lambda: _part(ROWS, "first"), lambda p: p.merge(OTHER_PART), _see_part),
]
CASES += [
    Case(
        f"StatisticsCube {name}",
        lambda: StatisticsCube(["place"], "y", time="day").add(documents.frame()),
        call,
        _see_cube,
    )
    for name, call in {
        "add": lambda c: c.add(documents.frame(30, seed=4)),
        "forget": lambda c: c.forget(documents.frame()[:5]),
        "merge": lambda c: c.merge(
            StatisticsCube(["place"], "y", time="day").add(documents.frame(30, seed=4))
        ),
    }.items()
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_whatever_interrupts_a_call_finds_it_before_or_after(case):
    taught = case.make()
    before, done = case.look(taught), copy.deepcopy(taught)
    case.call(done)
    after = case.look(done)
    assert before != after
    length = _n_moments(case, taught)
    seed = random.Random(case.name)
    early = seed.sample(range(length), min(MOMENTS, length))
    seen = []
    for moment in sorted({*early, *range(max(0, length - 8), length)}):
        thing = copy.deepcopy(taught)
        interrupt_at(moment, lambda: case.call(thing))  # noqa: B023 - called at once
        seen.append(case.look(thing))
        assert seen[-1] in (before, after), f"neither before nor after, at moment {moment} of {length}"
    assert before in seen


def _n_moments(case: Case, taught: Any) -> int:
    """How many moments a call has, by halving."""

    def reaches(moment: int) -> bool:
        thing = copy.deepcopy(taught)
        return interrupt_at(moment, lambda: case.call(thing))

    low, high = 0, 1
    while reaches(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return high
