"""Loading of datasets from the first available source."""

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

_HINT = (
    "name a folder that contains it with data_dir=... (--data-dir on the command line) or the environment"
    " variable STEELYARD_DATA"
)


def available() -> tuple[str, ...]:
    """Return the names that :func:`load` accepts. Some datasets may be unavailable on this machine.

    Returns
    -------
    tuple of str
    """
    return tuple(CATALOG)


def load(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a dataset by name from the first source that has it.

    The sources, in order: scikit-learn and other installed packages; the folder ``data_dir``, or the folder
    in the environment variable ``STEELYARD_DATA``; packages that contain the dataset without incomplete rows;
    OpenML, if there is a network and ``STEELYARD_OFFLINE`` is not set. Data is accepted only if the numbers
    of rows, of features and of rows per class agree with the catalog.

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
        If no source has the dataset; the message lists the sources.

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
    sources: list[tuple[str, Callable[[], Dataset | None]]] = [
        ("installed packages", lambda: from_package(name)),
        (f"folder `{folder}`", lambda: from_folder(name, folder) if folder is not None else None),
        ("packages without incomplete rows", lambda: from_package(name, whole=False)),
        ("OpenML", lambda: from_openml(name) if not os.environ.get("STEELYARD_OFFLINE") else None),
    ]
    for source, read in sources:
        try:
            found = read()
        except (DatasetUnavailable, OSError, ValueError, KeyError) as error:
            tried.append(f"{source} ({_first_line(error)})")
            continue
        if found is not None:
            return found
        tried.append("no folder was named" if folder is None and source.startswith("folder") else source)
    raise DatasetUnavailable(
        f"{name!r} is not available; tried {', '.join(tried)}.", source="datasets.load", hint=_HINT
    )


def load_splits(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> Splits:
    """Load the splits of the KOIL authors for one of their datasets.

    Parameters
    ----------
    name : str
        A name of :func:`available` that begins with ``koil_``.
    data_dir : path, optional
        Folder with ``NAME.splits.npz``; by default the folder in the environment variable ``STEELYARD_DATA``.

    Returns
    -------
    Splits

    Raises
    ------
    DatasetUnavailable
        If the file does not exist.
    """
    _check_name(name)
    folder = data_folder(data_dir)
    path = None if folder is None else folder / f"{name}.splits.npz"
    if path is None or not path.exists():
        where = "no folder was named" if path is None else f"there is no `{path}`"
        raise DatasetUnavailable(
            f"the splits of {name!r} are not available; {where}.", source="datasets.load_splits", hint=_HINT
        )
    return _read_splits(name, path)


def _read_splits(name: str, path: Path) -> Splits:
    try:
        with np.load(path) as arrays:
            splits = Splits(name, arrays["idx_cv"], arrays["idx_asso"])
    except (OSError, ValueError, KeyError) as error:
        raise FileAccessError(f"`{path}` cannot be read: {error}.", source="datasets.load_splits") from error
    if len(splits.folds) != CATALOG[name].rows:
        raise DatasetUnavailable(
            f"`{path}` has splits of {len(splits.folds)} rows, but {name!r} has {CATALOG[name].rows} rows.",
            source="datasets.load_splits",
        )
    return splits


def _check_name(name: str) -> None:
    if name in CATALOG:
        return
    near = difflib.get_close_matches(str(name), CATALOG, n=1)
    raise ParameterError(
        f"there is no dataset {name!r}.",
        source="datasets.load",
        hint=f"did you mean {near[0]!r}?" if near else "steelyard.datasets.available() lists them all",
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
