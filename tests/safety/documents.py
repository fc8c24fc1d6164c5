"""Documents other than learners: table models, cubes, parts, site messages, certificates, service specs."""

from __future__ import annotations

import contextlib
import functools
import json
import struct
import tomllib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from steelyard import IncrementalSVC, ProximalSVC, RandomFeatures, StreamClassifier
from steelyard.distributed.files import statistics
from steelyard.exceptions import FileFormatError, SteelyardError
from steelyard.federated import Hub, ReleasePolicy, Site, SiteUpdate
from steelyard.federated.masks import MaskedSum, Masker, RoundKeys
from steelyard.federated.rounds import RoundConfig
from steelyard.federated.site_update import _LENGTH, _START, _digest
from steelyard.persistence import from_bytes, to_bytes
from steelyard.proximal import Certificate, ClassStatistics, Quantizer
from steelyard.service.spec import Spec
from steelyard.sql import StatisticsCube
from steelyard.tables import TableEncoder, TableModel
from tests.safety.mutation import changed_json, changed_tree, flip_bits

__all__ = ["FILES", "SPECS", "frame", "made", "trial", "with_header"]

FILES = ["table model proximal", "table model mapped", "table model kernel", "cube", "part", "statistics"]

Change = Callable[[bytes, np.random.Generator], bytes]


@dataclass(frozen=True)
class Document:
    """Untrusted bytes, with functions that mutate, read and use them."""

    data: bytes
    change: Change | None  # mutation of the bytes; None for a steelyard file
    read: Callable[[bytes], Any]
    uses: tuple[Callable[[Any], object], ...]


def trial(rng: np.random.Generator, damaged: Change) -> bool:
    """Assert that a mutated document is rejected with an error message or can be used."""
    names = list(made())
    name = names[rng.integers(len(names))]
    document = made()[name]
    data = (document.change or damaged)(document.data, rng)
    try:
        read = document.read(data)
    except SteelyardError as error:
        assert len(str(error)) > 15, f"{name}: the message is too short: {error}"
        return False
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {str(error)[:200]}") from error
    for number, use in enumerate(document.uses):
        try:
            with contextlib.suppress(SteelyardError):
                use(read)
        except Exception as error:
            raise AssertionError(
                f"{name}, use {number}: {type(error).__name__}: {str(error)[:200]}"
            ) from error
    return True


