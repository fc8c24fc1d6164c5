"""Trained machines as trees of arrays and plain values, and back."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import numpy as np

from steelyard.alignment.boundary import BoundaryBumps
from steelyard.alignment.conformal import SupportBumps
from steelyard.alignment.machine import Bumps, Machine, Round

__all__ = ["machine_from_tree", "machine_to_tree", "round_from_tree"]

_KINDS: dict[str, type[Bumps]] = {"boundary": BoundaryBumps, "support": SupportBumps}


def machine_to_tree(machine: Machine) -> dict[str, Any]:
    """Everything a machine needs to answer."""
    tree = {field.name: getattr(machine, field.name) for field in fields(machine)}
    tree["bumps"] = [{"kind": _kind(bumps), **vars(bumps)} for bumps in machine.bumps]
    tree["factors"] = list(machine.factors)
    return tree


def machine_from_tree(tree: dict[str, Any], n_reference: int) -> Machine:
    """The machine that :func:`machine_to_tree` described; ValueError if it cannot be."""
    bumps = [_bumps_from_tree(part) for part in tree["bumps"]]
    machine = Machine(**{**tree, "bumps": bumps})
    n_own = len(machine.reference)
    _check_positions(machine.reference, n_reference)
    arrays = [machine.dual, *machine.factors]
    if len(machine.factors) != len(bumps) + 1 or any(
        array.shape != (n_own,) or array.dtype != np.float64 for array in arrays
    ):
        raise ValueError("a machine's arrays do not fit together")
    for one in bumps:
        places = [one.rare, one.other] if isinstance(one, BoundaryBumps) else [one.centers]
        for positions in places:
            _check_positions(positions, n_own)
            if positions.shape != one.widths.shape:
                raise ValueError("bumps and their widths do not fit together")
    return machine


def round_from_tree(tree: dict[str, Any]) -> Round:
    """The round that ``asdict`` described."""
    return Round(**{**tree, "n_support": tuple(tree["n_support"])})


def round_to_tree(one: Round) -> dict[str, Any]:
    """A round as plain values."""
    return {**asdict(one), "n_support": list(one.n_support)}


def _kind(bumps: Bumps) -> str:
    return "boundary" if isinstance(bumps, BoundaryBumps) else "support"


def _bumps_from_tree(tree: dict[str, Any]) -> Bumps:
    content = dict(tree)
    return _KINDS[content.pop("kind")](**content)


def _check_positions(positions: Any, n_places: int) -> None:
    inside = positions.ndim == 1 and positions.dtype.kind == "i" and positions.size
    if not inside or positions.min() < 0 or positions.max() >= n_places:
        raise ValueError("positions point outside of the rows that are kept")
