"""Time of a hub with many sites to apply one update, and size of a site update.

    python benchmarks/speed/bench_sites.py [--quick]

The hub has 1,000 sites with 100 numeric columns and two classes. One site publishes again, and the hub
updates its sum. Times are the minimum and the median of several changes.
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import numpy as np
import pandas as pd

from steelyard import ProximalSVC
from steelyard.federated import Hub, MaskedSum, Masker, ReleasePolicy, RoundKeys, Site, SiteUpdate
from steelyard.proximal import Quantizer

MAX_SECONDS = 0.050
MAX_BYTES = 30_000


def update_of(name: str, d: int, seed: int, n_rows: int = 300) -> SiteUpdate:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.normal(size=(n_rows, d)), columns=[f"x{k:03}" for k in range(d)])
    quantizer = Quantizer.uniform(d, 2.0**-34)
    site = Site(name, "y", policy=ReleasePolicy.open(), estimator=ProximalSVC(quantizer=quantizer))
    site.learn(rows.assign(y=rng.integers(0, 2, n_rows)))
    return site.publish()


def bench_change(n_sites: int, d: int, n_changes: int) -> None:
    """Measure the time until the hub has applied a new update of one site."""
    kinds = [update_of("s", d, seed) for seed in range(20)]  # fitting 1,000 sites would take minutes
    hub = Hub()
    for k in range(n_sites):
        hub.receive(dataclasses.replace(kinds[k % 20], site=f"s{k}", epoch=1, version=1))
    times, spent = [], []
    for change in range(n_changes):
        news = dataclasses.replace(kinds[(change * 7 + 3) % 20], site=f"s{change}", epoch=1, version=2)
        data = news.to_bytes()
        started, began = time.perf_counter(), time.process_time()
        hub.receive(data)
        times.append(time.perf_counter() - started)
        spent.append(time.process_time() - began)
    fresh = Hub()
    for name in hub.sites:
        fresh.receive(hub.site_update(name))
    assert hub.digest() == fresh.digest(), "the sum differs from that of the latest updates"
    met = "met" if min(times) <= MAX_SECONDS else "MISSED"
    what = f"{n_sites:,} sites, d = {d}, one changes"
    took = f"{1e3 * min(times):8.1f} ms, median {1e3 * np.median(times):.1f}"
    print(f"{what:<54}{took}, median CPU time {1e3 * np.median(spent):.1f} (target 50: {met})")


def bench_bytes(d: int, n_rows: int) -> None:
    """Measure the size of updates for typical columns and for values that use every bit of a double."""
    rng = np.random.default_rng(0)
    flags = rng.random((n_rows, d - 10)) < 0.1
    normals, mixing = rng.normal(size=(n_rows, d)), rng.normal(2, 3, (d, d))
    kinds = {
        "one value": np.full((n_rows, d), 3.7),
        "flags": (rng.random((n_rows, d)) < 0.1).astype(float),
        "whole numbers and flags": np.hstack([rng.integers(0, 3_000, (n_rows, 10)), flags]).astype(float),
        "whole numbers below 10**9": rng.integers(0, 10**9, (n_rows, d)).astype(float),
        "two digits, normal(50, 15)": np.round(50 + 15 * normals, 2),
        "two digits, normal(0, 1)": np.round(normals, 2),
        "two digits, lognormal": np.round(rng.lognormal(1, 1, (n_rows, d)), 2),
        "two digits, all correlated": np.round(normals @ mixing, 2),
        "single precision, normal(0, 1)": normals.astype(np.float32).astype(float),
        "all bits random, normal(0, 1)": normals,
        "all bits random, all correlated": normals @ mixing,
        "all bits random, nearly one column": normals[:, :1] + 1e-3 * rng.normal(size=(n_rows, d)),
        "all bits random, lognormal": rng.lognormal(1, 1, (n_rows, d)),
        "all bits random, Student's t(2)": rng.standard_t(2, (n_rows, d)),
        "all bits random, Cauchy": rng.standard_cauchy((n_rows, d)),
        "normal(0, 1), agreed steps of 2**-24": normals,
        "normal(0, 1), estimator's quantizer": normals,
    }
    labels = rng.integers(0, 2, n_rows)
    for what, X in kinds.items():
        quantizer = Quantizer.uniform(d, 2.0**-24) if "agreed" in what else None
        if (
            "estimator's quantizer" in what
        ):  # default quantizer of an estimator, for comparison: longer messages
            quantizer = ProximalSVC().fit(X[:256], labels[:256]).quantizer_
        site = Site("s", "y", policy=ReleasePolicy.open(), estimator=ProximalSVC(quantizer=quantizer))
        site.learn(pd.DataFrame(X, columns=[f"x{k:03}" for k in range(d)]).assign(y=labels))
        site_update = site.publish()
        started = time.perf_counter()
        data = site_update.to_bytes()
        written = time.perf_counter()
        assert SiteUpdate.from_bytes(data).statistics.digest() == site_update.statistics.digest()
        read = time.perf_counter()
        met = "met" if len(data) <= MAX_BYTES else "longer" if "own" in what else "MISSED"
        spent = f"{1e3 * (written - started):.0f} ms to write, {1e3 * (read - written):.0f} to read"
        print(f"{f'update, d = {d}: {what}':<54}{len(data):8,} bytes (target 30,000: {met}), {spent}")


def bench_masks(n_sites: int, d: int) -> None:
    """Measure the time of one site and of the hub for secure aggregation."""
    maskers = {f"s{k}": Masker(f"s{k}") for k in range(n_sites)}
    site_update = update_of("s", d, 0)
    keys = {name: masker.public_key for name, masker in maskers.items()}
    agreement = RoundKeys("bench", keys, site_update.schema, Quantizer.uniform(d, 2.0**-34), (0, 1))
    total, times = MaskedSum(agreement), []
    for name, masker in maskers.items():
        started = time.perf_counter()
        message = masker.mask(dataclasses.replace(site_update, site=name), agreement)
        times.append(time.perf_counter() - started)
        total.receive(message)
    started = time.perf_counter()
    total.total()
    summed = time.perf_counter() - started
    what = f"a secure sum of {n_sites} sites, d = {d}"
    each = f"{1e3 * min(times):8.1f} ms and {len(message):,} bytes per site"
    print(f"{what:<54}{each}, {1e3 * summed:.1f} ms for the sum")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    bench_change(100 if quick else 1_000, 100, 10 if quick else 40)
    bench_bytes(54, 20_000 if quick else 100_000)
    bench_masks(5 if quick else 20, 54)


if __name__ == "__main__":
    main()
