"""The protocol under everything that happens to messages: thousands of histories, compared by digest."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.proximal import ClassStatistics, Grid
from steelyard.sites import Bulletin, Hub
from steelyard.sites.bulletin import Schema

LANDS = np.array(["DE", "FR", "NZ"])
EVENTS = ("learn", "learn", "forget", "crash", "publish", "publish", "deliver", "deliver", "deliver", "drop")
N_HISTORIES = 10_000
N_PARTS = 10


def features(rows, categories):
    """Numbers first, then a flag for each category."""
    ages, lands, _ = rows
    return np.column_stack([ages, *(lands == value for _, value in categories)]).astype(float)


def statistics_of(chunks, categories):
    """One learner that saw these rows and nothing else."""
    grid = Grid.uniform(1 + len(categories), 2.0**-10)
    statistics = ClassStatistics(1 + len(categories), grid=grid)
    for rows in chunks:
        statistics.add(features(rows, categories), rows[2])
    return statistics


class Place:
    """A site without tables: rows in, rows out, a new category now and then, a disk that may be lost."""

    def __init__(self, name, epoch):
        self.name, self.epoch, self.version = name, epoch, 0
        self.chunks, self.categories = [], []
        self.statistics = statistics_of([], [])

    def learn(self, rng):
        n = int(rng.integers(1, 4))
        rows = rng.integers(160, 720, n) / 8, LANDS[rng.integers(0, 3, n)], rng.integers(0, 2, n)
        known = {value for _, value in self.categories}
        self.categories += [("land", str(value)) for value in dict.fromkeys(rows[1]) if value not in known]
        self.statistics.grow(1 + len(self.categories))
        self.statistics.add(features(rows, self.categories), rows[2])
        self.chunks.append(rows)

    def forget(self, rng):
        rows = self.chunks.pop(int(rng.integers(len(self.chunks))))
        self.statistics.remove(features(rows, self.categories), rows[2])

    def publish(self):
        self.version += 1
        schema = Schema("ill", ("age",), ("land",), tuple(self.categories))
        return Bulletin(self.name, self.epoch, self.version, schema, self.statistics.copy())


def play(seed):
    """One history; the hub, and the rows and categories behind the newest bulletin it got of each site."""
    rng = np.random.default_rng(seed)
    places = {name: Place(name, 1) for name in "abc"}
    hub, sent, behind, gone = Hub(), [], {}, {}
    for event in rng.choice(EVENTS, size=rng.integers(5, 30)):
        place = places["abc"[rng.integers(3)]]
        if event == "learn":
            place.learn(rng)
        elif event == "forget" and place.chunks:
            place.forget(rng)
        elif event == "crash":
            places[place.name] = Place(place.name, place.epoch + 1)
        elif event == "publish":
            sent.append((place.publish(), list(place.chunks)))
        elif event == "deliver" and sent:  # any of them: late, twice, out of order; many are never
            bulletin, rows = sent[rng.integers(len(sent))]
            known = behind[bulletin.site][0] if bulletin.site in behind else gone.get(bulletin.site, (-1, -1))
            assert hub.receive(bulletin) == (bulletin.age > known)
            if bulletin.age > known:
                behind[bulletin.site] = bulletin.age, rows, bulletin.schema.categories
        elif event == "drop" and place.name in behind:
            hub.drop(place.name)
            gone[place.name] = behind.pop(place.name)[0]
    return hub, behind


@pytest.mark.parametrize("part", range(N_PARTS))
def test_after_any_history_the_digest_is_that_of_one_learner_on_the_rows_behind(part):
    compared = 0
    for seed in range(part * N_HISTORIES // N_PARTS, (part + 1) * N_HISTORIES // N_PARTS):
        hub, behind = play(seed)
        assert hub.sites == sorted(behind)
        if behind:
            categories = sorted({pair for _, _, pairs in behind.values() for pair in pairs})
            rows = [chunk for _, chunks, _ in behind.values() for chunk in chunks]
            assert hub.digest() == statistics_of(rows, categories).digest(), f"history {seed}"
            compared += 1
    assert compared > N_HISTORIES / N_PARTS / 2, "most histories leave something to compare"
