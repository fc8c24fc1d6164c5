"""The digest of rows does not depend on order, chunks or the order of categories."""

from __future__ import annotations

import pandas as pd

from steelyard import ProximalSVC
from steelyard.tables import TableModel, open_stream

ROWS = pd.DataFrame(
    {
        "a": [1.0, 2.0, 3.0, 1.0],
        "kind": ["x", "z", "x", None],
        "colour": ["z", "x", "x", "q"],
        "y": [0, 1, 1, 0],
    }
)


def id_of(table, chunk=1000):
    stream = open_stream(table, "y", chunk=chunk, missing="zero")
    model = TableModel(ProximalSVC(), stream.encoder, "y")
    model.learn(stream)
    return model.history[-1]["id"]


def test_table_digest_does_not_depend_on_row_order_and_chunks():
    turned = ROWS.iloc[::-1].reset_index(drop=True)
    assert {id_of(ROWS), id_of(ROWS, 1), id_of(turned), id_of(turned, 3)} == {id_of(ROWS, 2)}


def test_table_digest_depends_on_categories_numbers_and_labels():
    other = [
        ROWS.replace({"kind": {"z": "w"}}),
        ROWS.rename(columns={"kind": "colour", "colour": "kind"}),
        ROWS.assign(a=[1.0, 2.0, 3.0, 1.5]),
        ROWS.assign(y=[0, 1, 0, 0]),
        ROWS.assign(kind=["z", "x", "x", None]),
    ]
    ids = [id_of(table) for table in (ROWS, *other)]
    assert len(set(ids)) == len(ids)
