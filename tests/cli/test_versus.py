"""``steelyard stream --versus``, refitted models of other packages, and rows without labels."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest

from steelyard.cli import main
from tests.runner import cli_runner


def run(*arguments):
    return cli_runner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=3000), "kind": rng.choice(["x", "z"], 3000)})
    frame["when"] = pd.date_range("2026-01-01", periods=3000, freq="15min")
    frame["y"] = np.where(frame["a"] + rng.normal(size=3000) > 1.8, "bad", "good")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


FOREST = "forest=sklearn:ensemble.RandomForestClassifier"
BASE = ("--target", "y", "--drop", "when", "--model", "proximal")


def test_versus_prints_one_line_per_measure(table):
    settings = ("--set", "n_estimators=5", "--set", "forest.every=1000", "--set", "window=2000")
    result = run("stream", table, *BASE, "--versus", FOREST, *settings)
    assert result.exit_code == 0, result.output
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["model", "proximal", "forest"]
    lines = [line for line in result.stderr.splitlines() if line.startswith("proximal against forest")]
    assert len(lines) == 3
    assert "average precision: 0." in lines[0]
    assert ", better; better in " in lines[0]
    assert "of 1,000 rows" in lines[0]


def test_versus_json_contains_all_measures_and_parameters(table):
    result = run("stream", table, *BASE, "--versus", FOREST, "--set", "n_estimators=5", "--json")
    document = json.loads(result.stdout)
    for line in document["summary"]:
        for name in ("average_precision", "precision_at_k", "recall_at_k", "brier"):
            assert 0 < line[name] < 1
        assert 0 < line["log_loss"] < 5
    assert document["k"] == 100
    assert document["reliability"]["forest"]["n_rows"]
    assert document["provenance"]["parameters"]["forest"]["n_estimators"] == "5"


def test_window_option_sets_window_of_refitted_models(table):
    arguments = ("stream", table, "--target", "y", "--time", "when", "--model", FOREST, "--limit", 600)
    for window in ("500", "2d"):
        result = run(*arguments, "--window", window, "--set", "n_estimators=2")
        assert result.exit_code == 0, result.output


def test_time_column_gives_measures_per_day(table, tmp_path):
    report = tmp_path / "r.html"
    arguments = ("stream", table, "--target", "y", "--time", "when", "--model", "proximal", "--k", 10)
    document = json.loads(run(*arguments, "--json", "--report", report).stdout)
    days = document["days"]["proximal"]
    assert len(days) == 32
    assert days[1]["day"] == "2026-01-02"
    assert days[1]["rows"] == 96
    page = report.read_text(encoding="utf-8")
    for text in ("The 10 highest scores of each day", "Ranking and probabilities", "Reliability curve"):
        assert text in page


def test_versus_without_lightgbm_installed_prints_install_command(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    result = run("stream", table, *BASE, "--versus", "lightgbm")
    assert result.exit_code == 1
    assert "model lightgbm needs the package lightgbm, which is not installed." in result.stderr
    assert "pip install lightgbm" in result.stderr
    assert "proximal" not in result.stdout


def test_versus_accepts_short_name_lightgbm(table):
    pytest.importorskip("lightgbm")
    arguments = ("stream", table, *BASE, "--versus", "lightgbm", "--limit", 800, "--json")
    summary = json.loads(run(*arguments, "--set", "n_estimators=5").stdout)["summary"]
    assert [line["model"] for line in summary] == ["proximal", "lightgbm"]
    assert summary[1]["auc"] > 0.7


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sklearn:preprocessing.OneHotEncoder", "a classifier was expected"),
        ("sklearn:ensemble.Forest", "has no class 'Forest'"),
        ("catboost", "there is no model 'catboost'"),
        ("proximal", "'proximal' is given twice"),
    ],
)
def test_unusable_peer_is_an_error_before_rows_are_read(table, name, message):
    result = run("stream", table, *BASE, "--versus", name)
    assert result.exit_code == 1
    assert message in result.stderr


def test_stream_predicts_but_does_not_learn_rows_with_empty_labels(table, tmp_path):
    frame = pd.read_csv(table, dtype=str)
    frame.loc[[0, 5, 1500, *range(2900, 3000)], "y"] = None
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    arguments = ("stream", tmp_path / "gaps.csv", *BASE)
    result = run(*arguments, "--json", "--save", tmp_path / "m")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["rows"], document["unlabelled"]["rows"]) == (2897, 103)
    assert "note: 103 of 3,000 rows have no label: they were predicted, not learned" in result.stderr
    assert sum(json.loads(run("inspect", tmp_path / "m", "--json").stdout)["classes"].values()) == 2897
    shuffled = json.loads(run(*arguments, "--shuffle", 1, "--json").stdout)
    assert shuffled["unlabelled"]["rows"] == 103
    assert shuffled["unlabelled"]["predicted"]["proximal"]["good"] > 50
    delayed = ("stream", tmp_path / "gaps.csv", "--target", "y", "--time", "when", "--model", "proximal")
    assert json.loads(run(*delayed, "--delay", "3d", "--json").stdout)["delay"] >= 280
    frame["y"] = None
    frame.to_csv(tmp_path / "none.csv", index=False)
    empty = run("stream", tmp_path / "none.csv", *BASE)
    assert empty.exit_code == 1
    assert "none of the 3,000 rows has a label in column 'y'" in empty.stderr


def test_tune_by_a_loss_selects_the_smallest_value(table):
    arguments = ("tune", table, "--target", "y", "--drop", "when", "--grid", "C=0.0001,1", "--json")
    for by in ("log_loss", "average_precision"):
        found = json.loads(run(*arguments, "--by", by).stdout)
        values = [line[by] for line in found["candidates"]]
        assert found["best"] == found["candidates"][0]["model"]
        assert values[0] == (min(values) if by == "log_loss" else max(values))


def test_compare_prints_ranking_measures_and_warns_about_different_k(table, tmp_path):
    for name, k in (("one", 50), ("two", 100)):
        text = run("stream", table, *BASE, "--k", k, "--json").stdout
        (tmp_path / f"{name}.json").write_text(text)
    result = run("compare", tmp_path / "one.json", tmp_path / "two.json", "--report", tmp_path / "r.html")
    assert result.exit_code == 0, result.output
    assert "average_precision" in result.stdout.splitlines()[0]
    assert "k is 50 and 100" in result.stderr
    assert "Brier score" in (tmp_path / "r.html").read_text(encoding="utf-8")
