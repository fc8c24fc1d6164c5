r"""Noise with an account: what leaves a site tells little about any single row, and how little is a number.

Rows are clipped to norm 1 in units that are agreed beforehand, so one row changes the numbers that are
published, counts, sums and sums of products, by at most :math:`\sqrt 3` in all. Gaussian noise of
:math:`\sqrt 3\,z` on every number is then :math:`(\varepsilon, \delta)` private, with

.. math:: \delta = \Phi(1/2z - \varepsilon z) - e^{\varepsilon}\, \Phi(-1/2z - \varepsilon z),

and releases with multipliers :math:`z_1, z_2, \dots` together are as private as one with
:math:`1/z^2 = \sum 1/z_k^2`, exactly.

References
----------
Balle and Wang, *Improving the Gaussian mechanism for differential privacy*, ICML 2018 (the formula).
Dong, Roth and Su, *Gaussian differential privacy*, JRSS B 2022 (the sequence).
Wang, *Revisiting differentially private linear regression*, UAI 2018 (AdaSSP: noisy sums and a ridge).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.exceptions import DataError, ParameterError
from steelyard.federated.release import ReleasePolicy
from steelyard.federated.site import Site
from steelyard.federated.site_update import SiteUpdate
from steelyard.federated.vectors import from_numbers, to_numbers, triangle_size
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.state.quantizer import Quantizer

__all__ = [
    "SENSITIVITY",
    "FeatureBounds",
    "PrivacyAccountant",
    "PrivateSite",
    "epsilon_of",
    "multiplier_for",
    "repaired",
]

SENSITIVITY = math.sqrt(3.0)
"""By how much a row of norm 1 changes all numbers: 1 for its count, 1 for sums, 1 for sums of products."""

_BITS = 30  # values are counted in steps of 2**-30, so that noise of any useful size has many steps
_FRACTIONS = 20  # and weights in steps of 2**-20


def delta_of(epsilon: float, multiplier: float) -> float:
    """The smallest delta at which noise of ``multiplier`` sensitivities is (epsilon, delta) private."""
    half, shift = 0.5 / multiplier, epsilon * multiplier
    # Logarithms, because exp(epsilon) may be huge where the normal tail beside it is tiny.
    return float(math.exp(log_ndtr(half - shift)) - math.exp(epsilon + log_ndtr(-half - shift)))


def epsilon_of(multiplier: float, delta: float) -> float:
    """The smallest epsilon at that delta."""
    _check_delta(delta)
    if delta_of(0.0, multiplier) <= delta:
        return 0.0
    # At this epsilon zero-concentrated privacy promises delta already, so the root lies below.
    above = 0.5 / multiplier**2 + math.sqrt(-2.0 * math.log(delta)) / multiplier + 1e-9
    return float(brentq(lambda epsilon: delta_of(epsilon, multiplier) - delta, 0.0, above, xtol=1e-12))


def multiplier_for(epsilon: float, delta: float) -> float:
    """The least noise, in sensitivities, that is (epsilon, delta) private."""
    _check_delta(delta)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ParameterError(f"epsilon must be a positive number; got {epsilon!r}.", source="multiplier_for")
    low, high = 1e-3, 1.0
    while delta_of(epsilon, high) > delta:
        high *= 2.0
    while delta_of(epsilon, low) <= delta:
        low /= 2.0
    return float(brentq(lambda multiplier: delta_of(epsilon, multiplier) - delta, low, high, xtol=1e-12))


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ParameterError(f"delta must lie between 0 and 1; got {delta!r}.", source="privacy")


class PrivacyAccountant:
    """What a sequence of releases has cost, and how much it may.

    Parameters
    ----------
    epsilon : float
        All releases together never cost more.
    delta : float, default=1e-5
        At this delta.

    Examples
    --------
    >>> account = PrivacyAccountant(3.0, delta=1e-5)
    >>> account.charge(multiplier_for(1.0, 1e-5))
    >>> round(account.spent, 6)
    1.0
    >>> account.charge(multiplier_for(1.0, 1e-5))
    >>> round(account.spent, 3)  # less than 2: chance does not add up like the worst case
    1.465
    """

    def __init__(self, epsilon: float, delta: float = 1e-5) -> None:
        multiplier_for(epsilon, delta)  # refuses what makes no sense
        self.epsilon, self.delta = epsilon, delta
        self.releases = 0
        self._precision = 0.0  # sum of 1 / multiplier**2

    @property
    def spent(self) -> float:
        """Epsilon of all releases so far, at the account's delta."""
        return self._cost(self._precision)

    def _cost(self, precision: float) -> float:
        return epsilon_of(precision**-0.5, self.delta) if precision else 0.0

    def charge(self, multiplier: float) -> None:
        """Book a release; one that the account does not hold is refused and not booked."""
        self.check(multiplier)
        self._precision += multiplier**-2
        self.releases += 1

    def check(self, multiplier: float) -> None:
        """Refuse a release that the account does not hold."""
        cost = self._cost(self._precision + multiplier**-2)
        if cost > self.epsilon * (1.0 + 1e-9):
            raise DataError(
                f"the release would bring the account to epsilon {cost:.3g} at delta {self.delta:g}; "
                f"{self.epsilon:g} are allowed, {self.spent:.3g} are spent.",
                source="PrivacyAccountant",
                hint="rows that were published cannot be called back: use more noise or stop publishing",
            )

    def __repr__(self) -> str:
        spent = f"epsilon={self.spent:.3g} of {self.epsilon:g}"
        return f"PrivacyAccountant({spent}, delta={self.delta:g}, releases={self.releases})"


