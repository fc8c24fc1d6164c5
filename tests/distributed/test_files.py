"""Statistics in files: their combination equals a local fit, and no part is counted twice."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from steelyard import ProximalSVC, RandomFeatures, load, save
from steelyard.distributed import files
from steelyard.exceptions import DataError, FileFormatError
from tests.distributed.data import CUTS, assert_same_model, one_machine, rows_and_cuts
from tests.proximal.data import imbalanced


def written(folder, X, y, cuts, **parameters):
    paths = []
    for number, rows in enumerate(np.split(np.arange(len(y)), cuts)):
        paths.append(folder / f"part{number}.stats")
        part = files.statistics(ProximalSVC(**parameters), [(X[rows], y[rows])], source=f"site {number}")
        files.write(part, paths[-1])
    return paths


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("C", [2.0, "auto"])
def test_combine_of_statistics_files_equals_local_fit(rng, tmp_path, cut, C):
    X, y, cuts = rows_and_cuts(rng, cut)
    model = files.combine(written(tmp_path, X, y, cuts, C=C)).model
    assert_same_model(model, one_machine(X, y, C=C))


def test_combine_with_other_solver_parameters_equals_local_fit(rng, tmp_path):
    X, y, cuts = rows_and_cuts(rng, "halves")
    model = files.combine(written(tmp_path, X, y, cuts)).model.set_params(C=7.0, class_weight=None)
    assert_same_model(model, one_machine(X, y, C=7.0, class_weight=None))


def test_combine_parts_with_seeded_feature_map_equals_local_fit(rng, tmp_path):
    X, y, cuts = rows_and_cuts(rng, "halves")
    feature_map = RandomFeatures(30, gamma=0.05)
    model = files.combine(written(tmp_path, X, y, cuts, feature_map=feature_map)).model
    fresh = one_machine(X, y, feature_map=feature_map)
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=0, atol=1e-10)


def test_combine_copied_part_raises_with_name(rng, tmp_path):
    X, y, cuts = rows_and_cuts(rng, "halves")
    paths = written(tmp_path, X, y, cuts)
    shutil.copy(paths[1], tmp_path / "part1 (copy).stats")
    with pytest.raises(
        DataError, match=r"'site 1' is already contained as a part of 'site 1'; .* count twice"
    ):
        files.combine([*paths, tmp_path / "part1 (copy).stats"])


def test_combine_duplicate_rows_in_any_order_raises(rng):
    X, y = imbalanced(rng)
    order = rng.permutation(len(y))
    first = files.statistics(ProximalSVC(), [(X, y)], source="monday")
    chunks = [(X[rows], y[rows]) for rows in np.array_split(order, 7)]
    second = files.statistics(ProximalSVC(), chunks, source="monday again")
    with pytest.raises(DataError, match="'monday again' is already contained as a part of 'monday'"):
        files.combine([first, second])


def test_combine_part_contained_in_other_part_raises(rng, tmp_path):
    X, y = imbalanced(rng)
    parts = [files.statistics(ProximalSVC(), [(X[i::3], y[i::3])], source=str(i)) for i in range(3)]
    files.write(files.combine(parts[:2]), tmp_path / "both.stats")
    with pytest.raises(DataError, match="is already contained"):
        files.combine([tmp_path / "both.stats", parts[1]])
    model = files.combine([tmp_path / "both.stats", parts[2]]).model
    assert_same_model(model, one_machine(X, y))


def test_combine_keeps_parts_unchanged(rng):
    X, y = imbalanced(rng)
    parts = [files.statistics(ProximalSVC(), [(X[i::2], y[i::2])], source=str(i)) for i in range(2)]
    before = [part.model.statistics_.to_bytes() for part in parts]
    files.combine(parts)
    assert [part.model.statistics_.to_bytes() for part in parts] == before
    assert [len(part.sources) for part in parts] == [1, 1]


def test_statistics_of_nan_raise_with_source_chunk_and_column(rng):
    X, y = imbalanced(rng)
    X[250, 3] = np.nan
    with pytest.raises(DataError, match="january, chunk 2: X has NaN in row 50, column 3"):
        files.statistics(
            ProximalSVC(), [(X[i : i + 100], y[i : i + 100]) for i in (0, 100, 200)], source="january"
        )


def test_combine_model_file_raises(rng, tmp_path):
    save(one_machine(*imbalanced(rng)), tmp_path / "model")
    with pytest.raises(FileFormatError, match="contains a ProximalSVC, not statistics"):
        files.combine([tmp_path / "model"])


def test_combine_without_parts_raises():
    with pytest.raises(DataError, match="there are no parts"):
        files.combine([])


def test_combine_parts_with_different_features_raises(rng):
    X, y = imbalanced(rng)
    parts = [files.statistics(ProximalSVC(), [(rows, y)], source="") for rows in (X, X[:, :4])]
    with pytest.raises(DataError, match="same features; this one has 5, the other 4"):
        files.combine(parts)


def test_combine_with_empty_part_equals_local_fit(rng, tmp_path):
    X, y = imbalanced(rng)
    empty = files.statistics(ProximalSVC(), [(X[:0], y[:0])], source="night")
    files.write(empty, tmp_path / "empty.stats")
    full = files.statistics(ProximalSVC(), [(X, y)], source="day")
    assert_same_model(files.combine([tmp_path / "empty.stats", empty, full]).model, one_machine(X, y))
    assert load(tmp_path / "empty.stats").sources == {}


@given(st.randoms(use_true_random=False))
def test_part_id_depends_on_rows_labels_and_weights(random):
    rng = np.random.default_rng(random.randrange(2**32))
    X, y, weight = rng.integers(0, 3, (6, 3)).astype(float), rng.integers(0, 2, 6), np.ones(6)

    def id_of(X, y, weight=None):
        digest = files.RowDigest()
        digest.add(X, y, weight)
        return digest.id

    i, j = rng.integers(6), rng.integers(3)
    other_X, other_y, other_weight = X.copy(), y.copy(), weight.copy()
    other_X[i, j] += 1.0
    other_y[i] = 1 - y[i]
    other_weight[i] = 2.0
    assert id_of(X, y) not in {id_of(other_X, y), id_of(X, other_y), id_of(X[:5], y[:5])}
    assert id_of(X, y, weight) != id_of(X, y, other_weight)
    assert id_of(X, y) == id_of(sp.csr_matrix(X), y) == id_of(X.astype(np.float32), y.astype(float))


# -- adding and forgetting rows ---------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"C": "auto"}, {"track_rows": True}])
@pytest.mark.parametrize("in_files", [True, False])
def test_parts_that_add_and_forget_equal_fit_on_remaining_rows(rng, tmp_path, parameters, in_files):
    X, y = imbalanced(rng, 900, 5, (0.6, 0.3, 0.1))
    X[400:, 2] = 0.0  # this column is zero in all later rows
    model = ProximalSVC(**parameters).fit(X[:600], y[:600])
    parts = [
        files.statistics(
            files.unlearned(model),
            [(X[600 + i :: 2], y[600 + i :: 2])],
            forget=[(X[i:400:2], y[i:400:2])],
            source=f"site {i}",
        )
        for i in range(2)
    ]
    if in_files:
        for number, part in enumerate(parts):
            files.write(part, tmp_path / f"{number}.stats")
        parts = [tmp_path / f"{number}.stats" for number in range(2)]
    assert files.update(model, parts) is model
    fresh = ProximalSVC(**parameters, quantizer=model.quantizer_).fit(X[400:], y[400:])
    assert model.digest() == fresh.digest()
    np.testing.assert_array_equal(model.decision_function(9.0 * X), fresh.decision_function(9.0 * X))


def test_update_by_parts_is_atomic(rng):
    X, y = imbalanced(rng, 600)
    model = ProximalSVC().fit(X[:400], y[:400])
    before = model.digest()
    strangers = files.statistics(
        files.unlearned(model), [(X[400:], y[400:])], forget=[(X[:50] + 9.0, y[:50])]
    )
    with pytest.raises(DataError, match="never learned"):
        files.update(model, [strangers])
    good = files.statistics(files.unlearned(model), [], forget=[(X[:50], y[:50])], source="a")
    with pytest.raises(DataError, match="is already contained"):
        files.update(model, [good, good])
    assert model.digest() == before
    assert (
        files.update(model, [good]).digest()
        == ProximalSVC(quantizer=model.quantizer_).fit(X[50:400], y[50:400]).digest()
    )


def test_failed_merge_keeps_part_unchanged(rng):
    X, y = imbalanced(rng)
    one = files.statistics(ProximalSVC(), [(X[:100], y[:100])], forget=[(X[:9], y[:9])], source="a")
    other = files.statistics(ProximalSVC(), [(X[100:], y[100:])], forget=[(X[:9], y[:9])], source="b")
    before = one.model.digest(), dict(one.sources), dict(one.retired.sources)
    with pytest.raises(DataError, match="is already contained"):
        one.merge(other)
    assert (one.model.digest(), one.sources, one.retired.sources) == before


@pytest.mark.parametrize("order", [1, -1])
def test_row_ledgers_detect_part_contained_in_other_part(rng, order):
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 2
    parts = [
        files.statistics(ProximalSVC(track_rows=True), [(X[rows], y[rows])], source=str(rows))
        for rows in (slice(60), slice(20))
    ]
    with pytest.raises(DataError, match="all 20 rows of one part are contained in another part"):
        files.combine(parts[::order])
    shifted = files.statistics(ProximalSVC(track_rows=True), [(X[:20] + 1.0, y[:20])], source="other")
    assert files.combine([parts[0], shifted]).model.class_count_.sum() == 80
