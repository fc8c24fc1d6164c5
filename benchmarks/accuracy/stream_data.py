"""Streams of two classes for ``streams.py``: real streams from a folder of datasets, and generated streams.

Real streams are read from ``<folder>/<name>.csv.gz`` (a header row, features, last column ``target``).
Datasets without a natural order are shuffled once with a fixed seed. Text columns become indicator columns.
Every stream is truncated to ``limit`` rows. Of long streams with rare events, the part with the most events
is used.

Experts and settings are chosen on half of the streams (``CHOOSING``), and results are reported on the other
half. Every second stream of this file belongs to ``CHOOSING``, so each family of streams is in both halves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from steelyard.streams import (
    SEA,
    Drift,
    Gaussians,
    GeneratedStream,
    ImbalanceSchedule,
    KOILMixture,
    RotatingHyperplane,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Rows = tuple[FloatArray, IntArray]
Pair = tuple[dict[object, float], object]


def _table(folder: Path, name: str) -> tuple[pd.DataFrame, pd.Series]:
    frame = pd.read_csv(folder / f"{name}.csv.gz")
    return frame.iloc[:, :-1], frame["target"]


def numbers(frame: pd.DataFrame) -> FloatArray:
    return np.ascontiguousarray(pd.get_dummies(frame, drop_first=True).fillna(0.0).to_numpy(dtype=np.float64))


def _real(
    name: str, positive: Callable[[pd.Series], pd.Series], *, shuffle: bool = False, densest: bool = False
) -> Callable[[Path, int], Rows]:
    def load(folder: Path, limit: int) -> Rows:
        frame, target = _table(folder, name)
        X, y = numbers(frame), positive(target).to_numpy().astype(np.int64)
        if shuffle:
            order = np.random.default_rng(0).permutation(len(y))
            X, y = X[order], y[order]
        begin = 0
        if densest and len(y) > limit:
            events = np.concatenate([[0], np.cumsum(y)])
            begin = int(np.argmax(events[limit:] - events[:-limit]))
        return np.ascontiguousarray(X[begin : begin + limit]), y[begin : begin + limit]

    return load


def _equals(value: object) -> Callable[[pd.Series], pd.Series]:
    return lambda target: target == value


def _ours(make: Callable[[int], GeneratedStream]) -> Callable[[Path, int], Rows]:
    return lambda _, limit: make(limit).rows(0, limit)


def _synth(
    make: Callable[[int], Iterator[Pair]],
    share: Callable[[FloatArray], FloatArray],
) -> Callable[[Path, int], Rows]:
    """Return rows of a river generator. ``share`` gives the share of positives at each relative position."""

    def load(_: Path, limit: int) -> Rows:
        rng = np.random.default_rng(0)
        wanted = rng.random(limit) < share(np.arange(limit) / limit)
        waiting: dict[bool, list[list[float]]] = {False: [], True: []}
        rows, source = [], iter(make(limit))
        for label in wanted.tolist():
            while not waiting[label]:
                x, y = next(source)
                kept = waiting[bool(y)]
                kept.append([float(v) for v in x.values()])
                del kept[:-50]  # rows must not be older than the concept
            rows.append(waiting[label].pop())
        return np.array(rows), wanted.astype(np.int64)

    return load


def _switching(
    *generators: Callable[[], object],
) -> Callable[[int], Iterator[Pair]]:
    """Yield rows of generators one after another, the same number of each. The last generator never ends."""

    def run(limit: int) -> Iterator[Pair]:
        each = 3 * limit // len(generators)
        for make in generators[:-1]:
            yield from islice(iter(make()), each)  # type: ignore[call-overload]
        yield from iter(generators[-1]())  # type: ignore[call-overload]

    return run


def _constant(share: float) -> Callable[[FloatArray], FloatArray]:
    return lambda at: np.full(len(at), share)


def _swinging(low: float, high: float) -> Callable[[FloatArray], FloatArray]:
    return lambda at: low + (high - low) * 0.5 * (1.0 + np.sin(4.0 * np.pi * at))


def _river(kind: str, **options: object) -> Callable[[], object]:
    def make() -> object:
        from river.datasets import synth

        return getattr(synth, kind)(**options)

    return make


_S = ImbalanceSchedule
STREAMS: dict[str, Callable[[Path, int], Rows]] = {
    "elec2": _real("elec2", _equals("UP")),
    "weather": _real("weather", _equals(1)),
    "covtype4": _real("covtype", _equals(4), densest=True),
    "covtype5": _real("covtype", _equals(5), densest=True),
    "nsl_kdd": _real("nsl_kdd_train20", lambda t: t != "normal"),
    "nsl_r2l": _real("nsl_kdd_test", lambda t: t.isin(["guess_passwd", "warezmaster", "warezclient"])),
    "http": _real("kdd99_http", _equals(1), densest=True),
    "smtp": _real("kdd99_smtp", _equals(1), densest=True),
    "mammography": _real("mammography", _equals(1), shuffle=True),
    "creditcard": _real("creditcard_part", _equals(1), shuffle=True),
    "oil": _real("oil_spill", _equals(1), shuffle=True),
    "euthyroid": _real("euthyroid_2000", _equals("sick-euthyroid"), shuffle=True),
    "abalone19": _real("abalone", _equals(19), shuffle=True),
    "yeast_me2": _real("yeast", _equals("ME2"), shuffle=True),
    "shuttle": _real("shuttle", _equals("Fpv Open")),
    "letter": _real("koil_letter", _equals(1)),
    "satimage": _real("koil_satimage", _equals(1)),
    "poker": _real("koil_poker", _equals(1)),
    "segment": _real("koil_segment", _equals(1)),
    "phishing": _real("phishing", _equals(1)),
    "gaussians_drift": _ours(lambda n: Gaussians(n, drifts=[Drift(n // 2)], distance=1.5, seed=3)),
    "gaussians_swing": _ours(
        lambda n: Gaussians(
            n, drifts=[Drift(n // 3), Drift(2 * n // 3)], schedule=_S.sine(0.01, 0.3, period=n // 2), seed=5
        )
    ),
    "hyperplane_turn": _ours(lambda n: RotatingHyperplane(n, turn=0.5, schedule=_S.constant(0.1), seed=2)),
    "hyperplane_rare": _ours(
        lambda n: RotatingHyperplane(n, turn=0.2, noise=0.01, schedule=_S.constant(0.03), seed=4)
    ),
    "sea_drifts": _ours(
        lambda n: SEA(n, drifts=[Drift(n // 4), Drift(n // 2), Drift(3 * n // 4)], noise=0.05, seed=1)
    ),
    "sea_rare": _ours(
        lambda n: SEA(n, drifts=[Drift(n // 2)], noise=0.01, schedule=_S.constant(0.02), seed=2)
    ),
    "koil_mixture": _ours(
        lambda n: KOILMixture(n, drifts=[Drift(n // 2)], schedule=_S.constant(0.05), seed=1)
    ),
    "koil_swing": _ours(
        lambda n: KOILMixture(
            n, drifts=[Drift(n // 2, n // 10)], schedule=_S.sine(0.01, 0.2, period=n // 2), seed=2
        )
    ),
    "agrawal": _synth(
        _switching(
            *(_river("Agrawal", seed=1, classification_function=f, perturbation=0.05) for f in (0, 3))
        ),
        _constant(0.05),
    ),
    "agrawal_swing": _synth(
        _switching(
            *(_river("Agrawal", seed=1, classification_function=f, perturbation=0.05) for f in (6, 2, 4))
        ),
        _swinging(0.02, 0.3),
    ),
    "rbf_drift": _synth(
        lambda _: iter(
            _river(
                "RandomRBFDrift",
                seed_model=1,
                seed_sample=1,
                n_features=10,
                n_centroids=30,
                change_speed=1e-4,
            )()
        ),  # type: ignore[call-overload]
        _constant(0.1),
    ),
    "rbf_still": _synth(
        lambda _: iter(
            _river(
                "RandomRBFDrift", seed_model=3, seed_sample=3, n_features=8, n_centroids=50, change_speed=0.0
            )()
        ),  # type: ignore[call-overload]
        _constant(0.02),
    ),
    "random_tree": _synth(
        lambda _: iter(
            _river("RandomTree", seed_tree=2, seed_sample=2, n_num_features=6, n_cat_features=3)()
        ),  # type: ignore[call-overload]
        _constant(0.1),
    ),
    "sine_flip": _synth(
        _switching(*(_river("Sine", seed=1, classification_function=f) for f in (0, 1))), _swinging(0.02, 0.2)
    ),
    "mixed_flip": _synth(
        _switching(*(_river("Mixed", seed=1, classification_function=f) for f in (0, 1))), _constant(0.1)
    ),
    "stagger_flip": _synth(
        _switching(*(_river("STAGGER", seed=1, classification_function=f) for f in (0, 1, 2))), _constant(0.1)
    ),
}

CHOOSING = frozenset(list(STREAMS)[::2])  # every second stream; results are reported on the others