@dataclass(frozen=True)
class FeatureBounds:
    """Centres and scales of columns, agreed on and not learned: learning them would tell of rows.

    Attributes
    ----------
    centers, scales : mapping of str to float
        Of each column; what is usual is enough.
    norm : float
        Rows farther than this from the centre, in scales, are pulled in to it.
    """

    centers: Mapping[str, float]
    scales: Mapping[str, float]
    norm: float

    def __post_init__(self) -> None:
        if not self.centers or set(self.centers) != set(self.scales):
            raise ParameterError("centers and scales must name the same columns.", source="FeatureBounds")
        numbers = [*self.scales.values(), self.norm]
        if not (np.isfinite([*self.centers.values(), *numbers]).all() and min(numbers) > 0):
            raise ParameterError(
                "scales and norm must be positive, all numbers finite.", source="FeatureBounds"
            )

    @property
    def quantizer(self) -> Quantizer:
        """The steps in which clipped rows are counted."""
        return Quantizer.uniform(len(self.centers), 2.0**-_BITS)

    def clip(self, table: Any) -> Any:
        """A copy of a data frame with these columns as rows of norm at most 1; other columns stay."""
        names = list(self.centers)
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise DataError(f"there is no column {missing[0]!r}.", source="FeatureBounds.clip")
        rows = table[names].to_numpy(dtype=np.float64)
        if not np.isfinite(rows).all():
            raise DataError("columns of numbers must be finite, without gaps.", source="FeatureBounds.clip")
        centers = np.array([self.centers[name] for name in names])
        scales = np.array([self.scales[name] for name in names])
        rows = (rows - centers) / scales / self.norm
        # A little below 1: each value is rounded to the grid later, by half a step.
        limit = 1.0 - 2.0**-_BITS * math.sqrt(len(names))
        rows *= limit / np.maximum(limit, np.linalg.norm(rows, axis=1, keepdims=True))
        return table.assign(**dict(zip(names, rows.T, strict=True)))


