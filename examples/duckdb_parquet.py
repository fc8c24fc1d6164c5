"""Train on a Parquet file inside DuckDB, without loading it into Python.

Run: python examples/duckdb_parquet.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb

from steelyard import ProximalSVC, sql


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        file = Path(folder) / "payments.parquet"
        database.execute("SELECT SETSEED(0.5)")
        rows = "SELECT (RANDOM() < 0.05)::INT AS fraud FROM RANGE(200000)"
        columns = "fraud, FLOOR(RANDOM() * 100) + 30 * fraud AS amount, RANDOM() + fraud AS speed"
        made = f"SELECT {columns} FROM ({rows})"
        database.execute(f"COPY ({made}) TO '{file}' (FORMAT PARQUET)")
        table = f"SELECT * FROM '{file}'"
        for how in ("pushed", "streamed"):
            model = sql.fit(ProximalSVC(), database, table, target="fraud", how=how)
            print(f"{how}: {model.estimator.class_count_} rows, digest {model.estimator.digest()}")


if __name__ == "__main__":
    main()
