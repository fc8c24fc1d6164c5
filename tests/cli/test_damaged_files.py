"""Error messages for damaged, very large and malicious files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from steelyard.cli import main
from steelyard.tables import files
from tests.runner import cli_runner


@pytest.fixture
def fit(tmp_path):
    """Return a function that runs `steelyard fit` on a file with the given content."""

    def run(name, content, *options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        words = ["fit", str(path), "--target", "y", "-o", str(tmp_path / "m"), *options]
        return cli_runner().invoke(main, words)

    return run


@pytest.mark.parametrize("n_before", [0, 3])
def test_deeply_nested_json_error_names_line(fit, n_before):
    nested = '{"a":' + "[" * 100_000 + "]" * 100_000 + ',"y":"n"}\n'
    result = fit("rows.jsonl", '{"a":1,"y":"n"}\n' * n_before + nested)
    assert result.exit_code == 1
    assert f"line {n_before + 1}: this JSON object is nested too deeply" in result.stderr


def test_damaged_parquet_page_error_reports_rows_read_before_it(fit, tmp_path):
    rows = np.arange(50_000)
    frame = pd.DataFrame({"a": rows % 977 / 7, "y": np.where(rows % 9 == 0, "x", "z")})
    frame.to_parquet(tmp_path / "good.parquet", row_group_size=10_000, index=False)
    content = bytearray((tmp_path / "good.parquet").read_bytes())
    middle = len(content) // 2
    content[middle : middle + 3000] = bytes(3000)
    result = fit("rows.parquet", bytes(content))
    assert result.exit_code == 1
    assert "rows.parquet: after row" in result.stderr
    assert "the content is damaged or cut short" in result.stderr


def test_flipped_bit_in_parquet_with_checksums_is_detected(fit, tmp_path):
    rows = np.arange(5_000)
    frame = pd.DataFrame({"a": rows / 7, "y": np.where(rows % 9 == 0, "x", "z")})
    frame.to_parquet(
        tmp_path / "good.parquet",
        index=False,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    content = bytearray((tmp_path / "good.parquet").read_bytes())
    content[20_000] ^= 1  # one bit of a number; without a checksum the change is undetectable
    result = fit("rows.parquet", bytes(content))
    assert result.exit_code == 1
    assert "damaged or cut short" in result.stderr


def test_fit_selects_features_of_table_with_100000_columns(fit):
    names = ",".join(f"c{k}" for k in range(100_000))
    rows = "".join(",".join([str(k)] * 100_000) + f",{'ab'[k % 2]}\n" for k in range(4))
    result = fit("wide.csv", f"{names},y\n{rows}", "--feature", "c7", "--feature", "c99999")
    assert result.exit_code == 0, result.stderr
    assert "a: 2, b: 2" in result.stdout


@pytest.mark.parametrize(
    ("content", "line"),
    [("a" * 3_000_000 + ",y\n1,x\n", 1), ("a,y\n" + "1" * 3_000_000 + ",x\n", 2),
     ("a,y\n" + "1,x\n2,z\n" * 50_000 + "1" * 3_000_000 + ",x\n", 100_002)],
)  # fmt: skip
def test_too_long_line_error_names_line(fit, monkeypatch, content, line):
    monkeypatch.setattr(files, "_MAX_LINE_BYTES", 1 << 20)
    result = fit("long.csv", content)
    assert result.exit_code == 1
    assert f"long.csv: line {line:,} is longer than 1,048,576 bytes" in result.stderr
