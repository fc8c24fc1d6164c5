"""Synthetic streams with known concepts, concept drifts and schedules of class imbalance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard._types import FloatArray, IntArray
from steelyard.exceptions import ParameterError
from steelyard.params import Fraction, Integer, check_value
from steelyard.streams.chunks import Chunk, RowStream, check_chunk

Random = np.random.Generator

_BLOCK = 1024  # number of rows per block; the rows of a block depend only on the seed and the block's index
_MAX_DRAWS = 10_000  # maximum number of rounds of rejection sampling


@dataclass(frozen=True)
class ImbalanceSchedule:
    """Share of positive rows at each row of a stream.

    The class methods create schedules. :meth:`consistent_decrease`, :meth:`increase_then_decrease` and
    :meth:`random_variation` are the schedules of figure 5.2 of the DCIL thesis (Lei Zhu), with a constant
    share in each stage.

    Parameters
    ----------
    name : str
        Name of the schedule.
    share : callable
        Function from an array of row numbers to shares between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.streams import ImbalanceSchedule
    >>> ImbalanceSchedule.linear(0.5, 0.1, over=100).share(np.array([0, 50, 100, 500]))
    array([0.5, 0.3, 0.1, 0.1])
    >>> ImbalanceSchedule.step({0: 0.2, 10: 0.01}).share(np.array([9, 10]))
    array([0.2 , 0.01])
    """

    name: str
    share: Callable[[IntArray], FloatArray]

    @classmethod
    def constant(cls, share: float = 0.1) -> ImbalanceSchedule:
        """Return a schedule with a constant share."""
        _check_shares(share)
        return cls("constant", lambda rows: np.full(len(rows), share))

    @classmethod
    def linear(cls, first: float, last: float, *, over: int) -> ImbalanceSchedule:
        """Return a schedule that changes linearly during the first ``over`` rows and is then constant."""
        _check_shares(first, last)
        return cls("linear", lambda rows: first + (last - first) * np.clip(rows / over, 0.0, 1.0))

    @classmethod
    def step(cls, shares: dict[int, float]) -> ImbalanceSchedule:
        """Return a schedule of steps, given as ``{row: share from this row on}``; the first row must be 0."""
        rows_of_steps = np.array(sorted(shares))
        values = np.array([shares[row] for row in rows_of_steps.tolist()])
        _check_shares(*values)
        if not len(values) or rows_of_steps[0] != 0:
            raise ParameterError(
                f"the first step must be at row 0; got {shares!r}.", source="ImbalanceSchedule.step"
            )
        return cls("step", lambda rows: values[np.searchsorted(rows_of_steps, rows, side="right") - 1])

    @classmethod
    def sine(cls, low: float, high: float, *, period: int) -> ImbalanceSchedule:
        """Return a schedule that oscillates between two values, starting upwards from the middle."""
        _check_shares(low, high)
        middle, swing = (low + high) / 2, (high - low) / 2
        return cls("sine", lambda rows: middle + swing * np.sin(2 * np.pi * rows / period))

    @classmethod
    def consistent_decrease(cls, low: float = 0.05, *, over: int, stages: int = 9) -> ImbalanceSchedule:
        """Return a schedule with decreasing imbalance: the share rises in stages from ``low`` to one half."""
        return cls._staged("consistent decrease", np.linspace(low, 0.5, stages), over)

    @classmethod
    def increase_then_decrease(cls, low: float = 0.05, *, over: int, stages: int = 9) -> ImbalanceSchedule:
        """Return a schedule whose share falls in stages from one half to ``low`` and then rises again."""
        distance = np.abs(np.linspace(-1.0, 1.0, stages))
        return cls._staged("increase then decrease", low + (0.5 - low) * distance, over)

    @classmethod
    def random_variation(
        cls, low: float = 0.05, high: float = 0.95, *, over: int, stages: int = 9, seed: int = 0
    ) -> ImbalanceSchedule:
        """Return a schedule with a random share in each stage; either class can be the rare one."""
        shares = np.random.default_rng(seed).uniform(low, high, size=stages)
        return cls._staged("random variation", shares, over)

    @classmethod
    def _staged(cls, name: str, shares: FloatArray, over: int) -> ImbalanceSchedule:
        _check_shares(*shares)
        stages = len(shares)
        return cls(name, lambda rows: shares[np.minimum(rows * stages // over, stages - 1)])


def _check_shares(*shares: float) -> None:
    for share in shares:
        if not 0.0 <= share <= 1.0:
            raise ParameterError(
                f"a share must be between 0 and 1; got {share!r}.", source="ImbalanceSchedule"
            )


@dataclass(frozen=True)
class Drift:
    """Concept drift at a row: abrupt, or gradual with both concepts mixed over ``width`` rows."""

    at: int
    width: int = 0

    def progress(self, rows: IntArray) -> FloatArray:
        """Return the probability of the new concept at each row."""
        if self.width == 0:
            return (rows >= self.at).astype(np.float64)
        return np.asarray(np.clip((rows - self.at) / self.width, 0.0, 1.0))


class GeneratedStream(RowStream):
    """Base class of the generators. Subclasses generate features for given labels.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    schedule : ImbalanceSchedule
        Share of all rare classes (labels 1, 2, ...) together at each row.
    drifts : sequence of Drift
        Concept drifts.
    noise : float, default=0.0
        Share of rows whose label is replaced by another label.
    presence : mapping of int to (int, int), optional
        For some classes, the half-open range of rows in which the class occurs; other rows of the class get
        another label.
    chunk : int, default=1000
        Rows per chunk; the generated rows do not depend on it.
    seed : int, default=0
        Random seed.
    """

    n_classes = 2

    def __init__(
        self,
        n_rows: int = 100_000,
        *,
        schedule: ImbalanceSchedule | None = None,
        drifts: Sequence[Drift] = (),
        noise: float = 0.0,
        presence: Mapping[int, tuple[int, int]] | None = None,
        chunk: int = 1000,
        seed: int = 0,
    ) -> None:
        source = type(self).__name__
        check_value("noise", noise, Fraction(), source)
        check_value("n_rows", n_rows, Integer(1), source)
        check_value("seed", seed, Integer(0), source)
        self.n_rows: int = n_rows
        self.schedule = schedule or ImbalanceSchedule.constant(0.1)
        self.concept_drifts = tuple(sorted(drifts, key=lambda drift: drift.at))
        self.drifts = tuple((drift.at, drift.at + drift.width) for drift in self.concept_drifts)
        self.noise = noise
        self.presence = dict(presence or {})
        self.chunk = check_chunk(chunk, source)
        self.seed = seed
        self.name = f"{source}, {self.schedule.name} imbalance"

    @abstractmethod
    def _features(self, rng: Random, labels: IntArray, concepts: IntArray, rows: IntArray) -> FloatArray:
        """Return the features of rows with the given labels and concepts."""

    def __iter__(self) -> Iterator[Chunk]:
        for begin in range(0, self.n_rows, self.chunk):
            X, y = self.rows(begin, min(begin + self.chunk, self.n_rows))
            self._n_read = begin + len(y)
            yield Chunk(X, y, begin)

    def rows(self, begin: int, end: int) -> tuple[FloatArray, IntArray]:
        """Return features and labels of rows ``begin`` to ``end`` (exclusive).

        Earlier rows need not be generated.
        """
        blocks = [self._block(number) for number in range(begin // _BLOCK, (end - 1) // _BLOCK + 1)]
        first = begin // _BLOCK * _BLOCK
        X, y = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return X[begin - first : end - first], y[begin - first : end - first]

    def _block(self, number: int) -> tuple[FloatArray, IntArray]:
        rng = np.random.default_rng([self.seed, number])
        rows = np.arange(number * _BLOCK, (number + 1) * _BLOCK)
        concepts = np.zeros(_BLOCK, dtype=np.int64)
        for drift in self.concept_drifts:
            concepts += rng.random(_BLOCK) < drift.progress(rows)
        labels = self._labels(rng, rows)
        X = self._features(rng, labels, concepts, rows)
        flipped = rng.random(_BLOCK) < self.noise
        shifts = rng.integers(1, max(self.n_classes, 2), size=_BLOCK)
        return X, np.where(flipped, (labels + shifts) % self.n_classes, labels)

    def _labels(self, rng: Random, rows: IntArray) -> IntArray:
        rare = rng.random(_BLOCK) < self.schedule.share(rows)
        labels = np.where(rare, rng.integers(1, max(self.n_classes, 2), size=_BLOCK), 0)
        for label, (begin, end) in self.presence.items():
            absent = (labels == label) & ((rows < begin) | (rows >= end))
            labels[absent] = 0 if label != 0 else 1
        return labels


class Gaussians(GeneratedStream):
    """Stream of Gaussian classes; each drift draws new class means.

    Parameters
    ----------
    n_rows, **options
        As for :class:`GeneratedStream`.
    n_features : int, default=10
        Number of features.
    n_classes : int, default=2
        Number of classes; the scheduled share is divided among all classes except the first.
    distance : float, default=2.0
        Distance of each class mean from the origin, in standard deviations.

    Examples
    --------
    >>> from steelyard.streams import Gaussians, ImbalanceSchedule
    >>> stream = Gaussians(3000, schedule=ImbalanceSchedule.constant(0.02), chunk=1000, seed=1)
    >>> [int(chunk.y.sum()) for chunk in stream]
    [16, 24, 17]
    """

    def __init__(
        self,
        n_rows: int = 100_000,
        *,
        n_features: int = 10,
        n_classes: int = 2,
        distance: float = 2.0,
        **options: object,
    ) -> None:
        super().__init__(n_rows, **options)  # type: ignore[arg-type]  # checked by the base class
        self.n_features, self.n_classes, self.distance = n_features, n_classes, distance
        rng = np.random.default_rng([self.seed, 2**31])
        directions = rng.normal(size=(len(self.concept_drifts) + 1, n_classes, n_features))
        self.means = distance * directions / np.linalg.norm(directions, axis=2, keepdims=True)

    def _features(self, rng: Random, labels: IntArray, concepts: IntArray, rows: IntArray) -> FloatArray:  # noqa: ARG002
        return np.asarray(self.means[concepts, labels] + rng.normal(size=(len(labels), self.n_features)))


class KOILMixture(GeneratedStream):
    """Two-dimensional mixture of the KOIL paper: a rare Gaussian surrounded by four frequent ones.

    The classes are not linearly separable. Each drift rotates the four Gaussians by an eighth of a circle.
    """

    def _features(self, rng: Random, labels: IntArray, concepts: IntArray, rows: IntArray) -> FloatArray:  # noqa: ARG002
        angle = np.pi / 2 * rng.integers(0, 4, size=len(labels)) + np.pi / 4 * concepts
        offset = np.column_stack([np.cos(angle), np.sin(angle)]) / 3.0
        centre = 0.5 + np.where((labels == 0)[:, None], offset, 0.0)
        return np.asarray(centre + rng.normal(scale=0.1, size=(len(labels), 2)))


class RotatingHyperplane(GeneratedStream):
    """Stream whose classes are the two sides of a rotating hyperplane through the centre of the unit cube.

    A concept drift rotates the hyperplane by 90 degrees.

    Parameters
    ----------
    n_rows, **options
        As for :class:`GeneratedStream`.
    n_features : int, default=10
        Number of features.
    turn : float, default=0.0
        Fraction of a full rotation from the first row to the last.
    """

    def __init__(
        self, n_rows: int = 100_000, *, n_features: int = 10, turn: float = 0.0, **options: object
    ) -> None:
        super().__init__(n_rows, **options)  # type: ignore[arg-type]  # checked by the base class
        self.n_features, self.turn = n_features, turn
        rng = np.random.default_rng([self.seed, 2**31])
        self._axes = np.linalg.qr(rng.normal(size=(n_features, 2)))[0]

    def normals(self, concepts: IntArray, rows: IntArray) -> FloatArray:
        """Return the normal vector of the hyperplane at each row."""
        angle = 2 * np.pi * self.turn * rows / self.n_rows + np.pi / 2 * concepts
        return np.asarray(np.column_stack([np.cos(angle), np.sin(angle)]) @ self._axes.T)

    def _features(self, rng: Random, labels: IntArray, concepts: IntArray, rows: IntArray) -> FloatArray:
        X = rng.random((len(labels), self.n_features))
        side = np.einsum("ij,ij->i", X - 0.5, self.normals(concepts, rows)) > 0.0
        # Reflection at the centre of the cube moves a row to the other side of the hyperplane.
        return np.where((side == (labels == 1))[:, None], X, 1.0 - X)


class SEA(GeneratedStream):
    """SEA concepts (Street and Kim, 2001), with three features.

    A row is positive if the sum of its first two features is below a threshold. Each drift changes to the
    next of the thresholds 8, 9, 7 and 9.5.
    """

    levels = (8.0, 9.0, 7.0, 9.5)

    def _features(self, rng: Random, labels: IntArray, concepts: IntArray, rows: IntArray) -> FloatArray:  # noqa: ARG002
        level = np.array(self.levels)[concepts % len(self.levels)]
        X = np.empty((len(labels), 3))
        wrong = np.arange(len(labels))
        for _ in range(_MAX_DRAWS):
            X[wrong] = rng.uniform(0.0, 10.0, size=(len(wrong), 3))
            positive = X[wrong, 0] + X[wrong, 1] <= level[wrong]
            wrong = wrong[positive != (labels[wrong] == 1)]
            if not len(wrong):
                break
        return X


def demo_stream(n_rows: int = 60_000, *, chunk: int = 500, seed: int = 7) -> Gaussians:
    """Return a stream of two Gaussian classes in ten dimensions, with one concept drift.

    The share of the rare class oscillates between 1 % and 50 %.

    Parameters
    ----------
    n_rows : int, default=60000
        Number of rows; the oscillation and the position of the drift scale with it.
    chunk : int, default=500
        Rows per chunk.
    seed : int, default=7
        Random seed.

    Returns
    -------
    Gaussians
    """
    stream = Gaussians(
        n_rows,
        n_features=10,
        distance=1.5,
        drifts=[Drift(2 * n_rows // 3, width=n_rows // 60)],
        schedule=ImbalanceSchedule.sine(0.01, 0.5, period=max(1, n_rows // 2)),
        chunk=chunk,
        seed=seed,
    )
    stream.name = "the built-in stream: oscillating imbalance and one drift"
    return stream
