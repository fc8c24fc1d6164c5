"""Datasets are loaded from the first source that has them, and validated."""

from __future__ import annotations

import gzip
import json
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest

from steelyard.datasets import Dataset, Splits, available, load, load_splits
from steelyard.datasets.catalog import CATALOG
from steelyard.exceptions import DatasetUnavailable, ParameterError


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    monkeypatch.setenv("STEELYARD_OFFLINE", "1")
    monkeypatch.delenv("STEELYARD_DATA", raising=False)


def write_heart(folder):
    entry = CATALOG["heart_cleveland"]
    labels = [label for label, n in entry.classes.items() for _ in range(n)]
    table = pd.DataFrame(np.ones((303, 13)), columns=[f"f{k}" for k in range(13)])
    table.assign(target=labels).to_csv(folder / "heart_cleveland.csv.gz", index=False)


@pytest.mark.parametrize("name", ["iris", "wine", "digits", "wdbc"])
def test_dataset_is_loaded_from_scikit_learn(name):
    assert load(name).source == "scikit-learn"


def test_dataset_is_loaded_from_given_folder(tmp_path):
    write_heart(tmp_path)
    data = load("heart_cleveland", data_dir=tmp_path)
    assert data.numbers().shape == (303, 13)
    assert data.binary([1, 2, 3, 4]).sum() == 139


def test_dataset_is_loaded_from_folder_of_environment_variable(tmp_path, monkeypatch):
    write_heart(tmp_path)
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path))
    assert load("heart_cleveland").source.endswith("heart_cleveland.csv.gz")


def test_dataset_is_loaded_from_package_without_incomplete_rows(monkeypatch):
    labels = {0: 160, 1: 54, 2: 35, 3: 35, 4: 13}
    y = np.repeat(list(labels), list(labels.values()))
    packaged = {"heart_cleveland": lambda: (pd.DataFrame(np.ones((297, 13))), y, "a package")}
    monkeypatch.setattr("steelyard.datasets.loading._PACKAGED", packaged)
    assert len(load("heart_cleveland").y) == 297


def test_full_dataset_in_folder_is_preferred_to_shortened_packaged_dataset(tmp_path):
    write_heart(tmp_path)
    assert len(load("heart_cleveland", data_dir=tmp_path).y) == 303


def test_loading_file_with_wrong_shape_raises(tmp_path):
    pd.DataFrame(np.ones((30, 4)), columns=["a", "b", "c", "target"]).to_csv(
        tmp_path / "oil_spill.csv.gz", index=False
    )
    with pytest.raises(DatasetUnavailable, match="expected 937 x 49"):
        load("oil_spill", data_dir=tmp_path)


def test_unavailable_dataset_error_lists_sources_and_hint():
    with pytest.raises(DatasetUnavailable, match="tried installed packages, no folder was named,") as e:
        load("elec2")
    assert "STEELYARD_DATA" in str(e.value)


def test_openml_is_the_last_source_and_its_error_is_reported(monkeypatch):
    asked = []

    def no_network(request, *_, **__):
        asked.append(request)
        raise URLError("no route to host")

    monkeypatch.delenv("STEELYARD_DATA", raising=False)
    monkeypatch.delenv("STEELYARD_OFFLINE", raising=False)
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", no_network)
    with pytest.raises(DatasetUnavailable, match=r"OpenML \(.*no route to host.*\)"):
        load("covtype")
    assert asked


def test_openml_labels_are_translated(monkeypatch):
    monkeypatch.delenv("STEELYARD_OFFLINE")

    class Bunch:
        data = pd.DataFrame(np.ones((11183, 6)))
        target = pd.Series(["-1"] * 10923 + ["1"] * 260)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: Bunch)
    assert set(load("mammography").y.tolist()) == {-1, 1}


def test_misspelt_name_error_suggests_similar_name():
    with pytest.raises(ParameterError, match="did you mean 'abalone'"):
        load("abalon")


def test_all_koil_datasets_are_in_the_catalog():
    assert sum(name.startswith("koil_") for name in available()) == 18


def test_image_and_text_datasets_are_loaded(tmp_path):
    images, person = np.zeros((400, 112, 92), np.uint8), np.repeat(np.arange(40), 10)
    np.savez_compressed(tmp_path / "faces_orl.npz", images=images, person=person)
    assert load("faces_orl", data_dir=tmp_path).numbers().shape == (400, 112 * 92)
    document = {"topics": ["corn", "wheat"], "title": "A", "body": None}
    with gzip.open(tmp_path / "reuters5.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(document) + "\n" for _ in range(736))
    texts = load("reuters5", data_dir=tmp_path)
    assert (texts.X[0], texts.y[0]) == ("A\n", ("corn", "wheat"))


def test_ordered_levels_are_encoded_as_increasing_numbers():
    table = pd.DataFrame({"buying": ["low", "vhigh", "med"], "safety": ["high", "low", "med"]})
    numbers = Dataset("car", table, np.zeros(3), "here").numbers(nominal="onehot")
    np.testing.assert_array_equal(numbers, [[0, 2], [3, 0], [1, 1]])


def test_unordered_levels_are_encoded_as_codes_or_indicator_columns():
    table = pd.DataFrame({"sex": ["M", "F", "I"], "length": [0.1, 0.2, 0.3]})
    data = Dataset("abalone", table, np.zeros(3), "here")
    np.testing.assert_array_equal(data.numbers()[:, 0], [2, 0, 1])
    np.testing.assert_array_equal(data.numbers(nominal="onehot")[:, :3], [[0, 0, 1], [1, 0, 0], [0, 1, 0]])


def test_missing_cells_are_nan_and_complete_removes_their_rows():
    table = pd.DataFrame({"a": [1.0, np.nan], "b": ["t", None]})
    data = Dataset("set", table, np.array([0, 1]), "here")
    assert np.isnan(data.numbers()[1]).all()
    assert len(data.complete().y) == 1


def test_binary_accepts_label_collection_or_function():
    data = Dataset("set", None, np.array([1, 2, 3]), "here")
    assert data.binary(2).tolist() == [0, 1, 0]
    assert data.binary([1, 3]).tolist() == [1, 0, 1]
    assert data.binary(lambda rings: rings < 3).tolist() == [1, 1, 0]


def test_inner_folds_are_read_in_order_of_the_authors_file(tmp_path):
    rows = CATALOG["koil_sonar"].rows
    folds = np.tile((np.arange(rows) % 5 + 1).astype(np.int8)[:, None], (1, 4))
    inner = (np.arange(5 * rows) % 100).astype(np.int8)[:, None] * np.ones((1, 4), np.int8)
    np.savez(tmp_path / "koil_sonar.splits.npz", idx_cv=folds, idx_asso=inner)
    splits = load_splits("koil_sonar", data_dir=tmp_path)
    assert len(list(splits)) == len(splits) == 20
    first, second = splits[5], splits[6]
    assert (folds[second.test, 1] == 2).all()
    assert len(second.inner) == len(second.train)
    assert second.inner[0] == inner[len(first.train), 1]


def test_missing_splits_file_raises():
    with pytest.raises(DatasetUnavailable, match="no folder was named"):
        load_splits("koil_sonar")


def test_split_index_beyond_twenty_raises():
    with pytest.raises(IndexError, match="20 runs"):
        Splits("koil_s4", np.ones((5, 4), np.int8), np.ones((25, 4), np.int8))[20]
