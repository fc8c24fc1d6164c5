"""Histories of sites and messages, and what the hub must hold after each.

Sites learn, forget, crash and rejoin with a new epoch, see new categories, change their columns; messages are
lost, doubled, late, out of order, some as bytes; sites are dropped and come back. Whatever happens, the hub's
digest is that of one learner on the rows behind the last bulletins that it took.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from steelyard.exceptions import DataError
from steelyard.federated import Hub, SiteUpdate
from steelyard.federated.site_update import Schema
from steelyard.proximal import ClassStatistics, Quantizer

__all__ = ["EVENTS", "History", "check"]

LANDS = np.array(["DE", "FR", "NZ"])
NAMES = "abc"
EVENTS = (
    *("learn", "learn", "learn", "forget", "crash", "columns", "publish", "publish", "publish"),
    *("deliver", "deliver", "deliver", "deliver", "deliver", "drop"),
)


def features(rows, n_numbers, categories):
    """Numbers first, then a flag for each category."""
    numbers, lands, _ = rows
    return np.column_stack([numbers[:, :n_numbers], *(lands == value for _, value in categories)]).astype(
        float
    )


def statistics_of(chunks, n_numbers, categories):
    """One learner that saw these rows and nothing else."""
    width = n_numbers + len(categories)
    statistics = ClassStatistics(width, quantizer=Quantizer.uniform(width, 2.0**-10))
    for rows in chunks:
        statistics.add(features(rows, n_numbers, categories), rows[2])
    return statistics


class Place:
    """A site without tables: rows in, rows out, a new category now and then, a disk that may be lost."""

    def __init__(self, name, epoch, n_numbers=1):
        self.name, self.epoch, self.version, self.n_numbers = name, epoch, 0, n_numbers
        self.chunks, self.categories = [], []
        self.statistics = statistics_of([], n_numbers, [])

    def learn(self, rng):
        n = int(rng.integers(1, 4))
        rows = rng.integers(160, 720, (n, 2)) / 8, LANDS[rng.integers(0, 3, n)], rng.integers(0, 2, n)
        known = {value for _, value in self.categories}
        self.categories += [("land", str(value)) for value in dict.fromkeys(rows[1]) if value not in known]
        self.statistics.grow(self.n_numbers + len(self.categories))
        self.statistics.add(features(rows, self.n_numbers, self.categories), rows[2])
        self.chunks.append(rows)

    def forget(self, rng):
        rows = self.chunks.pop(int(rng.integers(len(self.chunks))))
        self.statistics.remove(features(rows, self.n_numbers, self.categories), rows[2])

    def publish(self):
        self.version += 1
        numeric = ("age", "pressure")[: self.n_numbers]
        schema = Schema("ill", numeric, ("land",), tuple(self.categories))
        return SiteUpdate(self.name, self.epoch, self.version, schema, self.statistics.copy())


@dataclass
class History:
    """One history; ``behind`` has age, rows and schema of the last bulletin that was taken of each site."""

    seed: int
    hub: Hub = field(default_factory=Hub)
    behind: dict = field(default_factory=dict)
    gone: dict = field(default_factory=dict)
    counts: dict = field(default_factory=dict)

    def play(self):
        self.rng = np.random.default_rng(self.seed)
        self.places, self.sent = {name: Place(name, 1) for name in NAMES}, []
        for event in self.rng.choice(EVENTS, size=self.rng.integers(5, 40)):
            place = self.places[NAMES[self.rng.integers(len(NAMES))]]
            getattr(self, event)(place)
        return self

    def note(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def learn(self, place):
        place.learn(self.rng)

    def forget(self, place):
        if place.chunks:
            place.forget(self.rng)
            self.note("forgotten")

    def crash(self, place):
        """The disk is lost; the site rejoins with a new epoch and no rows."""
        self.places[place.name] = Place(place.name, place.epoch + 1, place.n_numbers)
        self.note("crash and rejoin")

    def columns(self, place):
        """A site has another column from now on, in a new life; now and then all of them agree on it."""
        n_numbers = 3 - place.n_numbers
        for name in NAMES if self.rng.random() < 0.5 else [place.name]:
            self.places[name] = Place(name, self.places[name].epoch + 1, n_numbers)
        self.note("schema change")

    def publish(self, place):
        self.sent.append((place.publish(), list(place.chunks)))

    def deliver(self, _place):
        """Any message that was ever sent: late, twice, out of order; many are never."""
        if not self.sent:
            return
        site_update, rows = self.sent[self.rng.integers(len(self.sent))]
        name = site_update.site
        known = self.behind[name][0] if name in self.behind else self.gone.get(name, (-1, -1))
        news = site_update.age > known
        others = [schema.numeric for other, (_, _, schema) in self.behind.items() if other != name]
        message = site_update.to_bytes() if self.rng.random() < 0.25 else site_update
        if news and any(numeric != site_update.schema.numeric for numeric in others):
            before = self.hub.digest()
            try:
                self.hub.receive(message)
            except DataError:
                assert self.hub.digest() == before, f"history {self.seed}: a refusal has changed something"
                self.note("columns refused")
                return
            raise AssertionError(f"history {self.seed}: columns that do not fit were taken")
        assert self.hub.receive(message) == news, f"history {self.seed}"
        self.note("taken" if news else "late or twice" if site_update.age < known else "twice")
        if news:
            self.behind[name] = site_update.age, rows, site_update.schema
            self.gone.pop(name, None)

    def drop(self, place):
        if place.name in self.behind:
            self.hub.drop(place.name)
            self.gone[place.name] = self.behind.pop(place.name)[0]
            self.note("dropped")


def check(seed):
    """Play a history and compare; returns it."""
    history = History(seed).play()
    hub, behind = history.hub, history.behind
    assert hub.sites == sorted(behind), f"history {seed}"
    assert hub.gone == history.gone, f"history {seed}"
    if behind:
        categories = sorted({pair for _, _, schema in behind.values() for pair in schema.categories})
        n_numbers = len(next(iter(behind.values()))[2].numeric)
        rows = [chunk for _, chunks, _ in behind.values() for chunk in chunks]
        one = statistics_of(rows, n_numbers, categories)
        assert hub.digest() == one.digest(), f"history {seed}"
    return history
