"""Conversion of rows to columns and to stored bytes."""

from __future__ import annotations

import io

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from steelyard.exceptions import FileFormatError
from steelyard.persistence.tree import encode
from steelyard.service import rows as wire
from steelyard.service.stored_rows import pack, unpack, unpack_event
from steelyard.tables.columns import RowError
from tests.service.data import records


def test_pack_and_unpack_keep_rows_and_column_order():
    batch = wire.from_records(records(5), ["customer", "row"])
    again, extra = unpack(pack(batch, {"times": np.arange(5.0)}))
    assert list(again.columns) == list(batch.columns)
    for name, values in batch.columns.items():
        assert again.columns[name].dtype == values.dtype
        assert again.columns[name].tolist() == values.tolist()
    assert extra["times"] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_empty_batches_can_be_packed_and_unpacked():
    empty, _ = unpack(pack(wire.from_records(records(2)).select(np.zeros(2, dtype=bool))))
    assert empty.n_rows == 0
    assert set(empty.columns) == set(records(1)[0])


def _arrow(**columns):
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return wire.from_body(sink.getvalue(), "arrow", [])


def test_arrow_stream_read_as_block_equals_separate_columns():
    numbers = {"a": [1.0, None, 3.0], "b": [0.5, -0.0, 1e300], "c": [7.0, 8.0, 9.0]}
    block, apart = _arrow(**numbers), _arrow(**numbers, t=["x", None, "y"])
    assert block.matrix is not None
    assert apart.matrix is None
    for names in (["a", "b"], ["c", "a"], ["b"], []):
        np.testing.assert_array_equal(block.to_matrix(names), apart.to_matrix(names))
    for name in numbers:
        assert name in block.columns
        np.testing.assert_array_equal(block.columns[name], apart.columns[name])
    assert "t" not in block.columns
    assert block.columns.get("t") is None
    assert block.take(1, 3).columns["b"].tolist() == [-0.0, 1e300]


def test_joined_blocks_are_packed_and_unpacked_with_all_rows():
    one, two = _arrow(a=[1.0, 2.0], b=[3.0, 4.0]), _arrow(a=[5.0], b=[6.0])
    together = wire.joined([one, two])
    assert together.matrix is not None
    again, _ = unpack(pack(together))
    assert {name: v.tolist() for name, v in again.columns.items()} == {"a": [1, 2, 5], "b": [3, 4, 6]}
    turned = wire.joined([one, _arrow(b=[6.0], a=[5.0]), wire.from_records([{"a": 7, "b": 8}])])
    assert {name: v.tolist() for name, v in turned.columns.items()} == {"a": [1, 2, 5, 7], "b": [3, 4, 6, 8]}


@pytest.mark.parametrize("place", [0.1, 0.5, 0.999])
def test_unpack_damaged_bytes_raises(place):
    data = bytearray(pack(wire.from_records(records(50), ["customer", "row"]), {"given": None}))
    data[int(place * len(data))] ^= 4
    with pytest.raises(FileFormatError):
        unpack(bytes(data))


def test_unpack_event_reads_old_and_new_format():
    body = {"pieces": [[1, 0, 5]]}
    assert unpack_event(msgspec.json.encode(body)) == body
    assert unpack_event(encode(body)) == body


def test_unpack_reads_rows_of_version_0_2():
    old = encode({"n": 2, "columns": {"a": np.array([1.0, 2.0]), "b": ["x", None]}, "given": None})
    batch, extra = unpack(old)
    assert {name: values.tolist() for name, values in batch.columns.items()} == {
        "a": [1.0, 2.0],
        "b": ["x", None],
    }
    assert extra == {"given": None}


def test_single_row_equals_rows_of_large_body():
    for record in ({"a": 1, "b": 2.5, "c": "x", "d": None, "e": True, "f": 2**60}, {"a": -3}):
        one, two = wire.from_records([record], ["a"]), wire.from_records([record, record], ["a"])
        for name in record:
            assert one.columns[name].dtype == two.columns[name].dtype
            assert repr(one.columns[name].tolist()) == repr(two.columns[name][:1].tolist())


def test_joined_single_rows_equal_separate_conversion():
    records = [{"x": 1.5, "n": 2, "t": "a"}, {"t": None, "x": None, "n": 2**60}, {"n": 0, "x": 2, "t": "b"}]
    parts = [wire.from_records([record], ["t"]) for record in records]
    together, alone = (
        wire.joined(parts),
        wire.joined([wire.from_records([r, r], ["t"]).take(0, 1) for r in records]),
    )
    assert isinstance(together.columns, wire.RecordColumns)
    assert not isinstance(alone.columns, wire.RecordColumns)
    assert together.n_rows == alone.n_rows == 3
    for name in "xnt":
        np.testing.assert_array_equal(together.columns[name], alone.columns[name])


@pytest.mark.parametrize("other", [{"x": 1.0}, {"x": "text", "n": 1}, {"x": [1], "n": 1}])
def test_joined_rows_with_different_fields_stay_separate(other):
    parts = [wire.from_records([{"x": 2.0, "n": 1}]), wire.from_records([other])]
    if len(other) == 1:
        assert np.isnan(wire.joined(parts).columns["n"][1])
    elif other["x"] == "text":
        assert wire.joined(parts).columns["x"].tolist() == ["2", "text"]
    else:
        with pytest.raises(RowError, match="got list"):
            _ = wire.joined(parts).columns["n"]
