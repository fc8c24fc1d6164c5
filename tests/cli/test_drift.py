"""``steelyard drift``: tables, statistics and errors."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from steelyard.cli import main
from tests.runner import cli_runner


@pytest.fixture
def run():
    return lambda *arguments: cli_runner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def periods(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for name, shift, places in (("before", 0.0, ["n", "s"]), ("after", 1.0, ["w", "s"])):
        frame = pd.DataFrame(rng.normal(size=(2000, 3)), columns=["a", "b", "c"])
        frame["b"] += shift
        frame["place"] = np.array(places)[rng.integers(0, 2, 2000)]
        frame["label"] = np.where(rng.random(2000) < 0.1, "bad", "ok")
        paths.append(tmp_path / f"{name}.csv")
        frame.to_csv(paths[-1], index=False)
    return paths


def test_drift_between_tables_reports_cause_and_column(run, periods):
    result = run("drift", *periods, "--target", "label")
    assert result.exit_code == 0, result.output
    assert "cause: features" in result.stdout
    assert "  b (" in result.stdout


def test_drift_between_statistics_equals_drift_between_tables(run, periods, tmp_path):
    files = [tmp_path / f"{path.stem}.stats" for path in periods]
    for path, out in zip(periods, files, strict=True):
        assert run("statistics", path, "--target", "label", "-o", out).exit_code == 0
    tables, statistics, mixed = (
        json.loads(run("drift", *pair, "--target", "label", "--json").stdout)
        for pair in (periods, files, (files[0], periods[1]))
    )
    assert tables["causes"] == statistics["causes"] == mixed["causes"] == ["features"]
    names = {change["column"] for change in statistics["columns"]}
    assert names == {"b", "place=n", "place=w"}
    assert names == {change["column"] for change in tables["columns"]}


def test_drift_between_tables_without_target_is_usage_error(run, periods):
    result = run("drift", *periods)
    assert result.exit_code == 2
    assert "--target" in result.stderr


def test_drift_command_on_ensemble_is_error_with_hint(run, periods, tmp_path):
    out = tmp_path / "model.steelyard"
    assert run("fit", periods[0], "--target", "label", "--limit", 500, "-o", out).exit_code == 0
    result = run("drift", out, out)
    assert result.exit_code == 1
    assert "has no class statistics" in result.stderr
    assert "or use a model of `steelyard fit --model proximal`" in result.stderr
    for pair in ((out, periods[1]), (periods[1], out)):
        mixed = run("drift", *pair, "--target", "label")
        assert (mixed.exit_code, mixed.stderr) == (1, result.stderr)


def test_drift_between_statistics_with_different_replacements_of_missing_values_is_an_error(
    run, periods, tmp_path
):
    files = []
    for path in periods:
        frame = pd.read_csv(path)
        frame.loc[5, "b"] = np.nan
        frame.to_csv(path, index=False)
        files.append(tmp_path / f"{path.stem}.stats")
        assert run("statistics", path, "--target", "label", "-o", files[-1]).exit_code == 0
    result = run("drift", *files)
    assert result.exit_code == 1
    assert "drift_report: column 'b': missing values count as" in result.stderr
    assert "merged or compared need --missing zero" in result.stderr
    tables = run("drift", *periods, "--target", "label")  # the second period uses the columns of the first
    assert tables.exit_code == 0
