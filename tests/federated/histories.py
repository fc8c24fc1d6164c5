"""Random histories of sites and messages, and the expected state of the hub after each.

Sites learn, forget, crash and rejoin with a new epoch, see new categories and change their columns. Messages
are lost, duplicated, late or reordered; some are sent as bytes. Sites are dropped and come back. In every
case the hub's digest must equal that of one estimator fitted on the rows of the last accepted updates.
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
    """Return the numbers followed by one indicator for each category."""
    numbers, lands, _ = rows
    return np.column_stack([numbers[:, :n_numbers], *(lands == value for _, value in categories)]).astype(
        float
    )


def statistics_of(chunks, n_numbers, categories):
    """Return the statistics of the rows of all chunks."""
    width = n_numbers + len(categories)
    statistics = ClassStatistics(width, quantizer=Quantizer.uniform(width, 2.0**-10))
    for rows in chunks:
        statistics.add(features(rows, n_numbers, categories), rows[2])
    return statistics


class FakeSite:
    """Minimal site without tables: learns and forgets random rows and sees new categories."""

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
    """Random history. ``accepted`` has age, rows and schema of the last accepted update of each site."""

    seed: int
    hub: Hub = field(default_factory=Hub)
    accepted: dict = field(default_factory=dict)
    gone: dict = field(default_factory=dict)
    counts: dict = field(default_factory=dict)

    def play(self):
        self.rng = np.random.default_rng(self.seed)
        self.sites, self.sent = {name: FakeSite(name, 1) for name in NAMES}, []
        for event in self.rng.choice(EVENTS, size=self.rng.integers(5, 40)):
            site = self.sites[NAMES[self.rng.integers(len(NAMES))]]
            getattr(self, event)(site)
        return self

    def count(self, event):
        self.counts[event] = self.counts.get(event, 0) + 1

    def learn(self, site):
        site.learn(self.rng)

    def forget(self, site):
        if site.chunks:
            site.forget(self.rng)
            self.count("forgotten")

    def crash(self, site):
        """Lose the state of a site, which rejoins with a new epoch and no rows."""
        self.sites[site.name] = FakeSite(site.name, site.epoch + 1, site.n_numbers)
        self.count("crash and rejoin")

    def columns(self, site):
        """Change the columns of one site, or of all sites, with a new epoch."""
        n_numbers = 3 - site.n_numbers
        for name in NAMES if self.rng.random() < 0.5 else [site.name]:
            self.sites[name] = FakeSite(name, self.sites[name].epoch + 1, n_numbers)
        self.count("schema change")

    def publish(self, site):
        self.sent.append((site.publish(), list(site.chunks)))

    def deliver(self, _site):
        """Deliver a random earlier message: late, twice or out of order. Many are never delivered."""
        if not self.sent:
            return
        site_update, rows = self.sent[self.rng.integers(len(self.sent))]
        name = site_update.site
        known = self.accepted[name][0] if name in self.accepted else self.gone.get(name, (-1, -1))
        is_newer = site_update.age > known
        others = [schema.numeric for other, (_, _, schema) in self.accepted.items() if other != name]
        message = site_update.to_bytes() if self.rng.random() < 0.25 else site_update
        if is_newer and any(numeric != site_update.schema.numeric for numeric in others):
            before = self.hub.digest()
            try:
                self.hub.receive(message)
            except DataError:
                assert self.hub.digest() == before, f"history {self.seed}: a rejected update changed the hub"
                self.count("columns rejected")
                return
            raise AssertionError(f"history {self.seed}: incompatible columns were accepted")
        assert self.hub.receive(message) == is_newer, f"history {self.seed}"
        self.count("accepted" if is_newer else "late or twice" if site_update.age < known else "twice")
        if is_newer:
            self.accepted[name] = site_update.age, rows, site_update.schema
            self.gone.pop(name, None)

    def drop(self, site):
        if site.name in self.accepted:
            self.hub.drop(site.name)
            self.gone[site.name] = self.accepted.pop(site.name)[0]
            self.count("dropped")


def check(seed):
    """Play a history, compare the hub with a single fit, and return the history."""
    history = History(seed).play()
    hub, accepted = history.hub, history.accepted
    assert hub.sites == sorted(accepted), f"history {seed}"
    assert hub.gone == history.gone, f"history {seed}"
    if accepted:
        categories = sorted({pair for _, _, schema in accepted.values() for pair in schema.categories})
        n_numbers = len(next(iter(accepted.values()))[2].numeric)
        rows = [chunk for _, chunks, _ in accepted.values() for chunk in chunks]
        expected = statistics_of(rows, n_numbers, categories)
        assert hub.digest() == expected.digest(), f"history {seed}"
    return history
