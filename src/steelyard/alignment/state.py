"""Conversion of trained binary models to trees of arrays and plain values, and back."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import scipy.sparse as sp

from steelyard.alignment.bumps import BoundaryBumps, Bumps, SupportBumps
from steelyard.alignment.machine import Machine, Round

_COMBINED = ("max", "mean", "sum")
_KINDS: dict[str, type[Any]] = {kind.kind: kind for kind in (BoundaryBumps, SupportBumps)}


def machine_to_tree(machine: Machine) -> dict[str, Any]:
    """Return a binary model as a tree of arrays and plain values for a model file."""
    tree = {field.name: getattr(machine, field.name) for field in fields(machine)}
    tree["bumps"] = [{"kind": bumps.kind, **vars(bumps)} for bumps in machine.bumps]
    tree["factors"] = list(machine.factors)
    return tree


def machine_from_tree(tree: dict[str, Any], n_reference: int) -> Machine:
    """Restore a binary model from the result of :func:`machine_to_tree`. Raise ValueError if invalid."""
    bumps = [_bumps_from_tree(part) for part in tree["bumps"]]
    machine = Machine(**{**tree, "bumps": bumps})
    n_own = len(machine.reference)
    _check_positions(machine.reference, n_reference)
    arrays = [machine.dual, *machine.factors]
    if len(machine.factors) != len(bumps) + 1 or any(
        array.shape != (n_own,) or array.dtype != np.float64 for array in arrays
    ):
        raise ValueError("the arrays of a binary model do not match in shape")
    _check_numbers(machine, "intercept", "shift", "sign")
    for one in bumps:
        for positions in one.centers_in_reference():
            _check_positions(positions, n_own)
            if positions.shape != one.widths.shape:
                raise ValueError("the numbers of bumps and widths differ")
    return machine


def round_from_tree(tree: dict[str, Any]) -> Round:
    """Restore a round from the result of :func:`round_to_tree`."""
    return Round(**{**tree, "n_support": tuple(tree["n_support"])})


def round_to_tree(one: Round) -> dict[str, Any]:
    """Return a round as plain values."""
    return {**asdict(one), "n_support": list(one.n_support)}


def _bumps_from_tree(tree: dict[str, Any]) -> Bumps:
    content = dict(tree)
    bumps: Bumps = _KINDS[content.pop("kind")](**content)
    arrays = [bumps.widths]
    _check_numbers(bumps, "floor", "scale")
    if isinstance(bumps, BoundaryBumps):
        _check_numbers(bumps, "beta")
        arrays.append(bumps.lengths)
    if any(array.dtype != np.float64 or array.shape != bumps.widths.shape for array in arrays):
        raise ValueError("the widths and lengths of bumps differ in shape or are not float64")
    if bumps.combine not in _COMBINED:
        raise ValueError(f"unknown value of combine: {bumps.combine!r}")
    return bumps


def _check_numbers(holder: Machine | Bumps, *names: str) -> None:
    for name in names:
        check_number(getattr(holder, name), name)


def check_number(value: Any, name: str) -> float:
    """Return a finite number from a file as float. Raise ValueError for any other value."""
    if not isinstance(value, float | int) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name} is not a finite number")
    return float(value)


def _check_positions(positions: Any, n_rows: int) -> None:
    valid = positions.ndim == 1 and positions.dtype.kind == "i" and positions.size
    if not valid or positions.min() < 0 or positions.max() >= n_rows:
        raise ValueError("row indices are out of range")


def pack_rows(X: Any) -> Any:
    """Return rows as a tree of arrays for a model file."""
    if sp.issparse(X):
        return {"data": X.data, "indices": X.indices, "indptr": X.indptr, "n_columns": int(X.shape[1])}
    return X


def unpack_rows(tree: Any) -> Any:
    """Restore rows from the result of :func:`pack_rows`. Raise ValueError if the tree is not valid."""
    if not isinstance(tree, dict):
        return tree
    indptr = tree["indptr"]
    rows = sp.csr_matrix(
        (tree["data"], tree["indices"], indptr), shape=(len(indptr) - 1, int(tree["n_columns"]))
    )
    rows.check_format()
    return rows
