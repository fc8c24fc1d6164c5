r"""Differential privacy: Gaussian noise on published statistics, and an accountant of the budget.

Rows are scaled to agreed units and clipped to norm 1. One row then changes the published numbers (counts,
sums and sums of products) by at most :math:`\sqrt 3` in Euclidean norm. Gaussian noise with standard
deviation :math:`\sqrt 3\,z` on every number is :math:`(\varepsilon, \delta)` differentially private with

.. math:: \delta = \Phi(1/2z - \varepsilon z) - e^{\varepsilon}\, \Phi(-1/2z - \varepsilon z).

Releases with noise multipliers :math:`z_1, z_2, \dots` compose exactly to one release with
:math:`1/z^2 = \sum 1/z_k^2`.

References
----------
Balle and Wang, *Improving the Gaussian mechanism for differential privacy*, ICML 2018 (the formula).
Dong, Roth and Su, *Gaussian differential privacy*, JRSS B 2022 (composition).
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
from steelyard.federated.packing import from_numbers, to_numbers
from steelyard.federated.site import ReleasePolicy, Site
from steelyard.federated.site_update import SiteUpdate
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.quantizer import WEIGHT_FRACTION_BITS, Quantizer
from steelyard.proximal.serialization import triangle_size

SENSITIVITY = math.sqrt(3.0)
"""Sensitivity of the published numbers to one row of norm 1.

It is the square root of 1 (count) + 1 (sums) + 1 (products).
"""

_VALUE_BITS = 30  # values are multiples of 2**-30, which is far below any useful noise


def delta_of(epsilon: float, multiplier: float) -> float:
    """Return the smallest delta for which a noise multiplier is (epsilon, delta) private."""
    half, shift = 0.5 / multiplier, epsilon * multiplier
    # Logarithms avoid overflow: exp(epsilon) can be huge while the normal tail is tiny.
    return float(math.exp(log_ndtr(half - shift)) - math.exp(epsilon + log_ndtr(-half - shift)))


def epsilon_of(multiplier: float, delta: float) -> float:
    """Return the smallest epsilon for which a noise multiplier is (epsilon, delta) private."""
    _check_delta(delta)
    if delta_of(0.0, multiplier) <= delta:
        return 0.0
    # Zero-concentrated differential privacy guarantees delta at this epsilon, so the solution is smaller.
    upper = 0.5 / multiplier**2 + math.sqrt(-2.0 * math.log(delta)) / multiplier + 1e-9
    return float(brentq(lambda epsilon: delta_of(epsilon, multiplier) - delta, 0.0, upper, xtol=1e-12))


def multiplier_for(epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier (noise / sensitivity) that is (epsilon, delta) private."""
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
        raise ParameterError(f"delta must be between 0 and 1; got {delta!r}.", source="privacy")


class PrivacyAccountant:
    """Privacy accountant: tracks the epsilon of a sequence of releases against a budget.

    Parameters
    ----------
    epsilon : float
        Privacy budget of all releases together.
    delta : float, default=1e-5
        Delta at which epsilon is computed.

    Examples
    --------
    >>> account = PrivacyAccountant(3.0, delta=1e-5)
    >>> account.charge(multiplier_for(1.0, 1e-5))
    >>> round(account.spent, 6)
    1.0
    >>> account.charge(multiplier_for(1.0, 1e-5))
    >>> round(account.spent, 3)  # less than 2, because composition is better than the sum
    1.465
    """

    def __init__(self, epsilon: float, delta: float = 1e-5) -> None:
        multiplier_for(epsilon, delta)  # raises an error if epsilon or delta is invalid
        self.epsilon, self.delta = epsilon, delta
        self.releases = 0
        self._precision = 0.0  # sum of 1 / multiplier**2 over all releases

    @property
    def spent(self) -> float:
        """Epsilon of all releases so far, at the accountant's delta."""
        return self._cost(self._precision)

    def _cost(self, precision: float) -> float:
        return epsilon_of(precision**-0.5, self.delta) if precision else 0.0

    def charge(self, multiplier: float) -> None:
        """Record a release; raise DataError without recording it if it exceeds the budget."""
        self.check(multiplier)
        self._precision += multiplier**-2
        self.releases += 1

    def check(self, multiplier: float) -> None:
        """Raise DataError if a release would exceed the budget."""
        cost = self._cost(self._precision + multiplier**-2)
        if cost > self.epsilon * (1.0 + 1e-9):
            raise DataError(
                f"the release would raise epsilon to {cost:.3g} at delta {self.delta:g}; the budget is "
                f"{self.epsilon:g}, of which {self.spent:.3g} is spent.",
                source="PrivacyAccountant",
                hint="published statistics cannot be withdrawn: use more noise or stop publishing",
            )

    def __repr__(self) -> str:
        spent = f"epsilon={self.spent:.3g} of {self.epsilon:g}"
        return f"PrivacyAccountant({spent}, delta={self.delta:g}, releases={self.releases})"


