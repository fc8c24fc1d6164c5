"""Comparison of two runs: headline, differences and warnings."""

from __future__ import annotations

import json

import pytest

from steelyard import ProximalSVC
from steelyard.cli import main
from steelyard.evaluation import prequential
from steelyard.exceptions import DataError
from steelyard.report.compare import compare_runs, read_run, render_comparison
from steelyard.streams import Gaussians, ImbalanceSchedule
from tests.runner import cli_runner


def _rare(n_rows):
    return Gaussians(n_rows, schedule=ImbalanceSchedule.constant(0.05), seed=2)


@pytest.fixture(scope="module")
def runs():
    """Runs on the same stream without and with class weights, as read from JSON files."""
    return [
        json.loads(prequential({"m": ProximalSVC(class_weight=weight)}, _rare(6000)).to_json())
        for weight in (None, "balanced")
    ]


@pytest.fixture
def files(runs, tmp_path):
    for name, run in zip(("plain", "balanced"), runs, strict=True):
        (tmp_path / f"{name}.json").write_text(json.dumps(run), encoding="utf-8")
    return tmp_path


def test_compare_runs_difference_is_that_of_best_models(runs):
    found = compare_runs(*runs)
    figures = [run["summary"][0]["mean_g_mean"] for run in runs]
    assert found["difference"] == pytest.approx(figures[1] - figures[0])
    assert found["warnings"] == []
    assert [line for line in found["differences"] if "class_weight" in line[0]] == [
        ("parameters · m · class_weight", "None", "'balanced'")
    ]


def test_comparison_names_better_run_and_loads_nothing_from_the_network(runs):
    page = render_comparison(*runs, ("plain", "balanced"))
    assert "“balanced” is better by 0." in page
    assert page.count('<svg class="chart along') == 2
    assert "https://" not in page


def test_headline_calls_difference_within_confidence_intervals_not_significant(runs):
    near = json.loads(json.dumps(runs[1]))
    near["summary"][0]["mean_g_mean"] += 0.001
    page = render_comparison(runs[1], near, ("one", "other"))
    assert "“other” is better by 0.001 in G-mean, which is not statistically significant" in page


def test_compare_runs_warns_about_different_rows_and_windows(runs):
    stream = Gaussians(3000, schedule=ImbalanceSchedule.constant(0.3), seed=1)
    other = json.loads(prequential({"m": ProximalSVC()}, stream, window=200).to_json())
    warnings = " ".join(compare_runs(runs[0], other)["warnings"])
    assert "6,000 and 3,000 rows" in warnings
    assert "windows or label delays" in warnings


def test_compare_command_prints_both_runs_and_writes_report(files):
    words = [
        "compare",
        str(files / "plain.json"),
        str(files / "balanced.json"),
        "--report",
        str(files / "r.html"),
    ]
    result = cli_runner().invoke(main, words)
    assert result.exit_code == 0, result.output
    lines = [line.split("\t")[:2] for line in result.stdout.splitlines()]
    assert lines == [["run", "model"], ["plain", "m"], ["balanced", "m"]]
    assert "is better" in (files / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "not the result of a run"),
        ("{", "not a JSON document"),
        ("[" * 100_000, "not a JSON document"),
    ],
)
def test_read_run_of_other_json_raises(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_run(tmp_path / "x.json")


def test_comparison_with_run_without_measures_reports_too_few_rows(runs):
    empty = json.loads(prequential({"m": ProximalSVC()}, Gaussians(30, chunk=30)).to_json())
    assert "too few rows to be compared" in render_comparison(runs[0], empty)
