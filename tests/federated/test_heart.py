"""The benchmark of four hospitals runs on synthetic files. Its published results need the real files."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "fed_heart.py"


@pytest.fixture
def heart():
    spec = importlib.util.spec_from_file_location("fed_heart", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder, name, n, seed):
    """Write a file like those of UCI: 14 columns, missing values as question marks, a label from 0 to 4."""
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 5, n)
    ranges = [(30, 80), (0, 2), (1, 5), (90, 180), (120, 400), (0, 2), (0, 3), (80, 200), (0, 2), (0, 5)]
    columns = [rng.integers(low, high, n) for low, high in ranges]
    columns[7] = columns[7] - 8 * ill
    rows = pd.DataFrame(np.column_stack([*columns, np.full((n, 3), -9), ill])).astype(object)
    rows.iloc[0, 4] = "?"
    rows.iloc[:, 10:13] = "?"
    rows.to_csv(folder / f"fed_heart_{name}.csv.gz", header=False, index=False)


def test_heart_benchmark_lists_every_method_and_secure_aggregation_is_bit_identical(
    heart, tmp_path, capsys, monkeypatch
):
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra 'sites'")
    monkeypatch.setattr(heart, "DRAWS", 2)
    monkeypatch.setattr(heart, "MAPS", 1)
    monkeypatch.setattr(heart, "WIDTH", 20)
    for seed, name in enumerate(heart.HOSPITALS):
        write(tmp_path, name, 120 - 20 * seed, seed)
    heart.print_table(tmp_path)
    said = capsys.readouterr().out
    assert "same bits" in said
    assert said.count("epsilon") == 6
    lines = {line[:42].strip(): line for line in said.splitlines()}
    figures = [float(lines[f"ours, {name}"][42:51]) for name in ("one message each", "secure sums")]
    assert figures[0] == figures[1] > 0.5
    for published in heart.PUBLISHED:
        assert published in lines