class PrivateSite:
    """A site whose bulletins are noisy, and which keeps the account.

    Classes are named beforehand and no class is held back: whether a class is there would tell of its rows. A
    row is protected, added or taken away; someone with k rows has k times the distance.

    Parameters
    ----------
    name, target : str
        As for :class:`Site`.
    units : FeatureBounds
        Of the columns of numbers; other columns than these and the target are not taken.
    labels : sequence of label
        All classes.
    epsilon : float
        Of one bulletin.
    account : PrivacyAccountant
        Of all of them.
    share : float, default=1.0
        Of the noise, as a part of its variance. Under secure sums n honest sites may bring 1 / n each: only
        the sum is seen. Such bulletins must not be sent unmasked.
    randomness : callable, default=os.urandom
        Gives so many random bytes; anything but the default is for trials.
    """

    def __init__(
        self,
        name: str,
        target: str,
        *,
        units: FeatureBounds,
        labels: Sequence[Label],
        epsilon: float,
        account: PrivacyAccountant,
        share: float = 1.0,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if not 0.0 < share <= 1.0:
            raise ParameterError(f"share must lie in (0, 1]; got {share!r}.", source="PrivateSite")
        self.units, self.labels, self.account, self.share = units, list(labels), account, share
        self.multiplier = multiplier_for(epsilon, account.delta)
        self._random = randomness
        self._site = Site(
            name, target, policy=ReleasePolicy.open(), learner=ProximalSVC(quantizer=units.quantizer)
        )

    @property
    def name(self) -> str:
        """What the hub calls it."""
        return self._site.name

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on every number, in units of clipped rows."""
        return SENSITIVITY * self.multiplier * math.sqrt(self.share)

    def learn(self, table: Any) -> int:
        """Learn the rows of a data frame, clipped; returns their number."""
        return self._site.learn(self._clipped(table))

    def forget(self, table: Any) -> int:
        """Unlearn rows of before; returns their number."""
        return self._site.forget(self._clipped(table))

    def _clipped(self, table: Any) -> Any:
        clipped = self.units.clip(table)
        target = self._site.model.target
        strange = set(np.unique(table[target]).tolist()) - set(self.labels)
        if strange:
            raise DataError(
                f"class {min(strange, key=str)!r} is none of those agreed on, {self.labels}.",
                source=f"PrivateSite {self.name!r}",
            )
        return clipped[[*self.units.centers, target]]

    def publish(self) -> SiteUpdate:
        """A noisy bulletin, booked in the account; one that costs too much is refused."""
        self.account.check(self.multiplier)
        site_update, source = self._site.publish(), f"PrivateSite {self.name!r}"
        numbers = to_numbers(site_update.statistics, self.labels, self.units.quantizer, source)
        self.account.charge(self.multiplier)
        noisy = [number + noise for number, noise in zip(numbers, self._noise(), strict=True)]
        statistics = from_numbers(noisy, self.labels, self.units.quantizer)
        return SiteUpdate(
            site_update.site, site_update.epoch, site_update.version, site_update.schema, statistics
        )

    def _noise(self) -> list[int]:
        """Noise in the steps of each number.

        A whole number plus rounded noise is the rounded sum of both, so what is published is made of the
        noisy numbers alone and its last bits tell nothing.
        """
        width = len(self.units.centers)
        steps = np.tril(np.full((width + 1, width + 1), 2 * _BITS))
        steps[-1, :-1], steps[-1, -1] = _BITS, 0
        powers = np.tile(steps[np.tril_indices(width + 1)], len(self.labels))
        n_numbers = len(self.labels) * triangle_size(width)
        uniform = np.frombuffer(self._random(8 * n_numbers), dtype="<u8") >> np.uint64(11)
        normal = ndtri((uniform.astype(np.float64) + 0.5) * 2.0**-53)
        scaled = np.ldexp(self.sigma * normal, powers + _FRACTIONS)
        return [round(float(value)) for value in scaled]

    def __repr__(self) -> str:
        return f"PrivateSite({self.name!r}, {self.account!r})"


def repaired(statistics: ClassStatistics, sigma: float) -> ClassStatistics:
    """Noisy sums made such that a model can be solved from them; of rows it uses nothing more.

    Noise may leave variances below zero. Each class gets a count of at least 1; its scatter about the mean
    loses what is below zero and gets a ridge of the size of the noise, as in AdaSSP.

    Parameters
    ----------
    statistics : ClassStatistics
        The sum of noisy bulletins.
    sigma : float
        Standard deviation of the noise in it: of n bulletins, ``sqrt(n)`` times that of one.
    """
    quantizer, labels = statistics.quantizer, statistics.classes
    numbers: list[int] = []
    for label in labels:
        numbers += _repaired_class(statistics.gram(label), sigma, quantizer)
    return from_numbers(numbers, labels, quantizer)


def _repaired_class(gram: FloatArray, sigma: float, quantizer: Quantizer) -> list[int]:
    count = max(1.0, float(gram[-1, -1]))
    mean = -gram[-1, :-1] / count
    mean /= max(1.0, float(np.linalg.norm(mean)))  # clipped rows have no mean beyond 1
    scatter = gram[:-1, :-1] - count * np.outer(mean, mean)
    values, vectors = np.linalg.eigh((scatter + scatter.T) / 2.0)
    ridge = sigma * math.sqrt(len(mean))
    scatter = (vectors * (np.maximum(values, 0.0) + ridge)) @ vectors.T
    full = np.empty_like(gram)
    full[:-1, :-1] = scatter + count * np.outer(mean, mean)
    full[-1, :-1], full[-1, -1] = count * mean, count
    exponents = np.append(-quantizer.exponents, 0)
    powers = exponents[:, None] + exponents + _FRACTIONS
    lower = np.tril_indices(len(full))  # all that was filled in
    steps = np.ldexp(full[lower], powers[lower])
    return [round(float(value)) for value in steps]
