"""Table I of the distributed paper on the real sets: 2-norm of the difference to the batch classifier.

    python benchmarks/papers/distributed_table1.py FOLDER

FOLDER holds heart_cleveland, breast_wisconsin, msweb and covtype as ``.csv.gz`` with the label in the last
column (msweb has none: visits to v1008 are the class). Rows with a missing value are left out. Learning is in
two steps (Inc), on two Dask workers (Dist) and both (DistInc), as in the paper, which reports 0 everywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd

from distributed import Client, LocalCluster
from steelyard import ProximalSVC
from steelyard.distributed import dask as engine

Rows = tuple[Any, Any]


def read(folder: Path, name: str, positive: Any, target: str | None = None) -> Rows:
    table = pd.read_csv(folder / f"{name}.csv.gz").dropna()
    column = target or table.columns[-1]
    X = table.drop(columns=column).to_numpy(dtype=np.float64)
    return X, table[column].isin(positive).to_numpy().astype(int)


def incremental(X: Any, y: Any) -> ProximalSVC:
    half = len(y) // 2
    return ProximalSVC().partial_fit(X[:half], y[:half]).partial_fit(X[half:], y[half:])


def on_two_nodes(X: Any, y: Any) -> ProximalSVC:
    return engine.fit(ProximalSVC(), [dask.delayed((X[node::2], y[node::2])) for node in range(2)])


def both(X: Any, y: Any) -> ProximalSVC:
    model, half = ProximalSVC(), len(y) // 2
    for rows in (slice(None, half), slice(half, None)):
        parts = [dask.delayed((X[rows][node::2], y[rows][node::2])) for node in range(2)]
        engine.partial_fit(model, parts)
    return model


def main() -> None:
    folder = Path(sys.argv[1])
    sets = {
        "Heart": read(folder, "heart_cleveland", [1, 2, 3, 4]),
        "BreastWisconsin": read(folder, "breast_wisconsin", [4]),
        "AnonymousWeb": read(folder, "msweb", [1], "v1008"),
        "CoverType": read(folder, "covtype", [4]),
    }
    print(f"{'set':>16} {'rows':>8} {'features':>8} {'Inc':>10} {'Dist':>10} {'DistInc':>10}")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        for name, (X, y) in sets.items():
            batch = plane(ProximalSVC().fit(X, y))
            differences = [
                np.linalg.norm(plane(learn(X, y)) - batch) for learn in (incremental, on_two_nodes, both)
            ]
            numbers = " ".join(f"{difference:>10.1e}" for difference in differences)
            print(f"{name:>16} {X.shape[0]:>8,} {X.shape[1]:>8} {numbers}")


def plane(model: ProximalSVC) -> Any:
    return np.append(model.coef_[0], model.intercept_)


if __name__ == "__main__":
    main()
