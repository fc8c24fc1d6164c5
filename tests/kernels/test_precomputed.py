"""PrecomputedKernel gives the same learner as rows, also with incremental learning and forgetting."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from sklearn.svm import SVC

from steelyard import IncrementalSVC
from steelyard.exceptions import DataError
from steelyard.kernels import Kernel, PrecomputedKernel
from steelyard.persistence import from_bytes, to_bytes

rng = np.random.default_rng(5)
ROWS = rng.normal(size=(60, 4))
LABELS = (ROWS[:, 0] + 0.5 * rng.normal(size=60) > 0).astype(int)
MATRIX = Kernel("rbf", gamma=0.3).block(ROWS)
NUMBERS = np.arange(60)[:, None]


def test_precomputed_kernel_matches_svc():
    model = IncrementalSVC(2.0, kernel=PrecomputedKernel(MATRIX)).fit(NUMBERS[:40], LABELS[:40])
    peer = SVC(C=2.0, kernel="precomputed", tol=1e-10).fit(MATRIX[:40, :40], LABELS[:40])
    np.testing.assert_allclose(
        model.decision_function(NUMBERS), peer.decision_function(MATRIX[:, :40]), atol=1e-6
    )


def test_precomputed_kernel_supports_learning_and_forgetting():
    by_number = IncrementalSVC(2.0, kernel=PrecomputedKernel(MATRIX)).fit(NUMBERS[:40], LABELS[:40])
    by_rows = IncrementalSVC(2.0, gamma=0.3).fit(ROWS[:40], LABELS[:40])
    by_number.partial_fit(NUMBERS[40:50], LABELS[40:50]).forget(NUMBERS[:15], LABELS[:15])
    by_rows.partial_fit(ROWS[40:50], LABELS[40:50]).forget(ROWS[:15], LABELS[:15])
    np.testing.assert_allclose(
        by_number.decision_function(NUMBERS), by_rows.decision_function(ROWS), atol=1e-6
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: from_bytes(to_bytes(model))])
def test_learner_with_precomputed_kernel_is_copied_and_saved(copied):
    model = IncrementalSVC(kernel=PrecomputedKernel(MATRIX)).fit(NUMBERS[:40], LABELS[:40])
    np.testing.assert_array_equal(copied(model).decision_function(NUMBERS), model.decision_function(NUMBERS))


@pytest.mark.parametrize(
    ("matrix", "samples", "words"),
    [
        (MATRIX[:, :3], NUMBERS, "square matrix"),
        (MATRIX + np.triu(MATRIX), NUMBERS, "not symmetric"),
        (MATRIX * np.nan, NUMBERS, "not finite"),
        (MATRIX, NUMBERS + 0.5, "integers from 0 to 59"),
        (MATRIX, NUMBERS + 1, "integers from 0 to 59"),
        (MATRIX, -NUMBERS, "integers from 0 to 59"),
        (MATRIX, MATRIX, "not the matrix"),
    ],
)
def test_invalid_matrix_or_samples_raise(matrix, samples, words):
    with pytest.raises(DataError, match=words):
        IncrementalSVC(kernel=PrecomputedKernel(matrix)).fit(samples, LABELS)


def test_kernels_with_equal_matrices_are_equal():
    assert PrecomputedKernel(MATRIX) == PrecomputedKernel(MATRIX.copy())
    assert PrecomputedKernel(MATRIX) != PrecomputedKernel(MATRIX + 1)
    assert len({PrecomputedKernel(MATRIX), PrecomputedKernel(MATRIX.copy())}) == 1


def test_gamma_of_rows_whose_distances_overflow_raises():
    with pytest.raises(DataError, match="distances between the rows overflow"):
        IncrementalSVC().fit(ROWS * 1e300, LABELS)
