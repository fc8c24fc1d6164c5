"""Thread safety and atomic calls of objects other than learners: hubs, sites, cubes, table models, parts."""

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
MAX_MOMENTS = 60  # moments of interruption per call


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


def test_concurrent_updates_of_hub_and_cube_are_not_lost():
    hub, cube = Hub(), StatisticsCube(["place"], "y", time="day")
    _at_once([lambda b=b: hub.receive(b) for b in _site_updates(4)])
    assert hub.statistics.n_rows == 4 * len(ROWS)
    _at_once([lambda: cube.add(documents.frame())] * 4)
    assert cube.n_rows == 4 * len(ROWS)


def test_concurrent_updates_of_shared_objects_are_not_lost():
    site = Site("north", "y", policy=ReleasePolicy.open())
    model = TableModel(ProximalSVC(), target="y").fit(ROWS)
    part = _part(ROWS, "first")
    _at_once([lambda: site.learn(ROWS)] * 4)
    assert site.publish().statistics.n_rows == 4 * len(ROWS)
    _at_once([lambda: model.partial_fit(ROWS)] * 4)
    assert model.estimator.class_count_.sum() == 5 * len(ROWS)
    assert sum(entry["rows"] for entry in model.history) == 5 * len(ROWS)
    others = [_part(documents.frame(30, seed=k), str(k)) for k in range(10, 14)]
    _at_once([lambda other=other: part.merge(other) for other in others])
    assert part.model.class_count_.sum() == len(ROWS) + 4 * 30
    assert len(part.sources) == 5


def test_concurrent_updates_from_parts_are_not_lost():
    learner = _part(ROWS, "first").model
    others = [
        statistics(unlearned(learner), [(frame[["a"]].to_numpy(), frame["y"].to_numpy())], source=str(k))
        for k in range(10, 14)
        for frame in [documents.frame(30, seed=k)]
    ]
    _at_once([lambda other=other: update(learner, [other]) for other in others])
    assert learner.class_count_.sum() == len(ROWS) + 4 * 30


def test_client_used_by_several_threads_returns_matching_responses():
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
    """An object, a call that changes it, and a function that returns its visible state."""

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
    before = copy.deepcopy(site)  # publishing changes the site
    moved, version = dict(before._n_changed), before.version
    return version, moved, before.publish().statistics.digest(), before.model.encoder.categories_


def _see_table_model(model: TableModel) -> Any:
    done = [(entry["what"], entry["rows"], entry.get("id")) for entry in model.history]
    return model.estimator.digest(), model.encoder.categories_, done


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
def test_interrupted_call_leaves_object_in_state_before_or_after_call(case):
    original = case.make()
    before, done = case.look(original), copy.deepcopy(original)
    case.call(done)
    after = case.look(done)
    assert before != after
    length = _n_moments(case, original)
    seed = random.Random(case.name)
    early = seed.sample(range(length), min(MAX_MOMENTS, length))
    seen = []
    for moment in sorted({*early, *range(max(0, length - 8), length)}):
        thing = copy.deepcopy(original)
        interrupt_at(moment, lambda: case.call(thing))  # noqa: B023 - called at once
        seen.append(case.look(thing))
        assert seen[-1] in (before, after), f"partially changed at moment {moment} of {length}"
    assert before in seen


def _n_moments(case: Case, original: Any) -> int:
    """Return the number of moments at which a call can be interrupted, found by bisection."""

    def reaches(moment: int) -> bool:
        thing = copy.deepcopy(original)
        return interrupt_at(moment, lambda: case.call(thing))

    low, high = 0, 1
    while reaches(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return high
