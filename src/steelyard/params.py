"""Declaration of the parameters of estimators, and constraints on their values.

An estimator declares a parameter as ``C: float = parameter(1.0, Positive())`` in a class that is decorated
with :func:`parametrized`. The attribute ``_constraints`` of the class then maps each parameter to its
constraint, and :func:`check_params` raises an error for the first violation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from steelyard._shared_text import expand_shared_text
from steelyard.exceptions import ParameterError

T = TypeVar("T")
MAX_COUNT = 2**31 - 1  # native code uses 32-bit counts for objects in memory


@dataclass(frozen=True)
class Constraint:
    """Description of the accepted values, used after "must be" in error messages, and a test of a value."""

    description: str
    accepts: Callable[[Any], bool] = field(repr=False)
    hints: Mapping[str, str] = field(default_factory=dict)  # for texts that earlier versions accepted


def parameter(default: Any, constraint: Constraint) -> Any:
    """Declare a parameter of an estimator: a dataclass field with a default and a constraint."""
    return field(default=default, metadata={"constraint": constraint})


@dataclass_transform(eq_default=False)
def parametrized(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Return a decorator for estimators: their annotated attributes become parameters of the constructor.

    It creates a dataclass with the comparison and the representation of scikit-learn, collects the
    constraints of the parameters, and inserts shared texts into the docstring.
    """

    def decorate(cls: type[T]) -> type[T]:
        made: Any = dataclass(eq=False, repr=False, kw_only=kw_only)(cls)
        made._constraints = constraints_of(made)
        return expand_shared_text(made)

    return decorate


def constraints_of(cls: type) -> dict[str, Constraint]:
    """Return the constraints of the parameters of a class by name.

    If a subclass only gives a parameter another default, the constraint of the base class remains.
    """
    return {
        name: declared.metadata["constraint"]
        for base in reversed(cls.__mro__)
        for name, declared in vars(base).get("__dataclass_fields__", {}).items()
        if "constraint" in declared.metadata
    }


def _number(value: object) -> float:
    """Return a real number as a float, or NaN for all other objects."""
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer beyond the range of float
        return math.inf


# Constraints without arguments, as Positive(); their descriptions say which values they accept.
Finite = partial(Constraint, "a finite number", lambda value: math.isfinite(_number(value)))
Positive = partial(Constraint, "a positive, finite number", lambda value: 0.0 < _number(value) < math.inf)
NonNegative = partial(
    Constraint, "a finite number of at least 0", lambda value: 0.0 <= _number(value) < math.inf
)
Switch = partial(Constraint, "True or False", lambda value: isinstance(value, bool | np.bool_))
LabelOrNone = partial(
    Constraint,
    "a label (text, a whole number or a boolean) or None",
    lambda value: value is None or isinstance(value, str | int | float | np.integer | np.bool_),
)
ClassWeight = partial(  # a factor of 0 ignores a class
    Constraint,
    "'balanced', None or a dict of finite numbers of at least 0 by label",
    lambda value: (
        all(map(NonNegative().accepts, value.values()))
        if isinstance(value, Mapping)
        else value is None or (isinstance(value, str) and value == "balanced")
    ),
)


def Fraction(low: float = 0.0, high: float = 1.0, *, ends: bool = True) -> Constraint:
    """Constraint: a number between two bounds, each of which may be included or excluded."""
    bounds = f"a number between {low:g} and {high:g}, ends"
    if ends:
        return Constraint(f"{bounds} included", lambda value: low <= _number(value) <= high)
    return Constraint(f"{bounds} excluded", lambda value: low < _number(value) < high)


def Integer(minimum: int = 1, maximum: int | None = None) -> Constraint:
    """Constraint: an integer of at least ``minimum`` and, if given, at most ``maximum``."""
    upper = math.inf if maximum is None else maximum
    return Constraint(
        f"a whole number of at least {minimum}"
        if maximum is None
        else f"a whole number from {minimum} to {maximum}",
        lambda value: (
            isinstance(value, Integral) and not isinstance(value, bool) and minimum <= int(value) <= upper
        ),
    )


def OneOf(*values: object) -> Constraint:
    """Constraint: one of the given values, usually strings."""
    *others, last = map(repr, values)
    return Constraint(
        f"{', '.join(others)} or {last}" if others else last,
        lambda value: any(value is known or (isinstance(value, str) and value == known) for known in values),
    )


def Instance(*types: type, description: str | None = None) -> Constraint:
    """Constraint: an object of one of the given types."""
    text = description or " or ".join(f"a {kind.__name__}" for kind in types)
    return Constraint(text, lambda value: isinstance(value, types))


def Function(description: str) -> Constraint:
    """Constraint: a function, described for error messages."""
    return Constraint(description, callable)


def ListOf(item: Constraint) -> Constraint:
    """Constraint: a non-empty list, tuple or array whose items satisfy another constraint."""
    return Constraint(
        f"a list whose items are each {item.description}",
        lambda value: (
            isinstance(value, list | tuple | np.ndarray) and len(value) > 0 and all(map(item.accepts, value))
        ),
    )


def PairOf(item: Constraint) -> Constraint:
    """Constraint: a tuple or list of two values that satisfy another constraint."""
    return Constraint(
        f"a pair whose items are each {item.description}",
        lambda value: isinstance(value, list | tuple) and len(value) == 2 and all(map(item.accepts, value)),
    )


def AnyOf(*constraints: Constraint) -> Constraint:
    """Constraint: a value that satisfies at least one of several constraints."""
    return Constraint(
        " or ".join(constraint.description for constraint in constraints),
        lambda value: any(constraint.accepts(value) for constraint in constraints),
    )


def Former(constraint: Constraint, **hints: str) -> Constraint:
    """Constraint with hints for values that earlier versions accepted."""
    return Constraint(constraint.description, constraint.accepts, hints)


def RandomSeed() -> Constraint:
    """Constraint: the parameter ``random_state`` of scikit-learn."""
    seeds = AnyOf(OneOf(None), Integer(0, 2**32 - 1), Instance(np.random.Generator, np.random.RandomState))
    return Constraint("None, a whole number from 0 to 2**32 - 1 or a NumPy random generator", seeds.accepts)


def absent_parameters(**advice: tuple[str, str]) -> Callable[[type[T]], type[T]]:
    """Decorate a class with a reason and a hint for each parameter that only similar classes have."""

    def mark(thing: type[T]) -> type[T]:
        init = thing.__init__

        @wraps(init)
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
            f'prior must be "balanced", "observed" or a number for each class; got {prior!r}.', source=source
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


def check_not_class(estimator: object, source: str) -> None:
    """Raise ParameterError for a class in place of an estimator."""
    if isinstance(estimator, type):
        from steelyard._validation import call_of

        raise ParameterError(
            f"estimator must be an instance; got the class {estimator.__name__}.",
            source=source,
            hint=f"create an instance: {call_of(estimator)}",
        )


def check_value(name: str, value: object, constraint: Constraint, source: str) -> None:
    """Raise :class:`ParameterError` if a value violates its constraint."""
    if not constraint.accepts(value):
        hint = constraint.hints.get(value) if isinstance(value, str) else None
        raise ParameterError(
            f"{name} must be {constraint.description}; got {value!r}.", source=source, hint=hint
        )


def check_params(owner: Any, constraints: Mapping[str, Constraint]) -> None:
    """Raise :class:`ParameterError` for the first parameter of ``owner`` that violates its constraint."""
    for name, constraint in constraints.items():
        check_value(name, getattr(owner, name), constraint, type(owner).__name__)
