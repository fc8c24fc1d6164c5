"""Tables and sites shared by the tests."""

from __future__ import annotations

import numpy as np
import pandas as pd

from steelyard import ProximalSVC
from steelyard.federated import ReleasePolicy, Site
from steelyard.proximal import Quantizer

OPEN = ReleasePolicy.open()


def table(n, seed, countries=("DE", "FR")):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=n)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 90, size=n).astype(float),
            "country": rng.choice(list(countries), size=n),
            "pressure": rng.normal(size=n) + y,
            "ill": y,
        }
    )


def open_site(name, frame, epoch=1, quantizer=None):
    estimator = None if quantizer is None else ProximalSVC(quantizer=quantizer)
    site = Site(name, "ill", policy=OPEN, estimator=estimator, clock=lambda: epoch)
    site.learn(frame)
    return site


def numbers(n, seed):
    """Return a table without categories, so that all sites can use one quantizer."""
    return table(n, seed).drop(columns="country")


def agreed_site(name, frame, epoch=1):
    return open_site(name, frame, epoch, Quantizer.uniform(2, 2.0**-30))
