"""Random generators as plain values: name of the bit generator and its state.

The position in the sequence of numbers is saved. The seed sequence is not, so ``Generator.spawn`` returns
different generators after loading.
"""

from __future__ import annotations

from typing import Any

import numpy as np

KINDS = {kind.__name__: kind for kind in (np.random.Generator, np.random.RandomState)}
_BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.MT19937,
        np.random.Philox,
        np.random.SFC64,
    )
}
# Largest valid values of fields that NumPy does not check; larger values would cause out-of-bounds reads.
_UPPER_BOUNDS = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1}


def state_of(random: np.random.Generator | np.random.RandomState) -> dict[str, Any]:
    """Return the state of a generator; raise TypeError for a bit generator that is not part of NumPy."""
    if isinstance(random, np.random.Generator):
        state: Any = random.bit_generator.state
        kind = type(random.bit_generator)
    else:
        state = random.get_state(legacy=False)
        kind = type(random._bit_generator)
    if kind not in _BIT_GENERATORS.values():
        raise TypeError(f"the bit generator {kind.__name__} is not one of {', '.join(_BIT_GENERATORS)}")
    return dict(state)


def restored(kind: str, state: dict[str, Any]) -> np.random.Generator | np.random.RandomState:
    """Return a random generator of the given class with the given state."""
    random = KINDS[kind](_BIT_GENERATORS[state["bit_generator"]](0))
    _check_structure(state, state_of(random))
    if isinstance(random, np.random.Generator):
        random.bit_generator.state = state
    else:
        random.set_state(state)
    _check_unchanged(state, state_of(random))
    return random


def _check_structure(state: Any, example: Any) -> None:
    """Raise an error unless names, types and shapes equal those of an example and values are in range."""
    if type(state) is not type(example):
        raise TypeError("a random generator's state has a value of the wrong type")
    if isinstance(example, dict):
        if set(state) != set(example):
            raise ValueError("a random generator's state has the wrong names")
        for name, value in state.items():
            _check_structure(value, example[name])
            if name in _UPPER_BOUNDS and not 0 <= value <= _UPPER_BOUNDS[name]:
                raise ValueError(f"a random generator's {name} is out of range")
    if isinstance(example, np.ndarray) and (state.dtype, state.shape) != (example.dtype, example.shape):
        raise ValueError("a random generator's state has an array of the wrong type or shape")


def _check_unchanged(state: Any, actual: Any) -> None:
    """Raise ValueError if NumPy has changed a number of the state, because it truncates large numbers."""
    if isinstance(state, dict):
        for name in state:
            _check_unchanged(state[name], actual[name])
    elif not np.array_equal(state, actual):
        raise ValueError("a random generator's state has a number out of range")
