"""Rows without labels are predicted and counted, but neither measured nor learned."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from steelyard import ProximalSVC
from steelyard.evaluation import prequential
from steelyard.exceptions import DataError, ParameterError
from steelyard.streams import ArrayStream
from steelyard.tables import open_stream


def _frame(n=900, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    frame = pd.DataFrame({"a": rng.normal(size=n) + y, "kind": rng.choice(["x", "z"], n)})
    return frame, y, rng.random(n) < 0.25


def _digest(result):
    return next(iter(result.models.values())).digest()


@pytest.mark.parametrize("kind", ["int", "text"])
@pytest.mark.parametrize("chunk", [1, 100, 1000])
def test_rows_with_missing_labels_are_predicted_but_not_learned(kind, chunk):
    frame, y, missing = _frame(300 if chunk == 1 else 900)
    labels = pd.Series(np.where(y, "yes", "no") if kind == "text" else y.astype(int)).astype(object)
    labels[missing] = None
    frame["y"] = labels
    text = frame.to_csv(index=False).encode()
    result = prequential(ProximalSVC(), open_stream(io.BytesIO(text), "y", chunk=chunk, unlabelled="keep"))
    assert (result.n_rows, result.n_unlabelled) == (int((~missing).sum()), int(missing.sum()))
    known = prequential(ProximalSVC(), frame[~missing].reset_index(drop=True), target="y", chunk=chunk)
    assert result.labels == known.labels
    if chunk == 1000:  # one chunk: the same rows are learned at once
        assert _digest(result) == _digest(known)
    counts = result.unlabelled_predictions()["ProximalSVC"]
    assert sum(counts.values()) <= missing.sum()
    if chunk == 100:
        assert sum(counts.values()) == missing[100:].sum(), "all but the first chunk can be predicted"
        document = result.as_dict()["unlabelled"]
        assert document["rows"] == missing.sum()
        assert sum(document["predicted"]["ProximalSVC"].values()) == sum(counts.values())


def test_frame_and_array_with_missing_labels_agree():
    frame, y, missing = _frame()
    X, labels = frame[["a"]].to_numpy(), y.astype(float)
    labels[missing] = np.nan
    results = [
        prequential(ProximalSVC(), X, labels),
        prequential(ProximalSVC(), frame[["a"]], labels),
        prequential(
            ProximalSVC(), X, [None if m else int(label) for m, label in zip(missing, y, strict=True)]
        ),
    ]
    assert len({_digest(result) for result in results}) == 1
    assert {result.n_unlabelled for result in results} == {missing.sum()}
    assert results[0].labels == {0: int((~y & ~missing).sum()), 1: int((y & ~missing).sum())}


def test_delay_counts_labelled_rows_only():
    frame, y, missing = _frame()
    labels = y.astype(float)
    labels[missing] = np.nan
    X = frame[["a"]].to_numpy()
    late = prequential(ProximalSVC(), ArrayStream(X, labels, chunk=100), delay=200)
    assert late.summary()[0]["tested"] < (~missing).sum() - 200 + 100
    assert sum(late.models["ProximalSVC"].class_count_) == (~missing).sum()


def test_chunks_without_any_label_are_predicted():
    frame, y, _ = _frame()
    labels = y.astype(float)
    labels[:150], labels[400:620] = np.nan, np.nan
    result = prequential(ProximalSVC(), frame[["a"]].to_numpy(), labels, chunk=50, warmup=20)
    assert result.n_rows == 900 - 370
    assert sum(result.unlabelled_predictions()["ProximalSVC"].values()) == 220


def test_missing_label_raises_by_default_with_row_number():
    text = b"a,y\n1,0\n2,1\n3,\n4,1\n"
    with pytest.raises(DataError, match=r"line 4.*label is missing"):
        list(open_stream(io.BytesIO(text), "y"))
    with pytest.raises(ParameterError, match="unlabelled must be 'refuse' or 'keep'; got"):
        open_stream(io.BytesIO(text), "y", unlabelled="drop")
    with pytest.raises(DataError, match=r"line 5.*got 1\.5"):
        list(open_stream(io.BytesIO(text.replace(b"4,1", b"4,1.5")), "y", unlabelled="keep"))
