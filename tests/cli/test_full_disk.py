"""Full disks and invalid names cause an error before the work starts, or leave no partial output."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from steelyard.cli import main
from steelyard.persistence import load
from tests.runner import cli_runner

WIDTH = 40  # number of features, with which the model is larger than the file size limit


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(600, WIDTH)).round(3), columns=[f"x{k}" for k in range(WIDTH)])
    table["y"] = np.where(rng.random(600) < 0.2, "bad", "ok")
    table.to_csv(tmp_path / "rows.csv", index=False)
    table.iloc[:50].to_csv(tmp_path / "removed.csv", index=False)
    return tmp_path


def run(folder, *words, room):
    """Run the command with a file size limit of ``room`` bytes."""
    return subprocess.run(
        [sys.executable, "-m", "steelyard", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )


def run_without_limit(*words):
    """Run the command in this process, because the imports of a new process take longer than the command."""
    result = cli_runner().invoke(main, words)
    assert result.exit_code == 0, result.output


def test_stream_on_full_disk_prints_measures_and_leaves_no_partial_file(rows):
    words = ["stream", "rows.csv", "--target", "y", "--model", "proximal"]
    done = run(rows, *words, "--save", "m.model", "--report", "r.html", "--table", "t.csv", room=2000)
    assert done.returncode == 1
    assert "g_mean" in done.stdout.splitlines()[0]
    assert "cannot be written" in done.stderr
    assert sorted(path.name for path in rows.iterdir()) == ["removed.csv", "rows.csv"]


def test_predict_on_full_disk_keeps_previous_file(rows):
    run_without_limit("fit", "rows.csv", "--target", "y", "-o", "m.model")
    (rows / "p.csv").write_text("earlier\n")
    done = run(rows, "predict", "m.model", "rows.csv", "-o", "p.csv", room=1000)
    assert done.returncode == 1
    assert (rows / "p.csv").read_text() == "earlier\n"
    assert sorted(path.name for path in rows.iterdir()) == ["m.model", "p.csv", "removed.csv", "rows.csv"]


@pytest.mark.parametrize("earlier", [None, "an earlier certificate"])
def test_forget_on_full_disk_keeps_model_and_certificate(rows, earlier):
    run_without_limit("fit", "rows.csv", "--target", "y", "--model", "proximal", "-o", "m.model")
    before = (rows / "m.model").read_bytes()
    if earlier is not None:
        (rows / "c.json").write_text(earlier)
    done = run(rows, "forget", "m.model", "removed.csv", "--certificate", "c.json", room=len(before) // 2)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert done.stdout == ""  # no receipt, because nothing was forgotten
    assert (rows / "m.model").read_bytes() == before
    assert ((rows / "c.json").read_text() if (rows / "c.json").exists() else None) == earlier
    run_without_limit("forget", "m.model", "removed.csv", "--certificate", "c.json")
    certificate = json.loads((rows / "c.json").read_text())
    assert load(rows / "m.model").estimator.digest() in str(certificate)


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "jsonl"])
@pytest.mark.parametrize("command", ["stream", "tune"])
def test_unknown_positive_class_is_an_error_before_learning(command, form, rows):
    table = pd.read_csv(rows / "rows.csv")[["x0", "x1", "y"]]
    path = rows / f"rows2.{form}"
    if form == "parquet":
        table.to_parquet(path)
    elif form == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False)
    words = [command, str(path), "--target", "y", "--positive"]
    result = cli_runner().invoke(main, [*words, "7"])
    assert result.exit_code == 1
    assert "--positive: there is no class '7'; the classes are " in result.stderr
    assert result.stdout == ""
    result = cli_runner().invoke(main, [*words, "bad"])
    assert result.exit_code == 0, result.output


def test_stream_searches_positive_class_in_all_rows_up_to_limit(tmp_path):
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": rng.normal(size=900), "y": [0] * 450 + [0, 1] * 200 + [2] * 50})
    table.to_csv(tmp_path / "rows.csv", index=False)
    words = ["stream", str(tmp_path / "rows.csv"), "--target", "y", "--model", "proximal", "--positive", "2"]
    assert cli_runner().invoke(main, words).exit_code == 0
    result = cli_runner().invoke(main, [*words, "--limit", "800"])
    assert result.exit_code == 1
    assert "there is no class '2'; the classes are 0, 1." in result.stderr


def test_table_error_takes_precedence_over_missing_positive_class(tmp_path):
    (tmp_path / "rows.csv").write_text("a,y\n1,0\n2,1\n3\n")
    words = ["stream", str(tmp_path / "rows.csv"), "--target", "y", "--positive", "7"]
    result = cli_runner().invoke(main, words)
    assert "line 4: expected 2 columns" in result.stderr
    result = cli_runner().invoke(main, [*words[:3], "z", "--positive", "7"])
    assert "the target column 'z' does not exist" in result.stderr
