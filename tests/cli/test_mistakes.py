"""Invalid command lines and small tables."""

from __future__ import annotations

import errno
import json

import click
import numpy as np
import pandas as pd
import pytest

from steelyard.cli import main
from steelyard.tables import TableModel
from tests.runner import cli_runner


@pytest.fixture
def run():
    def invoke(*arguments):
        return cli_runner().invoke(main, [str(argument) for argument in arguments])

    return invoke


@pytest.fixture
def table(tmp_path):
    """Return the path of a table that fits into one chunk and whose rare class first occurs late."""
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.2) & (np.arange(600) > 100)
    frame = pd.DataFrame({"a": rng.normal(size=600) + 2 * y, "y": np.where(y, "yes", "no")})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


@pytest.fixture
def model(run, table, tmp_path):
    words = ("fit", table, "--target", "y", "--model", "proximal", "-o", tmp_path / "model")
    assert run(*words).exit_code == 0
    return tmp_path / "model"


def test_stream_with_a_single_chunk_reports_metrics(run, table):
    result = run("stream", table, "--target", "y", "--json")
    (line,) = json.loads(result.stdout)["summary"]
    assert line["g_mean"] > 0.7


def test_tune_selects_best_candidate_on_table_with_one_chunk(run, table):
    result = run("tune", table, "--target", "y", "--grid", "C=1e-9,1", "--json")
    assert json.loads(result.stdout)["best"] == "C=1"


def test_tune_of_a_model_without_C_needs_a_grid(run, table):
    result = run("tune", table, "--target", "y", "--model", "auto")
    assert result.exit_code == 2
    assert "--grid is needed, because the model auto has no parameter C." in result.stderr
    assert run("tune", table, "--target", "y", "--model", "proximal").exit_code == 0


def test_tune_on_table_with_one_row_is_an_error(run, tmp_path):
    (tmp_path / "one.csv").write_text("a,y\n1,no\n", encoding="utf-8")
    result = run("tune", tmp_path / "one.csv", "--target", "y", "-o", tmp_path / "m")
    assert result.exit_code == 1
    assert "mean_g_mean could not be measured on the 1 rows" in result.stderr
    assert not (tmp_path / "m").exists()


def test_positive_class_that_first_occurs_late_is_accepted(run, table):
    result = run("stream", table, "--target", "y", "--positive", "yes", "--chunk", 50, "--json")
    assert json.loads(result.stdout)["positive"] == "yes"


@pytest.mark.parametrize("command", ["stream", "tune"])
def test_missing_positive_class_error_lists_classes(run, table, command):
    result = run(command, table, "--target", "y", "--positive", "maybe")
    assert result.exit_code == 1
    assert "--positive: there is no class 'maybe'; the classes are no, yes." in result.stderr


@pytest.mark.parametrize(
    "options",
    [("--model", "koil"), ("--set", "C=3"), ("--missing", "mean"), ("--target", "z"), ("--drop", "a")],
    ids=lambda options: options[0],
)
def test_fit_continue_with_model_options_is_a_usage_error(run, table, model, tmp_path, options):
    result = run("fit", table, "--continue", model, *options, "-o", tmp_path / "more")
    assert result.exit_code == 2
    assert f"{options[0]} cannot be changed with --continue" in result.stderr


@pytest.mark.parametrize("command", ["fit", "stream", "tune"])
def test_fit_of_model_that_cannot_be_saved_is_an_error_before_learning(run, table, tmp_path, command):
    out = "--save" if command == "stream" else "-o"
    peer = "sklearn:linear_model.SGDClassifier"
    grid = ["--grid", "alpha=0.1"] if command == "tune" else []
    result = run(command, table, "--target", "nowhere", "--model", peer, *grid, out, tmp_path / "m")
    assert result.exit_code == 1
    assert f"--model: '{peer}' cannot be saved" in result.stderr  # reported before the missing column


def test_sklearn_model_name_that_is_a_module_is_an_error(run, table):
    result = run("stream", table, "--target", "y", "--model", "sklearn:linear_model")
    assert result.exit_code == 1
    assert "is a module; a classifier was expected" in result.stderr


@pytest.mark.parametrize("window", ["0", "soon", "10d"])
def test_invalid_window_error_reports_no_learned_rows(run, table, window):
    result = run("stream", table, "--target", "y", "--window", window)
    assert result.exit_code == 1
    assert "learned and reported" not in result.stderr


def test_predict_error_keeps_previous_output_file(run, model, tmp_path):
    out = tmp_path / "scores.csv"
    out.write_text("previous", encoding="utf-8")
    (tmp_path / "other.csv").write_text("b\n1\n", encoding="utf-8")
    assert run("predict", model, tmp_path / "other.csv", "-o", out).exit_code == 1
    assert out.read_text(encoding="utf-8") == "previous"


@pytest.mark.parametrize(
    "command",
    [("fit", "--target", "y", "-o"), ("tune", "--target", "y", "-o"), ("stream", "--target", "y", "--save"),
     ("stream", "--target", "y", "--report"), ("stream", "--target", "y", "--table"),
     ("statistics", "--target", "y", "-o")],
    ids=lambda command: command[0] + command[-1],
)  # fmt: skip
def test_missing_output_folders_are_created(run, table, tmp_path, command):
    name, *options = command
    result = run(name, table, *options, tmp_path / "new" / "deep" / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "new" / "deep" / "out").stat().st_size > 100