def frame(n: int = 60, seed: int = 0) -> pd.DataFrame:
    """Return rows with numbers, words, a location, a time and a label."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return pd.DataFrame(
        {
            "a": (rng.normal(size=n) + y).round(2),
            "b": rng.choice(["red", "blue", "grün"], size=n),
            "place": rng.choice(["A", "B"], size=n),
            "day": [f"2026-05-0{1 + k % 4}" for k in range(n)],
            "y": y,
        }
    )


@functools.cache
def made() -> dict[str, Document]:
    return dict(_all())


def _all() -> Iterator[tuple[str, Document]]:
    yield from _files()
    yield from _messages()
    X, y = frame()[["a"]].to_numpy(), frame()["y"].to_numpy()
    left = ProximalSVC(quantizer=Quantizer.uniform(1, 2.0**-20)).fit(X, y)
    certificate = left.certify_forget(X[:4], y[:4])
    yield (
        "certificate",
        Document(
            certificate.to_json().encode(),
            changed_json,
            Certificate.from_json,
            (Certificate.to_json, lambda c: c.holds_for(X[4:], y[4:])),
        ),
    )
    terms = RoundConfig.of(
        ["n", "s", "w"], target="y", numbers=["a"], categories={"b": ["red", "blue"]}, labels=[0, 1]
    )
    yield (
        "terms",
        Document(
            terms.to_json("r"),
            changed_json,
            lambda data: RoundConfig.from_json(data, "r"),
            (lambda t: t.site("n").learn(frame()[["a", "b", "y"]]), lambda t: t.to_json("r")),
        ),
    )
    for name, text in SPECS.items():
        yield (
            f"spec {name}",
            Document(
                json.dumps(tomllib.loads(text)).encode(),
                changed_json,
                _spec,
                (lambda s: json.dumps(s.as_dict()), lambda s: s.make_learner().partial_fit(X, y)),
            ),
        )


SPECS = {
    "plain": 'target = "y"\ntime = "day"\nsubject = "who"\nid = "row"\nmemory = "30d"\nmissing = "mean"',
    "columns": 'target = "y"\nrows = "none"\n[columns]\na = "number"\nb = "category"\n'
    '[learner]\nclass = "ProximalSVC"\nC = 2.0\nthreshold = "gmean"\nfeatures = 20',
    "kernel": 'target = "y"\nmemory = 50\n[learner]\nclass = "IncrementalSVC"\ngamma = 0.5\nC = 1.0',
    "fading": 'target = "y"\nmemory = {half_life = 20}\n[learner]\nclass = "ProximalSVC"',
    "drift": 'target = "y"\nmemory = "drift"\n[learner]\nclass = "ProximalSVC"\nclass_weight = "balanced"',
    "buffers": 'target = "y"\n[learner]\nclass = "KOIL"\nbudget = 10\ngamma = 1.0',
    "kernels": 'target = "y"\n[learner]\nclass = "MultiKernelKOIL"\nbudget = 6\n'
    'kernels = [{kernel = "rbf", gamma = 0.5}, {kernel = "linear"}]',
    "spheres": 'target = "y"\n[learner]\nclass = "EnclosingClassifier"\nshape = "sphere"',
    "ensemble": 'target = "y"\n[learner]\nclass = "StreamClassifier"',
    "sites": 'target = "y"\nsites = true',
}


def _spec(data: bytes) -> Spec:
    try:
        values = json.loads(data)
    except ValueError as error:
        raise FileFormatError("the spec is not JSON.") from error
    return Spec.from_mapping(values)


# -- files ------------------------------------------------------------------------------------------------


def _files() -> Iterator[tuple[str, Document]]:
    rows = frame()[["a", "b", "y"]]
    more = frame(20, seed=1)
    for name, learner in {
        "proximal": ProximalSVC(track_rows=True),
        "mapped": ProximalSVC(feature_map=RandomFeatures(6, kind="rbf", random_state=0)),
        "kernel": IncrementalSVC(gamma=0.5),
        "ensemble": StreamClassifier(),
    }.items():
        yield f"table model {name}", _file(_table_model(learner, rows), _predicted(rows), _learn(rows))
    cube = StatisticsCube(["place"], "y", time="day").add(frame())
    uses = (
        lambda c: c.cells,
        lambda c: c.model(place="A").estimator.predict(np.zeros((1, 4))),
        lambda c: c.compare("place"),
        lambda c: c.add(more),
        lambda c: c.forget(frame()[:3]),
        lambda c: c.merge(cube),
        lambda c: from_bytes(to_bytes(c)).model(),
    )
    yield "cube", _file(cube, *uses)
    folded = StatisticsCube(["place"], "y", folds=3).add(frame().drop(columns="day"))
    yield "cube with folds", _file(folded, lambda c: c.model(place="A", borrow="auto"), uses[0], uses[6])
    X, y = rows[["a"]].to_numpy(), rows["y"].to_numpy()
    part = statistics(ProximalSVC(), [(X, y)], source="here")
    other = statistics(ProximalSVC(), [(X + 1, y)], source="there")
    yield "part", _file(part, lambda p: p.merge(other), lambda p: p.model.predict(X), lambda p: p.sources)


def _file(made: Any, *uses: Callable[[Any], object]) -> Document:
    return Document(to_bytes(made), None, from_bytes, uses)


def _table_model(learner: Any, rows: pd.DataFrame) -> TableModel:
    model = TableModel(learner, TableEncoder(), "y")
    for chunk in model.open(rows, labelled=True):
        learner.partial_fit(chunk.X, chunk.y)
    return model.note("fit", "rows", len(rows))


def _predicted(rows: pd.DataFrame) -> Callable[[Any], object]:
    def ask(model: Any) -> object:
        return [model.estimator.predict(chunk.X) for chunk in model.open(rows[:5], labelled=False)]

    return ask


def _learn(rows: pd.DataFrame) -> Callable[[Any], object]:
    def teach(model: Any) -> None:
        for chunk in model.open(rows[:5], labelled=True):
            model.estimator.partial_fit(chunk.X, chunk.y)

    return teach


# -- messages ---------------------------------------------------------------------------------------------


def _site(name: str, rows: pd.DataFrame, quantizer: Quantizer | None = None) -> Site:
    learner = ProximalSVC(quantizer=quantizer)
    site = Site(name, "y", policy=ReleasePolicy.open(), estimator=learner, clock=lambda: 5)
    site.learn(rows)
    return site


def _messages() -> Iterator[tuple[str, Document]]:
    X, y = frame()[["a"]].to_numpy(), frame()["y"].to_numpy()
    learner = ProximalSVC(track_rows=True).fit(X, y)
    sums = learner.statistics_
    yield (
        "statistics",
        Document(
            sums.to_bytes(),
            None,
            ClassStatistics.from_bytes,
            (lambda s: ProximalSVC().merge(s).predict(X), lambda s: s.digest(), lambda s: s.add(X, y)),
        ),
    )
    rows = frame()[["a", "b", "y"]]
    neighbour = _site("south", frame(70, seed=2)[["a", "b", "y"]]).publish()
    site_update = _site("north", frame(300)[["a", "b", "y"]]).publish()
    uses = (
        lambda b: Hub().receive(b),
        lambda b: _pooled(neighbour, b).model().estimator.predict(np.zeros((1, 4))),
        lambda b: _pooled(neighbour, b).compare(),
        lambda b: _pooled(neighbour, b).explain(),
        lambda b: _pooled(neighbour, b).drop(b.site),
        lambda b: SiteUpdate.from_bytes(b.to_bytes()),
        lambda b: _site("north", rows).resume(b),
    )
    yield "site_update", Document(site_update.to_bytes(), _changed_site_update, SiteUpdate.from_bytes, uses)
    yield "round", _round()


def _pooled(*site_updates: SiteUpdate) -> Hub:
    hub = Hub()
    for site_update in site_updates:
        hub.receive(site_update)
    assert float(hub.statistics.n_rows) == sum(float(b.statistics.n_rows) for b in site_updates)
    return hub


def _changed_site_update(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a site update with a mutated header or mutated sums and a valid checksum."""
    (length,) = _LENGTH.unpack_from(data, _START.size)
    begin = _START.size + _LENGTH.size
    header, sums = data[begin : begin + length], bytearray(data[begin + length :])
    if rng.random() < 0.7:
        tree = json.loads(zlib.decompress(header))
        for _ in range(rng.integers(1, 3)):
            tree = changed_tree(tree, rng)
        header = zlib.compress(json.dumps(tree).encode(), 9)
    else:
        flip_bits(sums, rng, 0)
    return _sealed(data, header, bytes(sums))


