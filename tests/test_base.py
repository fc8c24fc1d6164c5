"""Base classes of the learners, and validation of rows and labels, tested through the learners."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from steelyard import KOIL, EnclosingClassifier, IncrementalSVC, ProximalSVC
from steelyard._labels import encode_labels
from steelyard.base import BatchLearner, sorted_classes
from steelyard.exceptions import DataError, DataTypeError
from steelyard.persistence import to_bytes

LEARNERS = {
    "ProximalSVC": ProximalSVC(),
    "ProximalSVC-auto": ProximalSVC(C="auto"),
    "IncrementalSVC": IncrementalSVC(),
    "EnclosingClassifier": EnclosingClassifier(),
    "KOIL": KOIL(random_state=0),
}


@pytest.fixture(params=LEARNERS, ids=str)
def learner(request):
    return LEARNERS[request.param].__sklearn_clone__()


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    return rng.normal(size=(40, 3)) + y[:, None], y


@pytest.mark.parametrize("n_rows", [1, 40])
def test_unsortable_new_labels_raise_and_keep_state(learner, rows, n_rows):
    X, y = rows
    learner.fit(X, y)
    before = to_bytes(learner)
    with pytest.raises(DataTypeError, match="one sortable type"):
        learner.partial_fit(X[:n_rows], np.where(y, "b", "a")[:n_rows])
    assert to_bytes(learner) == before
    assert learner.partial_fit(X, y).classes_.tolist() == [0, 1]


def test_refit_accepts_another_label_type(learner, rows):
    X, y = rows
    learner.fit(X, y).fit(X, np.where(y, "b", "a"))
    assert learner.partial_fit(X, np.where(y, "b", "c")).classes_.tolist() == ["a", "b", "c"]


def test_labels_of_mixed_types_raise(learner, rows):
    X, y = rows
    with pytest.raises(DataTypeError, match="one sortable type"):
        learner.fit(X, np.array(["a", 1], dtype=object)[y])


@pytest.mark.parametrize("classes", [[[0, 1]], [[0], [1, 2]], 0, {"a": 1}])
def test_invalid_classes_argument_raises(learner, rows, classes):
    with pytest.raises(DataError, match="`classes` must be a flat list of labels"):
        learner.partial_fit(*rows, classes=classes)


def test_unsigned_labels_beyond_int64_are_kept(learner, rows):
    X, y = rows
    labels = y.astype(np.uint64) + np.uint64(2**63 + 5)
    assert learner.fit(X, labels).classes_.tolist() == [2**63 + 5, 2**63 + 6]
    assert set(learner.predict(X).tolist()) <= set(labels.tolist())


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
def test_pandas_nullable_integers_are_not_rounded(rows, dtype):
    X, y = rows
    labels = pd.Series(2**60 + y, dtype=dtype)
    assert ProximalSVC().fit(X, labels).classes_.tolist() == [2**60, 2**60 + 1]


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "float64", "boolean", "string", "object"])
def test_missing_labels_raise_with_row_number(rows, dtype):
    X, y = rows
    labels = pd.Series(y, dtype=dtype)
    labels.iloc[2] = None
    with pytest.raises(DataError, match=r"NaN or None: row 2 has no label \(1 of"):
        ProximalSVC().fit(X, labels)


@pytest.mark.parametrize("values", [[False, True], [3, 7]])
def test_labels_left_after_dropping_missing_ones_are_learned(rows, values):
    X, y = rows
    labels = pd.Series(np.array(values, dtype=object)[y])
    labels.iloc[2] = None
    known = labels.notna()  # the labels are objects, which scikit-learn rejects
    model = ProximalSVC().fit(X[known], labels[known])
    assert model.classes_.tolist() == values
    assert model.classes_.dtype.kind in "bi"


def test_text_nan_is_a_valid_label(rows):
    X, y = rows
    assert ProximalSVC().fit(X, np.where(y, "nan", "ok").astype(object)).classes_.tolist() == ["nan", "ok"]


@pytest.mark.parametrize("module", [pd, pl])
def test_table_with_text_raises_with_column_and_hint_to_table_model(rows, module):
    X, y = rows
    table = module.DataFrame({"amount": X[:, 0], "country": ["NZ"] * len(y)})
    with pytest.raises(DataError, match=r"column 'country' .* 'NZ'.*\nhint: TableModel\(ProximalSVC\(\)\)"):
        ProximalSVC().fit(table, y)


def test_pandas_nullable_booleans_stay_booleans(rows):
    X, y = rows
    assert ProximalSVC().fit(X, pd.Series(y, dtype="boolean")).classes_.tolist() == [False, True]


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0",
    reason="strings of any length came with NumPy 2, and the lowest version supported is 1.26",
)
def test_numpy_variable_length_strings_are_valid_labels(rows):
    X, y = rows
    labels = np.where(y, "fraud", "ok").astype(np.dtypes.StringDType())
    assert ProximalSVC().fit(X, labels).classes_.tolist() == ["fraud", "ok"]


def test_classes_of_mixed_integer_types_are_not_rounded():
    assert sorted_classes([-1, 2**63, 2**63 + 1]).tolist() == [-1, 2**63, 2**63 + 1]
    assert sorted_classes([1, 0.5]).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, bool])
def test_encode_labels_handles_every_integer_type(dtype):
    y = (
        np.array([True, False], dtype)
        if dtype is bool
        else np.array([np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    )
    labels, codes = encode_labels(y)
    assert labels == sorted(y.tolist())
    assert [labels[code] for code in codes] == y.tolist()


@pytest.mark.parametrize(
    "learner", [ProximalSVC(), IncrementalSVC()], ids=lambda learner: type(learner).__name__
)
@pytest.mark.parametrize("indices", [[1, 1, 2], [2, 0, 1]], ids=["duplicate entries", "entries out of order"])
def test_sparse_input_is_not_changed(learner, indices):
    X = sp.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array(indices), [0, 2, 3]), shape=(2, 3))
    learner.fit(X, [0, 1]).predict(X)
    assert X.indices.tolist() == indices
    assert X.data.tolist() == [1.0, 2.0, 3.0]


def test_rows_with_swapped_byte_order_are_accepted(learner, rows):
    X, y = rows
    learner.fit(X, y)
    np.testing.assert_array_equal(learner.predict(X.astype(">f8")), learner.predict(X))
    assert learner.partial_fit(X.astype(">f8"), y.astype(">i8")).classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    "y",
    [
        np.array([True, False, True]),
        np.array([5, 6, 5], dtype=np.uint8),
        np.array([-1, 0, -1]),
        np.array([2**63, 2**63 + 1], dtype=np.uint64),
        np.array([7, 9, 8, 7]),
    ],
    ids=str,
)
def test_encode_labels_sorts_like_numpy(y):
    labels, codes = encode_labels(y)
    expected, places = np.unique(y, return_inverse=True)
    assert labels == expected.tolist()
    assert [type(label) for label in labels] == [type(label) for label in expected.tolist()]
    np.testing.assert_array_equal(codes, places)
    assert codes.dtype == np.int32


def test_learner_class_hierarchies_have_at_most_six_levels():
    def depth(cls):
        bases = [depth(base) for base in cls.__bases__ if base.__module__.startswith("steelyard")]
        return 1 + max(bases, default=0)

    def subclasses(cls):
        return {cls}.union(*(subclasses(sub) for sub in cls.__subclasses__()))

    too_deep = [cls.__qualname__ for cls in subclasses(BatchLearner) if depth(cls) > 6]
    assert not [name for name in too_deep if "<locals>" not in name]