@pytest.mark.parametrize("command", ["fit", "tune", "stream", "statistics"])
def test_impossible_output_path_is_a_usage_error(run, tmp_path, command):
    (tmp_path / "file").write_text("", encoding="utf-8")
    out = "--save" if command == "stream" else "-o"
    result = run(command, "nowhere.csv", "--target", "y", out, tmp_path / "file" / "m")
    assert result.exit_code == 2
    assert "is not a folder" in result.stderr


def test_full_disk_keeps_summary_and_previous_file(run, table, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "m").write_bytes(b"previous")
    monkeypatch.setattr("os.fsync", full)
    for words in (["fit", table, "--target", "y", "-o"], ["stream", table, "--target", "y", "--report"]):
        result = run(*words, tmp_path / "m")
        assert result.exit_code == 1
        assert "cannot be written: No space left on device" in result.stderr
        assert result.stdout
        assert (tmp_path / "m").read_bytes() == b"previous"
        assert not list(tmp_path.glob(".*"))


def test_predict_json_to_parquet_is_a_usage_error(run, model, table, tmp_path):
    assert run("predict", model, table, "--json", "-o", tmp_path / "scores.parquet").exit_code == 2


def test_inspect_json_has_typed_parameters(run, model):
    parameters = json.loads(run("inspect", model, "--json").stdout)["parameters"]
    assert (parameters["C"], parameters["class_weight"], parameters["feature_map"]) == (1.0, "balanced", None)


def test_row_counts_of_classes_are_printed_as_integers(run, tmp_path):
    (tmp_path / "few.csv").write_text("a,y\n1,no\n2,no\n3,yes\n", encoding="utf-8")
    result = run("fit", tmp_path / "few.csv", "--target", "y", "-o", tmp_path / "m")
    assert "no: 2, yes: 1\n" in result.stdout


def test_ctrl_c_exits_with_130_and_saves_nothing(run, table, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableModel, "learn", stop)
    result = run("fit", table, "--target", "y", "-o", tmp_path / "m")
    assert (result.exit_code, result.stderr) == (130, "stopped\n")
    assert not (tmp_path / "m").exists()


def test_os_error_of_standard_output_gives_error_message(run, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("steelyard.cli.models.emit_table", full)
    result = run("models")
    assert result.exit_code == 1
    assert result.stderr == "Error: standard output: No space left on device.\n"


def test_unknown_command_suggests_a_similar_one(run):
    result = run("strem")
    assert result.exit_code == 2
    assert "Error: No such command 'strem'. Did you mean 'stream'?" in result.stderr
    assert "Did you mean" not in run("xyzzy").stderr


def test_group_without_command_prints_its_help_once(run):
    for words in ((), ("cube",)):
        result = run(*words)
        printed = result.stdout + result.stderr  # before click 8.2 the help is no error
        assert printed.count("Usage:") == 1
        assert "Error" not in printed
        assert "  compare " in printed


@pytest.mark.parametrize("options", [("--set", "C=-1", "--model", "proximal"), ("--window", "q")])
def test_wrong_parameter_is_reported_before_any_row_is_read(run, table, options, monkeypatch):
    def read(*_):
        raise AssertionError("a row was read")

    monkeypatch.setattr("steelyard.tables.table_stream.TableStream.__iter__", read)
    result = run("stream", table, "--target", "y", *options)
    assert result.exit_code == 1
    assert "must be" in result.stderr


def test_fit_with_alarms_per_day_needs_the_column_of_times(run, table, tmp_path):
    words = ("fit", table, "--target", "y", "--set", "threshold=alarms_per_day=5", "-o", tmp_path / "m")
    result = run(*words)
    assert result.exit_code == 2
    assert "--set threshold=alarms_per_day=... needs --time, the column of times." in result.stderr
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("goal", ["recall=abc", "alarms_per_day=5"])
def test_hint_of_a_goal_names_one_option(run, table, goal):
    result = run("stream", table, "--target", "y", "--set", f"threshold={goal}")
    assert result.exit_code != 0
    assert "--set threshold=alarms=0.01" in result.stderr
    assert "threshold=--set" not in result.stderr


def _required_options(group, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from _required_options(found, (*path, name))
        required = [p for p in found.params if p.required]
        for option in required:
            if isinstance(option, click.Option):
                yield pytest.param((*path, name), required, option, id=" ".join((*path, name, option.name)))


@pytest.mark.parametrize(("path", "required", "left_out"), list(_required_options(main)))
def test_required_option_left_out_is_usage_error(path, required, left_out):
    given = []
    for parameter in required:
        if isinstance(parameter, click.Argument):
            given.append(__file__)
        elif parameter is not left_out:
            given += [parameter.opts[0], "1"]
    result = cli_runner().invoke(main, [*path, *given])
    assert result.exit_code == 2
    assert f"Missing option '{left_out.opts[0]}'" in result.output