def with_header(tree: dict[str, Any], data: bytes) -> bytes:
    """Return a site update with the header ``tree`` and a valid checksum."""
    (length,) = _LENGTH.unpack_from(data, _START.size)
    sums = data[_START.size + _LENGTH.size + length :]
    return _sealed(data, zlib.compress(json.dumps(tree).encode(), 9), sums)


def _sealed(data: bytes, header: bytes, sums: bytes) -> bytes:
    body = struct.pack("<I", len(header)) + header + sums
    return _START.pack(data[:4], data[4], _digest(body)) + body


def _round() -> Document:
    """Return a masked message of a secure-aggregation round, as the hub receives it."""
    quantizer = Quantizer.uniform(1, 2.0**-20)
    rows = frame()[["a", "y"]]
    maskers = [Masker(name) for name in ("n", "s", "w")]
    site_updates = [_site(masker.site, rows, quantizer).publish() for masker in maskers]
    agreement = RoundKeys(
        "r", {masker.site: masker.public_key for masker in maskers}, site_updates[0].schema, quantizer, (0, 1)
    )
    messages = [m.mask(b, agreement) for m, b in zip(maskers, site_updates, strict=True)]

    def receive(data: bytes) -> MaskedSum:
        total = MaskedSum(agreement)
        total.receive(data)
        return total

    return Document(
        messages[0],
        None,
        receive,
        (
            lambda t: [t.receive(message) for message in messages[1:]],
            lambda t: t.total(),
            lambda t: t.withdraw(maskers[0].receipt("r")),
        ),
    )
