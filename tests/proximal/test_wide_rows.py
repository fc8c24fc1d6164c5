"""ProximalSVC warns about the memory that wide rows need before it allocates the memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from steelyard import ProximalSVC
from steelyard.exceptions import MemoryLimitError
from steelyard.features import RandomFeatures

_WIDTH = 1500
_BYTES = 8 * (_WIDTH + 1) ** 2 * 8  # two classes: two matrices of statistics, and six for the planes


def _rows(n=20, width=_WIDTH):
    X = sp.random(n, width, 0.01, format="csr", random_state=0)
    return X, np.arange(n) % 2


@pytest.mark.parametrize("is_sparse", [True, False])
def test_wide_rows_warn_with_memory_size_before_allocation(monkeypatch, is_sparse):
    monkeypatch.setattr("steelyard._memory.available_bytes", lambda: 2 * _BYTES)
    monkeypatch.setattr("steelyard._memory._MAX_SILENT_SPARSE_BYTES", _BYTES // 2)
    X, y = _rows()
    model = ProximalSVC()
    with pytest.warns(
        UserWarning, match=r"8 dense matrices of 1,500 x 1,500 for 2 classes will take about 0.1 GiB"
    ):
        model.partial_fit(X if is_sparse else X.toarray(), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X, y)  # the classes are known


def test_wide_rows_that_exceed_memory_raise_and_keep_state(monkeypatch):
    monkeypatch.setattr("steelyard._memory.available_bytes", lambda: _BYTES - 1)
    X, y = _rows()
    model = ProximalSVC()
    with pytest.raises(MemoryLimitError, match="nothing was allocated") as caught:
        model.partial_fit(X, y)
    assert "HashingVectorizer" in caught.value.hint
    assert not hasattr(model, "classes_")


def test_narrow_rows_and_feature_maps_do_not_warn(monkeypatch):
    monkeypatch.setattr("steelyard._memory.available_bytes", lambda: _BYTES)
    X, y = _rows(width=900)
    ProximalSVC().partial_fit(X, y)
    wide, y = _rows()
    ProximalSVC(feature_map=RandomFeatures(n_components=50, gamma=0.1, random_state=0)).partial_fit(
        wide.toarray(), y
    )
