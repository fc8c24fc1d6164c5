"""``steelyard stream --labels FILE --id COL``: labels from a separate file."""

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
def files(tmp_path):
    """Return a folder with three tables: rows, their labels in another order, and both together."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"key": [f"{k:05d}" for k in range(1200)], "a": rng.normal(size=1200)})
    frame["b"] = rng.normal(size=1200)
    frame["kind"] = rng.choice(["x", "z"], 1200)
    frame["y"] = (frame["a"] + rng.normal(size=1200) > 1.2).astype(int)
    frame.drop(columns="y").to_csv(tmp_path / "rows.csv", index=False)
    frame.sample(frac=1.0, random_state=0)[["key", "y"]].to_csv(tmp_path / "labels.csv", index=False)
    frame.drop(columns="key").to_csv(tmp_path / "joined.csv", index=False)
    return tmp_path


OPTIONS = ("--target", "y", "--model", "proximal", "--json")


def test_labels_in_separate_file_give_same_result_as_labels_in_table(files):
    result = run("stream", files / "rows.csv", "--labels", files / "labels.csv", "--id", "key", *OPTIONS)
    assert result.exit_code == 0, result.output
    separate, joined = (
        json.loads(result.stdout),
        json.loads(run("stream", files / "joined.csv", *OPTIONS).stdout),
    )
    assert separate["confusion"] == joined["confusion"]
    assert separate["positive"] == joined["positive"] == 1
    assert result.stderr == ""


def test_stream_counts_but_does_not_learn_rows_without_label(files):
    labels = pd.read_csv(files / "labels.csv", dtype=str)
    labels.loc[:99, "y"] = None
    labels[:-50].to_csv(files / "labels.csv", index=False)
    out = files / "m"
    arguments = ("stream", files / "rows.csv", "--labels", files / "labels.csv", "--id", "key", *OPTIONS)
    result = run(*arguments, "--save", out)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == 1050
    assert (
        "note: 150 of 1,200 rows have no label: they were predicted, not learned (predicted as 1: proximal"
        in result.stderr
    )
    assert sum(json.loads(run("inspect", out, "--json").stdout)["classes"].values()) == 1050
    assert run("predict", out, files / "rows.csv").stdout.count("\n") == 1201


def test_target_column_in_both_files_is_an_error(files):
    frame = pd.read_csv(files / "rows.csv", dtype={"key": str})
    frame.assign(y=1.0 * np.arange(1200) % 2).to_csv(files / "rows.csv", index=False)
    arguments = ("stream", files / "rows.csv", "--labels", files / "labels.csv", "--id", "key", *OPTIONS)
    result = run(*arguments)
    assert result.exit_code == 1
    assert "hint: --drop y" in result.stderr
    assert run(*arguments, "--drop", "y").exit_code == 0


@pytest.mark.parametrize(
    "options",
    [("--id", "key"), ("--labels", "labels.csv"), ("--labels", "labels.csv", "--id", "key", "--shuffle", 1)],
)
def test_labels_option_without_id_or_with_shuffle_is_a_usage_error(files, options):
    words = [files / word if word == "labels.csv" else word for word in options]
    assert run("stream", files / "rows.csv", "--target", "y", *words).exit_code == 2


def test_unknown_id_column_is_an_error(files):
    result = run("stream", files / "rows.csv", "--labels", files / "labels.csv", "--id", "kei", *OPTIONS)
    assert result.exit_code == 1
    assert "'kei'" in result.stderr


def test_boolean_labels_are_numbers_in_both_files_and_can_be_named_as_booleans(files):
    for name in ("joined.csv", "labels.csv"):
        table = pd.read_csv(files / name, dtype={"key": str})
        table.assign(y=table["y"] == 1).to_csv(files / name, index=False)
    labels = ("--labels", files / "labels.csv", "--id", "key")
    for text, number in (("True", 1), ("false", 0)):
        joined = run("stream", files / "joined.csv", *OPTIONS, "--positive", text)
        separate = run("stream", files / "rows.csv", *labels, *OPTIONS, "--positive", text)
        assert joined.exit_code == separate.exit_code == 0, joined.output + separate.output
        found = [json.loads(result.stdout) for result in (joined, separate)]
        assert [result["positive"] for result in found] == [number, number]
        assert found[0]["confusion"] == found[1]["confusion"]
    model = files / "m"
    assert run("fit", files / "joined.csv", "--target", "y", "-o", model).exit_code == 0
    result = run("predict", model, files / "rows.csv", "--positive", "True", "--threshold", "0")
    assert result.exit_code == 0, result.output
