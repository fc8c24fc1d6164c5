"""Fixed-point quantizer of feature values, and its constants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._deprecation import renamed_attribute, renamed_parameters
from steelyard._native import LARGEST_VALUE, QUANTIZER_ROWS, WEIGHT_FRACTION_BITS
from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.persistence import storable

# The native code defines the following constants. Python modules import them from here.
# QUANTIZER_ROWS: number of first rows to which the steps are fitted if no quantizer is given.
# WEIGHT_FRACTION_BITS: weights that are not integers are rounded to multiples of 2**-WEIGHT_FRACTION_BITS.
# LARGEST_VALUE: largest magnitude of a feature value.
__all__ = ["LARGEST_VALUE", "QUANTIZER_ROWS", "WEIGHT_FRACTION_BITS", "Quantizer"]

_MAX_EXPONENT = 1074  # largest absolute value of an exponent; the smallest double is 2**-1074


@storable("Quantizer", former_name="Grid")
class Quantizer:
    """Fixed-point quantizer: one step, a power of two, for each feature.

    A value ``x`` is learned as the integer ``floor(x / step + 1/2)``; all later arithmetic is exact. Learners
    with equal quantizers and equal rows have equal digests and bit-identical planes, whatever their
    histories.

    Parameters
    ----------
    exponents : array-like of int
        Steps are ``2.0**exponents``.
    origins : array-like of float, optional
        Integers, in units of the step, that are subtracted from the values. They make sums smaller and
        faster, and change no result.
    rounds : array-like of bool, optional
        Whether the step of a feature is final, because values have been (or may be) rounded to it. If it is
        not final, all values so far were multiples of the step, and the step becomes finer as soon as a value
        needs it.
    mixed : array-like of int, optional
        Number of bits by which the step of merged values was coarser than the step of the feature; 0 for
        features without such values. ``subtract`` of statistics with the coarser step removes such rows
        exactly. If they are forgotten row by row instead, an error of up to one coarser step remains.

    Notes
    -----
    Without a given quantizer, the first 256 rows determine the steps. A feature with multiples of a power of
    two (counts, flags, whole cents) gets that power as its step. For other features, the step is chosen such
    that the median absolute deviation, which is robust to outliers, has 2**33 to 2**37 steps.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.integers(0, 9, 500), rng.normal(size=500)])
    >>> y = X[:, 0] > 4
    >>> quantizer = ProximalSVC().fit(X, y).quantizer_
    >>> quantizer.steps.tolist()
    [1.0, 1.4551915228366852e-11]
    >>> one = ProximalSVC(quantizer=quantizer).fit(X, y)
    >>> other = ProximalSVC(quantizer=quantizer).fit(X[::-1], y[::-1])
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
        self.exponents: NDArray[np.int32] = _integers(exponents, np.int32)
        n = len(self.exponents)
        self.origins: FloatArray = np.zeros(n) if origins is None else np.array(origins, dtype=np.float64)
        self.rounds: NDArray[np.bool_] = np.ones(n, bool) if rounds is None else np.array(rounds, dtype=bool)
        self.mixed: NDArray[np.uint8] = _integers([0] * n if mixed is None else mixed, np.uint8)
        shapes = {array.shape for array in self.get_params().values()}
        if shapes != {(n,)}:
            raise DataError(
                "all arrays must have one entry per feature; got arrays of the shapes "
                f"{', '.join(map(str, sorted(shapes)))}.",
                source="Quantizer",
            )
        valid = (np.abs(self.origins) < 2.0**53) & (self.origins == np.floor(self.origins))
        if np.abs(self.exponents).max(initial=0) > _MAX_EXPONENT or not valid.all():
            raise DataError(
                f"exponents must be from -{_MAX_EXPONENT:,} to {_MAX_EXPONENT:,} and origins integers below "
                "2**53.",
                source="Quantizer",
            )

    @classmethod
    @renamed_parameters(quantum="step")
    def uniform(cls, n_features: int, step: float, *, rounds: bool = True) -> Quantizer:
        """Return a quantizer with the same step, a power of two, for every feature."""
        fraction, exponent = np.frexp(step)
        if fraction != 0.5:
            raise DataError(f"a step must be a power of two; got {step!r}.", source="Quantizer")
        return cls(np.full(n_features, exponent - 1), rounds=np.full(n_features, rounds))

    @property
    def steps(self) -> FloatArray:
        """Step of each feature."""
        return np.ldexp(1.0, self.exponents)

    quanta = renamed_attribute("steps", "quanta")

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.exponents)

    def note(self) -> str:
        """Return a summary: how many features are rounded, and how many were merged from coarser steps."""
        parts = [f"{int(self.rounds.sum())} of {self.n_features} features rounded"]
        if self.mixed.any():
            parts.append(f"{int((self.mixed > 0).sum())} merged from coarser steps")
        return ", ".join(parts)

    def arrays(self) -> tuple[NDArray[np.int32], FloatArray, NDArray[np.uint8], NDArray[np.uint8]]:
        """Return all arrays with the dtypes of the native code."""
        return self.exponents, self.origins, self.rounds.view(np.uint8), self.mixed

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - signature of scikit-learn
        """Return the parameters of the constructor."""
        return {name: getattr(self, name) for name in ("exponents", "origins", "rounds", "mixed")}

    def _get_state(self) -> dict[str, Any]:
        return {}

    def _set_state(self, state: dict[str, Any]) -> None:  # noqa: ARG002 - a quantizer has no learned state
        raise ValueError("a quantizer has no state besides its parameters")

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the parameters as lists, for JSON."""
        return {name: array.tolist() for name, array in self.get_params().items()}

    def __sklearn_clone__(self) -> Quantizer:
        return self  # a quantizer is immutable, so clones of a learner can share it

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantizer):
            return NotImplemented
        theirs = other.get_params()
        return all(np.array_equal(array, theirs[name]) for name, array in self.get_params().items())

    def __hash__(self) -> int:
        return hash((self.exponents.tobytes(), self.rounds.tobytes()))

    def __repr__(self) -> str:
        if not self.n_features:
            return "Quantizer([])"
        low, high = int(self.exponents.min()), int(self.exponents.max())
        return f"<Quantizer of {self.n_features} features, steps 2**{low} to 2**{high}, {self.note()}>"


def _integers(values: ArrayLike, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Return values as an integer array; raise DataError for values that are not integers in range."""
    found, limits = np.asarray(values), np.iinfo(dtype)
    is_integer = found.dtype.kind in "iub" or (found.dtype.kind == "f" and (found == np.floor(found)).all())
    if found.ndim != 1 or not is_integer or ((found < limits.min) | (found > limits.max)).any():
        raise DataError(
            f"expected an integer from {limits.min} to {limits.max} for each feature.", source="Quantizer"
        )
    return found.astype(dtype)
