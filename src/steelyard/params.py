"""Constraints on the parameters of estimators.

An estimator lists its parameters as ``_constraints = {"C": Positive(), ...}``; :func:`check_params` raises an
error for the first violation. A constraint is any object with a ``description`` and an ``accepts`` method.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import ParameterError

__all__ = [
    "MAX_COUNT",
    "AnyOf",
    "ClassWeight",
    "Constraint",
    "Finite",
    "Former",
    "Fraction",
    "Instance",
    "Integer",
    "LabelOrNone",
    "ListOf",
    "NonNegative",
    "OneOf",
    "PairOf",
    "Positive",
    "RandomSeed",
    "Switch",
    "absent_parameters",
    "check_params",
    "class_factors",
    "prior_factors",
]


T = TypeVar("T")
MAX_COUNT = 2**31 - 1  # native code uses 32-bit counts for objects in memory


class Constraint(Protocol):
    """Interface of parameter constraints."""

    @property
    def description(self) -> str:
        """Description of the accepted values, used after "must be" in error messages."""

    def accepts(self, value: object) -> bool:
        """Return whether the value satisfies the constraint."""


def _number(value: object) -> float:
    """Return a real number as a float, or NaN for all other objects."""
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer beyond the range of float
        return math.inf


@dataclass(frozen=True)
class Finite:
    """Constraint: any finite number."""

    description: str = "a finite number"

    def accepts(self, value: object) -> bool:
        return math.isfinite(_number(value))


@dataclass(frozen=True)
class Positive:
    """Constraint: a finite number above zero."""

    description: str = "a positive, finite number"

    def accepts(self, value: object) -> bool:
        return 0.0 < _number(value) < math.inf


@dataclass(frozen=True)
class NonNegative:
    """Constraint: a finite number, zero or above."""

    description: str = "a finite number of at least 0"

    def accepts(self, value: object) -> bool:
        return 0.0 <= _number(value) < math.inf


@dataclass(frozen=True)
class Fraction:
    """Constraint: a number between two bounds, each of which may be included or excluded."""

    low: float = 0.0
    high: float = 1.0
    ends: bool = True

    @property
    def description(self) -> str:
        kind = "included" if self.ends else "excluded"
        return f"a number between {self.low:g} and {self.high:g}, ends {kind}"

    def accepts(self, value: object) -> bool:
        number = _number(value)
        return self.low <= number <= self.high if self.ends else self.low < number < self.high


@dataclass(frozen=True)
class Integer:
    """Constraint: an integer of at least ``minimum`` and, if given, at most ``maximum``."""

    minimum: int = 1
    maximum: int | None = None

    @property
    def description(self) -> str:
        if self.maximum is not None:
            return f"a whole number from {self.minimum} to {self.maximum}"
        return f"a whole number of at least {self.minimum}"

    def accepts(self, value: object) -> bool:
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < self.minimum:
            return False
        return self.maximum is None or int(value) <= self.maximum


@dataclass(frozen=True)
class Switch:
    """Constraint: True or False."""

    description: str = "True or False"

    def accepts(self, value: object) -> bool:
        return isinstance(value, bool | np.bool_)


class OneOf:
    """Constraint: one of the given values, usually strings."""

    def __init__(self, *values: object) -> None:
        self.values = values

    @property
    def description(self) -> str:
        *others, last = map(repr, self.values)
        return f"{', '.join(others)} or {last}" if others else last

    def accepts(self, value: object) -> bool:
        return any(value is known or (isinstance(value, str) and value == known) for known in self.values)


class Instance:
    """Constraint: an object of one of the given types."""

    def __init__(self, *types: type, description: str | None = None) -> None:
        self.types = types
        self.description = description or " or ".join(f"a {kind.__name__}" for kind in types)

    def accepts(self, value: object) -> bool:
        return isinstance(value, self.types)


@dataclass(frozen=True)
class ListOf:
    """Constraint: a non-empty list, tuple or array whose items satisfy another constraint."""

    item: Constraint

    @property
    def description(self) -> str:
        return f"a list whose items are each {self.item.description}"

    def accepts(self, value: object) -> bool:
        return (
            isinstance(value, list | tuple | np.ndarray)
            and len(value) > 0
            and all(self.item.accepts(item) for item in value)
        )


@dataclass(frozen=True)
class PairOf:
    """Constraint: a tuple or list of two values that satisfy another constraint."""

    item: Constraint

    @property
    def description(self) -> str:
        return f"a pair whose items are each {self.item.description}"

    def accepts(self, value: object) -> bool:
        return isinstance(value, list | tuple) and len(value) == 2 and all(map(self.item.accepts, value))


class AnyOf:
    """Constraint: a value that satisfies at least one of several constraints."""

    def __init__(self, *constraints: Constraint) -> None:
        self.constraints = constraints

    @property
    def description(self) -> str:
        return " or ".join(constraint.description for constraint in self.constraints)

    def accepts(self, value: object) -> bool:
        return any(constraint.accepts(value) for constraint in self.constraints)


class Former:
    """Constraint with hints for values that earlier versions accepted."""

    def __init__(self, constraint: Constraint, **hints: str) -> None:
        self.constraint = constraint
        self.hints = hints

    @property
    def description(self) -> str:
        return self.constraint.description

    def accepts(self, value: object) -> bool:
        return self.constraint.accepts(value)

    def hint(self, value: object) -> str | None:
        """Return the replacement for a value that an earlier version accepted."""
        return self.hints.get(value) if isinstance(value, str) else None


@dataclass(frozen=True)
class LabelOrNone:
    """Constraint: a class label, or None."""

    description: str = "a label (text, a whole number or a boolean) or None"

    def accepts(self, value: object) -> bool:
        return value is None or isinstance(value, str | int | float | np.integer | np.bool_)


def absent_parameters(**advice: tuple[str, str]) -> Callable[[type[T]], type[T]]:
    """Decorate a class with hints for parameters that similar classes have but this class does not.

    Parameters
    ----------
    **advice : tuple of str
        Maps the name of a parameter to the reason why it is absent, and to a hint.
    """

    def mark(thing: type[T]) -> type[T]:
        init = thing.__init__

        @functools.wraps(init)
        def explained(*args: Any, **kwargs: Any) -> None:
            for name in advice.keys() & kwargs.keys():
                reason, hint = advice[name]
                raise ParameterError(
                    f"there is no parameter {name}: {reason}", source=thing.__name__, hint=hint
                )
            init(*args, **kwargs)

        thing.__init__ = explained  # type: ignore[method-assign]
        return thing

    return mark


@dataclass(frozen=True)
class ClassWeight:
    """Constraint: "balanced", None for equal weights, or factors by label, where 0 ignores a class."""

    description: str = "'balanced', None or a dict of finite numbers of at least 0 by label"

    def accepts(self, value: object) -> bool:
        if isinstance(value, Mapping):
            return all(NonNegative().accepts(factor) for factor in value.values())
        return value is None or (isinstance(value, str) and value == "balanced")


def class_factors(class_weight: Mapping[Any, float] | None, labels: Sequence[Any]) -> NDArray[np.float64]:
    """Return the factor of each label, which is 1 for labels that are not listed.

    >>> class_factors({"fraud": 5, "test": 0}, ["fraud", "other", "test"])
    array([5., 1., 0.])
    """
    given = {} if class_weight is None else class_weight
    return np.array([float(given.get(label, 1.0)) for label in labels])


def prior_factors(
    prior: str | Mapping[Any, float],
    labels: Sequence[Any],
    observed: Callable[[], NDArray[np.float64]],
    source: str,
) -> NDArray[np.float64] | None:
    """Return the prior probability of each label up to a common factor, or None if all are equal.

    The function ``observed`` returns the observed frequencies. It is called only for ``prior="observed"``.
    """
    if isinstance(prior, str):
        if prior == "balanced":
            return None
        if prior == "observed":
            return observed()
        raise ParameterError(
            f'prior must be "balanced", "observed" or a number for each class; got {prior!r}.',
            source=source,
        )
    missing = [label for label in labels if label not in prior]
    if missing:
        raise ParameterError(f"prior has no entry for class {missing[0]!r}.", source=source)
    factors = np.array([float(prior[label]) for label in labels])
    if not (np.isfinite(factors).all() and (factors > 0.0).all()):
        raise ParameterError(
            f"prior must contain positive, finite numbers; got {dict(prior)!r}.", source=source
        )
    return factors


@dataclass(frozen=True)
class RandomSeed:
    """Constraint: the parameter ``random_state`` of scikit-learn."""

    description: str = "None, a whole number from 0 to 2**32 - 1 or a NumPy random generator"

    def accepts(self, value: object) -> bool:
        return (
            value is None
            or (Integer(0).accepts(value) and value < 2**32)  # type: ignore[operator]
            or isinstance(value, np.random.Generator | np.random.RandomState)
        )


def check_params(owner: Any, constraints: Mapping[str, Constraint]) -> None:
    """Raise :class:`ParameterError` for the first parameter of ``owner`` that violates its constraint."""
    for name, constraint in constraints.items():
        value = getattr(owner, name)
        if not constraint.accepts(value):
            raise ParameterError(
                f"{name} must be {constraint.description}; got {value!r}.",
                source=type(owner).__name__,
                hint=constraint.hint(value) if isinstance(constraint, Former) else None,
            )