@dataclass(frozen=True)
class FeatureBounds:
    """Centers and scales of the columns, which all sites agree on in advance.

    They must not be estimated from the rows, because that would reveal information about the rows.

    Attributes
    ----------
    centers, scales : mapping of str to float
        Typical value and typical deviation of each column.
    norm : float
        Maximum distance of a row from the center, in units of the scales. Rows farther away are clipped.
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
                "scales and norm must be positive, and all numbers must be finite.", source="FeatureBounds"
            )

    @property
    def quantizer(self) -> Quantizer:
        """Quantizer of the clipped rows."""
        return Quantizer.uniform(len(self.centers), 2.0**-_VALUE_BITS)

    def clip(self, table: Any) -> Any:
        """Return a copy of a data frame whose rows are scaled and clipped to norm 1 in the bounded columns.

        Other columns are unchanged.
        """
        names = list(self.centers)
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise DataError(f"there is no column {missing[0]!r}.", source="FeatureBounds.clip")
        rows = table[names].to_numpy(dtype=np.float64)
        if not np.isfinite(rows).all():
            raise DataError(
                "numeric columns must be finite and have no missing values.", source="FeatureBounds.clip"
            )
        centers = np.array([self.centers[name] for name in names])
        scales = np.array([self.scales[name] for name in names])
        rows = (rows - centers) / scales / self.norm
        # The limit is slightly below 1, because quantization later moves each value by up to half a step.
        limit = 1.0 - 2.0**-_VALUE_BITS * math.sqrt(len(names))
        rows *= limit / np.maximum(limit, np.linalg.norm(rows, axis=1, keepdims=True))
        return table.assign(**dict(zip(names, rows.T, strict=True)))


class PrivateSite:
    """Differentially private site, which adds noise to its updates and charges a privacy accountant.

    The classes are fixed in advance and no class is withheld, because a missing class reveals information.
    Privacy holds for adding or removing one row. For a person with k rows the sensitivity is k times larger.

    Parameters
    ----------
    name, target : str
        As for :class:`Site`.
    units : FeatureBounds
        Bounds of the numeric columns. Columns without bounds, other than the target, are ignored.
    labels : sequence of label
        All classes.
    epsilon : float
        Epsilon of one update.
    account : PrivacyAccountant
        Accountant of all updates.
    share : float, default=1.0
        Fraction of the noise variance that this site adds. With secure aggregation, each of n honest sites
        may add 1 / n, because only the sum is visible. Updates with a share below 1 must not be sent without
        masks.
    randomness : callable, default=os.urandom
        Returns a given number of random bytes. Replace the default only in experiments.
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
            raise ParameterError(f"share must be in (0, 1]; got {share!r}.", source="PrivateSite")
        self.units, self.labels, self.account, self.share = units, list(labels), account, share
        self.multiplier = multiplier_for(epsilon, account.delta)
        self._random = randomness
        self._site = Site(
            name, target, policy=ReleasePolicy.open(), estimator=ProximalSVC(quantizer=units.quantizer)
        )

    @property
    def name(self) -> str:
        """Name of the site at the hub."""
        return self._site.name

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on every number, for rows clipped to norm 1."""
        return SENSITIVITY * self.multiplier * math.sqrt(self.share)

    def learn(self, table: Any) -> int:
        """Clip and learn the rows of a data frame; return their number."""
        return self._site.learn(self._clipped(table))

    def forget(self, table: Any) -> int:
        """Forget rows that were learned before; return their number."""
        return self._site.forget(self._clipped(table))

    def _clipped(self, table: Any) -> Any:
        clipped = self.units.clip(table)
        target = self._site.model.target
        unknown = set(np.unique(table[target]).tolist()) - set(self.labels)
        if unknown:
            raise DataError(
                f"class {min(unknown, key=str)!r} is not among the agreed labels {self.labels}.",
                source=f"PrivateSite {self.name!r}",
            )
        return clipped[[*self.units.centers, target]]

    def publish(self) -> SiteUpdate:
        """Return a noisy update and charge the accountant; raise DataError if the budget is exceeded."""
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
        """Return the noise of each number in quantization steps.

        Adding rounded noise to an integer gives the same result as rounding the noisy number. The published
        integers are therefore a function of the noisy numbers alone, and their last bits reveal nothing else.
        """
        width = len(self.units.centers)
        steps = np.tril(np.full((width + 1, width + 1), 2 * _VALUE_BITS))
        steps[-1, :-1], steps[-1, -1] = _VALUE_BITS, 0
        powers = np.tile(steps[np.tril_indices(width + 1)], len(self.labels))
        n_numbers = len(self.labels) * triangle_size(width)
        uniform = np.frombuffer(self._random(8 * n_numbers), dtype="<u8") >> np.uint64(11)
        normal = ndtri((uniform.astype(np.float64) + 0.5) * 2.0**-53)
        scaled = np.ldexp(self.sigma * normal, powers + WEIGHT_FRACTION_BITS)
        return [round(float(value)) for value in scaled]

    def __repr__(self) -> str:
        return f"PrivateSite({self.name!r}, {self.account!r})"


def repaired(statistics: ClassStatistics, sigma: float) -> ClassStatistics:
    """Return noisy statistics after making them positive definite, so that a model can be fitted.

    Noise can make variances negative. Each class gets a count of at least 1. Negative eigenvalues of its
    scatter matrix are set to zero, and a ridge of the size of the noise is added, as in AdaSSP. This is
    postprocessing of noisy numbers, so it costs no privacy.

    Parameters
    ----------
    statistics : ClassStatistics
        The sum of noisy updates.
    sigma : float
        Standard deviation of the noise in the sum. For n updates it is ``sqrt(n)`` times that of one update.
    """
    quantizer, labels = statistics.quantizer, statistics.classes
    numbers: list[int] = []
    for label in labels:
        numbers += _repaired_class(statistics.gram(label), sigma, quantizer)
    return from_numbers(numbers, labels, quantizer)


def _repaired_class(gram: FloatArray, sigma: float, quantizer: Quantizer) -> list[int]:
    count = max(1.0, float(gram[-1, -1]))
    mean = -gram[-1, :-1] / count
    mean /= max(1.0, float(np.linalg.norm(mean)))  # the mean of clipped rows has norm at most 1
    scatter = gram[:-1, :-1] - count * np.outer(mean, mean)
    values, vectors = np.linalg.eigh((scatter + scatter.T) / 2.0)
    ridge = sigma * math.sqrt(len(mean))
    scatter = (vectors * (np.maximum(values, 0.0) + ridge)) @ vectors.T
    full = np.empty_like(gram)
    full[:-1, :-1] = scatter + count * np.outer(mean, mean)
    full[-1, :-1], full[-1, -1] = count * mean, count
    exponents = np.append(-quantizer.exponents, 0)
    powers = exponents[:, None] + exponents + WEIGHT_FRACTION_BITS
    lower = np.tril_indices(len(full))  # the upper triangle of `full` is not set
    steps = np.ldexp(full[lower], powers[lower])
    return [round(float(value)) for value in steps]
