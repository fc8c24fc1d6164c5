"""The grid on which values are learned: a quantum for every feature."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.persistence import storable

__all__ = ["Quantizer"]

_FARTHEST = 1074  # powers of two that a double can have


@storable("Quantizer", former_name="Grid")
class Quantizer:
    """The steps in which the values of each feature are counted.

    A value ``x`` is learned as the whole number ``floor(x / quantum + 1/2)``; everything after that is exact.
    Quanta are powers of two. Learners on equal grids that hold equal rows have equal digests and equal bits
    in all their planes, whatever their histories.

    Parameters
    ----------
    exponents : array-like of int
        Quanta are ``2.0**exponents``.
    origins : array-like of float, optional
        Whole numbers of quanta relative to which sums are kept. They save time and change no result.
    rounds : array-like of bool, optional
        Features whose quantum is final, because values have been (or may be) rounded to it. The others have
        held nothing but multiples of their quantum, which becomes finer as soon as a value needs it.
    mixed : array-like of int, optional
        By how many bits coarser the quantum was to which values had been rounded that were merged in; 0
        where there are none. Rows with such values are taken out exactly by ``unmerge`` of statistics on
        their own grid; forgotten row by row they leave up to one coarser quantum behind.

    Notes
    -----
    A grid is settled by the first 256 rows: multiples of a power of two (counts, flags, whole cents) keep
    it as their quantum; other values are taken in 2**33 to 2**37 steps to their typical deviation from
    the median, which outliers hardly move.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.integers(0, 9, 500), rng.normal(size=500)])
    >>> y = X[:, 0] > 4
    >>> grid = ProximalSVC().fit(X, y).quantizer_
    >>> grid.quanta.tolist()
    [1.0, 1.4551915228366852e-11]
    >>> one, other = ProximalSVC(quantizer=grid).fit(X, y), ProximalSVC(quantizer=grid).fit(X[::-1], y[::-1])
    >>> one.digest() == other.digest(), bool((one.coef_ == other.coef_).all())
    (True, True)
    """

    def __init__(
        self,
        exponents: ArrayLike,
        origins: ArrayLike | None = None,
        rounds: ArrayLike | None = None,
        mixed: ArrayLike | None = None,
    ) -> None:
        self.exponents: NDArray[np.int32] = _whole(exponents, np.int32)
        n = len(self.exponents)
        self.origins: FloatArray = np.zeros(n) if origins is None else np.array(origins, dtype=np.float64)
        self.rounds: NDArray[np.bool_] = np.ones(n, bool) if rounds is None else np.array(rounds, dtype=bool)
        self.mixed: NDArray[np.uint8] = _whole([0] * n if mixed is None else mixed, np.uint8)
        shapes = {part.shape for part in (self.exponents, self.origins, self.rounds, self.mixed)}
        if shapes != {(n,)}:
            raise DataError(
                f"one number of each kind for each feature is needed; got {shapes}.", source="Quantizer"
            )
        whole = (np.abs(self.origins) < 2.0**53) & (self.origins == np.floor(self.origins))
        if np.abs(self.exponents).max(initial=0) > _FARTHEST or not whole.all():
            raise DataError(
                f"exponents must lie within {_FARTHEST:,} and origins be whole, below 2**53.",
                source="Quantizer",
            )

    @classmethod
    def uniform(cls, n_features: int, quantum: float, *, rounds: bool = True) -> Quantizer:
        """The same quantum, a power of two, for every feature."""
        fraction, exponent = np.frexp(quantum)
        if fraction != 0.5:
            raise DataError(f"a quantum must be a power of two; got {quantum!r}.", source="Quantizer")
        return cls(np.full(n_features, exponent - 1), rounds=np.full(n_features, rounds))

    @property
    def quanta(self) -> FloatArray:
        """The steps themselves."""
        return np.ldexp(1.0, self.exponents)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.exponents)

    def note(self) -> str:
        """One line on what is special about it."""
        parts = [f"{int(self.rounds.sum())} of {self.n_features} features rounded"]
        if self.mixed.any():
            parts.append(f"{int((self.mixed > 0).sum())} merged from coarser grids")
        return ", ".join(parts)

    def arrays(self) -> tuple[NDArray[np.int32], FloatArray, NDArray[np.uint8], NDArray[np.uint8]]:
        """All numbers, as native code takes them."""
        return self.exponents, self.origins, self.rounds.view(np.uint8), self.mixed

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - as scikit-learn asks
        """What the constructor takes."""
        return {
            "exponents": self.exponents,
            "origins": self.origins,
            "rounds": self.rounds,
            "mixed": self.mixed,
        }

    def _get_state(self) -> dict[str, Any]:
        return {}

    def _set_state(self, state: dict[str, Any]) -> None:  # noqa: ARG002 - there is none
        raise ValueError("a grid has no state beside its numbers")

    def to_dict(self) -> dict[str, list[Any]]:
        """Plain values, for JSON."""
        return {name: part.tolist() for name, part in self.get_params().items()}

    def __sklearn_clone__(self) -> Quantizer:
        return self  # it never changes, so that whoever clones a learner may share it

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantizer):
            return NotImplemented
        theirs = other.get_params()
        return all(np.array_equal(part, theirs[name]) for name, part in self.get_params().items())

    def __hash__(self) -> int:
        return hash((self.exponents.tobytes(), self.rounds.tobytes()))

    def __repr__(self) -> str:
        if not self.n_features:
            return "Quantizer([])"
        low, high = int(self.exponents.min()), int(self.exponents.max())
        return f"<Quantizer of {self.n_features} features, quanta 2**{low} to 2**{high}, {self.note()}>"


def _whole(values: ArrayLike, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Whole numbers of a type; others are refused with a sentence."""
    found, limits = np.asarray(values), np.iinfo(dtype)
    is_whole = found.dtype.kind in "iub" or (found.dtype.kind == "f" and (found == np.floor(found)).all())
    if found.ndim != 1 or not is_whole or ((found < limits.min) | (found > limits.max)).any():
        raise DataError(
            f"expected for each feature a whole number from {limits.min} to {limits.max}.", source="Quantizer"
        )
    return found.astype(dtype)
