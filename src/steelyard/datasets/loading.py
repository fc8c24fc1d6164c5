"""Named sets, from the first place that has them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from steelyard.datasets.catalog import CATALOG
from steelyard.datasets.dataset import Dataset, Splits
from steelyard.datasets.sources import data_folder, from_folder, from_openml, from_package
from steelyard.exceptions import DatasetUnavailable, FileAccessError, ParameterError

__all__ = ["available", "load", "load_splits"]

_HINT = (
    "name a folder that has it with data_dir=... (--data-dir on the command line) or the environment"
    " variable STEELYARD_DATA"
)


def available() -> tuple[str, ...]:
    """Names that :func:`load` knows; whether one can be had here is another question.

    Returns
    -------
    tuple of str
    """
    return tuple(CATALOG)


def load(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a set by its name from the first place that has it.

    Asked in this order: what scikit-learn and the packages of the extras ship; the folder `data_dir`, or
    the one that the environment variable ``STEELYARD_DATA`` names; packages that ship the set without its
    incomplete rows; OpenML, if there is a network and ``STEELYARD_OFFLINE`` is not set. What comes is taken
    only if its rows, features and classes are those of the set.

    Parameters
    ----------
    name : str
        One of :func:`available`.
    data_dir : path, optional
        Folder with ``NAME.csv.gz`` (labels in the last column, ``target``), ``faces_orl.npz``,
        ``reuters5.jsonl.gz``.

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetUnavailable
        None of the places has it; the message says what was tried.

    Examples
    --------
    >>> from steelyard.datasets import load
    >>> iris = load("iris")
    >>> iris.numbers().shape, iris.binary(2).sum(), iris.source
    ((150, 4), np.int64(50), 'scikit-learn')
    """
    _check_name(name)
    tried: list[str] = []
    folder = data_folder(data_dir)
    places: list[tuple[str, Callable[[], Dataset | None]]] = [
        ("installed packages", lambda: from_package(name)),
        (f"folder `{folder}`", lambda: from_folder(name, folder) if folder is not None else None),
        ("packages that leave incomplete rows out", lambda: from_package(name, whole=False)),
        ("OpenML", lambda: from_openml(name) if not os.environ.get("STEELYARD_OFFLINE") else None),
    ]
    for place, ask in places:
        try:
            found = ask()
        except (DatasetUnavailable, OSError, ValueError, KeyError) as trouble:
            tried.append(f"{place} ({_first_line(trouble)})")
            continue
        if found is not None:
            return found
        tried.append("no folder was named" if folder is None and place.startswith("folder") else place)
    raise DatasetUnavailable(
        f"{name!r} cannot be had; tried {', '.join(tried)}.", source="datasets.load", hint=_HINT
    )


def load_splits(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> Splits:
    """Load the runs that the KOIL authors split one of their sets into.

    Parameters
    ----------
    name : str
        A name of :func:`available` that begins with ``koil_``.
    data_dir : path, optional
        Folder with ``NAME.splits.npz``; the environment variable ``STEELYARD_DATA`` otherwise.

    Returns
    -------
    Splits

    Raises
    ------
    DatasetUnavailable
        There is no such file.
    """
    _check_name(name)
    folder = data_folder(data_dir)
    path = None if folder is None else folder / f"{name}.splits.npz"
    if path is None or not path.exists():
        where = "no folder was named" if path is None else f"there is no `{path}`"
        raise DatasetUnavailable(
            f"the splits of {name!r} cannot be had; {where}.", source="datasets.load_splits", hint=_HINT
        )
    return _read_splits(name, path)


def _read_splits(name: str, path: Path) -> Splits:
    try:
        with np.load(path) as arrays:
            splits = Splits(name, arrays["idx_cv"], arrays["idx_asso"])
    except (OSError, ValueError, KeyError) as trouble:
        raise FileAccessError(
            f"`{path}` cannot be read: {trouble}.", source="datasets.load_splits"
        ) from trouble
    if len(splits.folds) != CATALOG[name].rows:
        raise DatasetUnavailable(
            f"`{path}` is for {len(splits.folds)} rows; {name!r} has {CATALOG[name].rows}.",
            source="datasets.load_splits",
        )
    return splits


def _check_name(name: str) -> None:
    if name in CATALOG:
        return
    near = difflib.get_close_matches(str(name), CATALOG, n=1)
    raise ParameterError(
        f"there is no set {name!r}.",
        source="datasets.load",
        hint=f"did you mean {near[0]!r}?" if near else "steelyard.datasets.available() lists them all",
    )


def _first_line(trouble: Exception) -> str:
    return str(trouble).partition("\n")[0] or type(trouble).__name__
