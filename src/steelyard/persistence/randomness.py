"""Random generators as plain values: the name of the bit generator and its numbers.

Where the stream of numbers stands is kept; the seed sequence behind it is not, so children that
``Generator.spawn`` makes after loading are other ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["make_generator", "make_random_state", "state_of"]

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
# NumPy takes these as they come and would read outside its buffers.
_UPPER_BOUNDS = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1}


def state_of(random: np.random.Generator | np.random.RandomState) -> dict[str, Any]:
    """Return where a generator stands; raise TypeError for a bit generator that is not NumPy's own."""
    if isinstance(random, np.random.Generator):
        state: Any = random.bit_generator.state
        kind = type(random.bit_generator)
    else:
        state = random.get_state(legacy=False)
        kind = type(random._bit_generator)
    if kind not in _BIT_GENERATORS.values():
        raise TypeError(f"the bit generator {kind.__name__} is not one of {', '.join(_BIT_GENERATORS)}")
    return dict(state)


def make_generator(state: dict[str, Any]) -> np.random.Generator:
    """Make a generator that goes on where `state` was taken."""
    random = np.random.Generator(_bit_generator(state))
    _check_form(state, state_of(random))
    random.bit_generator.state = state
    _check_taken(state, state_of(random))
    return random


def make_random_state(state: dict[str, Any]) -> np.random.RandomState:
    """Make an old-style generator that goes on where `state` was taken."""
    random = np.random.RandomState(_bit_generator(state))
    _check_form(state, state_of(random))
    random.set_state(state)
    _check_taken(state, state_of(random))
    return random


def _bit_generator(state: dict[str, Any]) -> np.random.BitGenerator:
    return _BIT_GENERATORS[state["bit_generator"]](0)


def _check_form(state: Any, example: Any) -> None:
    """Require the names, types, shapes and ranges of an example, at every level."""
    if type(state) is not type(example):
        raise TypeError("a random generator's state has a value of the wrong type")
    if isinstance(example, dict):
        if set(state) != set(example):
            raise ValueError("a random generator's state has the wrong names")
        for name, value in state.items():
            _check_form(value, example[name])
            if name in _UPPER_BOUNDS and not 0 <= value <= _UPPER_BOUNDS[name]:
                raise ValueError(f"a random generator's {name} is out of range")
    if isinstance(example, np.ndarray) and (state.dtype, state.shape) != (example.dtype, example.shape):
        raise ValueError("a random generator's state has an array of the wrong form")


def _check_taken(state: Any, taken: Any) -> None:
    """Require that every number was taken as it is: NumPy cuts some that are too large."""
    if isinstance(state, dict):
        for name in state:
            _check_taken(state[name], taken[name])
    elif not np.array_equal(state, taken):
        raise ValueError("a random generator's state has a number out of range")
