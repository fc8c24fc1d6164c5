"""Rows as columns, as bytes and back."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.persistence import encode
from steelyard.service import rows as wire
from steelyard.tables.columns import RowError
from tests.service.data import records


def test_rows_come_back_from_bytes_in_the_order_of_their_columns():
    batch = wire.from_records(records(5), ["customer", "row"])
    again, extra = wire.unpack(wire.pack(batch, {"times": np.arange(5.0)}))
    assert list(again.columns) == list(batch.columns)
    for name, values in batch.columns.items():
        assert again.columns[name].dtype == values.dtype
        assert again.columns[name].tolist() == values.tolist()
    assert extra["times"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_no_rows_and_no_columns_come_back_too():
    empty, _ = wire.unpack(wire.pack(wire.cut(wire.from_records(records(2)), np.zeros(2, dtype=bool))))
    assert empty.n_rows == 0
    assert set(empty.columns) == set(records(1)[0])


def test_bytes_of_earlier_versions_are_read():
    old = encode({"n": 2, "columns": {"a": np.array([1.0, 2.0]), "b": ["x", None]}, "given": None})
    batch, extra = wire.unpack(old)
    assert {name: values.tolist() for name, values in batch.columns.items()} == {
        "a": [1.0, 2.0],
        "b": ["x", None],
    }
    assert extra == {"given": None}


def test_a_single_row_is_read_as_many_are():
    for record in ({"a": 1, "b": 2.5, "c": "x", "d": None, "e": True, "f": 2**60}, {"a": -3}):
        one, two = wire.from_records([record], ["a"]), wire.from_records([record, record], ["a"])
        for name in record:
            assert one.columns[name].dtype == two.columns[name].dtype
            assert repr(one.columns[name].tolist()) == repr(two.columns[name][:1].tolist())


def test_single_rows_of_many_requests_become_the_columns_that_they_would_be_one_by_one():
    records = [{"x": 1.5, "n": 2, "t": "a"}, {"t": None, "x": None, "n": 2**60}, {"n": 0, "x": 2, "t": "b"}]
    parts = [wire.from_records([record], ["t"]) for record in records]
    together, alone = (
        wire.joined(parts),
        wire.joined([wire.from_records([r, r], ["t"]).take(0, 1) for r in records]),
    )
    assert wire.are_alike(together)
    assert not wire.are_alike(alone)
    assert together.n_rows == alone.n_rows == 3
    for name in "xnt":
        np.testing.assert_array_equal(together.columns[name], alone.columns[name])


@pytest.mark.parametrize("other", [{"x": 1.0}, {"x": "text", "n": 1}, {"x": [1], "n": 1}])
def test_rows_that_do_not_fit_together_are_not_taken_for_each_other(other):
    parts = [wire.from_records([{"x": 2.0, "n": 1}]), wire.from_records([other])]
    if len(other) == 1:
        assert np.isnan(wire.joined(parts).columns["n"][1])
    elif other["x"] == "text":
        assert wire.joined(parts).columns["x"].tolist() == ["2", "text"]
    else:
        with pytest.raises(RowError, match="got list"):
            _ = wire.joined(parts).columns["n"]
