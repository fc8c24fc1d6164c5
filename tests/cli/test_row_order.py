"""``--shuffle``, the note on rows sorted by label, and ``--delay`` with a time span."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from steelyard.cli import main
from tests.runner import cli_runner


def run(*arguments):
    return cli_runner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def noise(tmp_path):
    """Return the path of a table of pure noise, sorted by label."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=2000), "kind": rng.choice(["x", "z"], 2000)})
    frame["y"] = np.sort(rng.choice(["no", "yes"], 2000))
    frame.to_csv(tmp_path / "noise.csv", index=False)
    return tmp_path / "noise.csv"


@pytest.mark.parametrize("command", ["stream", "tune"])
def test_table_sorted_by_label_prints_note_with_counts(noise, command):
    result = run(command, noise, "--target", "y", *(["--model", "proximal"] if command == "stream" else []))
    assert result.exit_code == 0, result.output
    assert "the label changes 1 times in 2,000 rows, and about 999 times in random order" in result.stderr
    assert "--shuffle SEED" in result.stderr


def test_report_and_json_contain_note_on_sorted_rows(noise, tmp_path):
    arguments = ("stream", noise, "--target", "y", "--model", "proximal")
    document = json.loads(run(*arguments, "--json", "--report", tmp_path / "r.html").stdout)
    assert "sorted by label" in document["notices"][-1]
    assert "sorted by label" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_shuffled_table_prints_no_note_and_is_reproducible(noise):
    arguments = ("stream", noise, "--target", "y", "--model", "proximal", "--json")
    first, same, other = (run(*arguments, "--shuffle", seed) for seed in (3, 3, 4))
    assert "sorted" not in first.stderr
    lines = [json.loads(result.stdout)["summary"][0] for result in (first, same, other)]
    assert lines[0]["g_mean"] == lines[1]["g_mean"] != lines[2]["g_mean"]
    assert lines[0]["auc"] == pytest.approx(0.5, abs=0.06)


def test_shuffle_learns_every_row_of_a_table_with_late_categories(tmp_path):
    frame = pd.DataFrame({"a": np.arange(900.0) % 7, "kind": ["x"] * 500 + ["z"] * 400})
    frame["y"] = (frame["a"] > 4).astype(int)
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "m"
    base = ("stream", tmp_path / "t.csv", "--target", "y", "--model", "proximal")
    assert run(*base, "--shuffle", 1, "--save", out).exit_code == 0
    facts = json.loads(run("inspect", out, "--json").stdout)
    assert facts["classes"] == {"0": float((frame["y"] == 0).sum()), "1": float((frame["y"] == 1).sum())}


def test_table_with_alternating_labels_prints_no_note(tmp_path):
    frame = pd.DataFrame({"a": np.arange(500.0) % 7, "y": np.arange(500) % 3 == 0})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert run("stream", tmp_path / "t.csv", "--target", "y", "--model", "proximal").stderr == ""


@pytest.fixture
def hourly(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"when": pd.date_range("2026-01-01", periods=1000, freq="h")})
    frame["a"] = rng.normal(size=1000)
    frame["y"] = (frame["a"] + rng.normal(size=1000) > 1).astype(int)
    frame.to_csv(tmp_path / "t.csv", index=False)
    return ("stream", tmp_path / "t.csv", "--target", "y", "--time", "when", "--model", "proximal", "--json")


def test_delay_as_time_span_equals_delay_in_rows_of_regular_table(hourly):
    by_time = json.loads(run(*hourly, "--chunk", 1, "--delay", "2d").stdout)
    by_rows = json.loads(run(*hourly, "--chunk", 1, "--delay", 48).stdout)
    assert by_time["confusion"] == by_rows["confusion"]
    assert by_time["delay"] == by_rows["delay"] == 48
    without = json.loads(run(*hourly, "--chunk", 1).stdout)
    assert without["confusion"] != by_rows["confusion"]


@pytest.mark.parametrize(
    "options", [("--delay", "soon"), ("--delay", "3d"), ("--delay", "-1"), ("--shuffle", "x")]
)
def test_invalid_delay_or_shuffle_is_a_usage_error(noise, options):
    result = run("stream", noise, "--target", "y", *options)
    assert result.exit_code == 2
    assert options[0] in result.stderr
