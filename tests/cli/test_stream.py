"""``steelyard stream``: output, files and exit codes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest

import steelyard
from steelyard import ProximalSVC, StreamClassifier
from steelyard.cli import main
from steelyard.cli.live_display import LiveDisplay
from steelyard.cli.registry import LEARNERS
from steelyard.evaluation import PrequentialEvaluator
from steelyard.streams import ArrayStream, demo_stream
from tests.runner import cli_runner


@pytest.fixture
def run():
    return lambda *arguments, **options: cli_runner().invoke(main, [str(a) for a in arguments], **options)


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(4000, 3)), columns=["a", "b", "c"])
    frame["where"] = np.array(["north", "south", "west"])[rng.integers(0, 3, size=4000)]
    frame["label"] = np.where(frame["a"] + (frame["where"] == "west") > 1.8, "bad", "ok")
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    return path


def test_stream_without_source_ranks_ensemble_first_on_payments(run):
    result = run("stream", "--limit", 16_000, "--delay", 0, "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    summary = {row["model"]: row for row in document["summary"]}
    assert document["positive"] == "fraud"
    assert 0.005 < document["labels"]["fraud"] / document["rows"] < 0.015
    assert summary["auto"]["mean_g_mean"] > summary["linear"]["mean_g_mean"] + 0.02


def test_stream_without_source_learns_labels_two_days_late(run):
    result = run("stream", "--limit", 12_000, "--model", "proximal", "--json")
    assert result.exit_code == 0
    assert 7000 < json.loads(result.stdout)["delay"] < 10_000  # about 4,000 payments per day


def test_stream_shorter_than_label_delay_prints_that_no_row_was_tested(run):
    result = run("stream", "--model", "proximal", "--limit", 500)
    assert result.exit_code == 0
    assert "no row was tested, because no label arrives within 500 rows" in result.stderr


def test_stream_command_on_built_in_stream_ranks_balanced_model_first(run):
    result = run("stream", "builtin:gaussians", "--limit", 30_000, "--json", "--model", "balanced=proximal",
                 "--model", "unweighted=proximal-unweighted", "--window", 4000)  # fmt: skip
    assert result.exit_code == 0
    summary = {row["model"]: row for row in json.loads(result.stdout)["summary"]}
    assert summary["balanced"]["mean_g_mean"] > 0.84
    assert summary["unweighted"]["mean_g_mean"] < summary["balanced"]["mean_g_mean"] - 0.1


def test_unknown_built_in_stream_is_usage_error(run):
    result = run("stream", "builtin:nothing")
    assert result.exit_code == 2
    assert "builtin:payments or builtin:gaussians" in result.stderr


def test_stream_prints_result_table_to_stdout_and_nothing_to_stderr(run, table):
    result = run("stream", table, "--target", "label")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith("model\tpositive\tg_mean")
    assert result.stderr == ""


def test_stream_writes_report_table_and_model(run, table, tmp_path):
    paths = {name: tmp_path / "new" / name for name in ("report.html",)}
    result = run(
        "stream", table, "--target", "label", "--report", paths["report.html"],
        "--table", tmp_path / "t.csv", "--save", tmp_path / "m.steelyard",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "<svg" in paths["report.html"].read_text(encoding="utf-8")
    assert pd.read_csv(tmp_path / "t.csv")["row"].tolist() == list(range(500, 4001, 500))
    model = steelyard.load(tmp_path / "m.steelyard")
    assert model.history[0]["rows"] == 4000
    assert f"report: {paths['report.html']}" in result.stderr


def test_stream_compares_models_with_settings_and_peers(run, table):
    result = run(
        "stream", table, "--target", "label", "--model", "proximal", "--model", "soft=proximal",
        "--model", "adaptive", "--model", "sklearn:naive_bayes.GaussianNB", "--set", "soft.C=0.001", "--json",
    )  # fmt: skip
    document = json.loads(result.stdout)
    names = [row["model"] for row in document["summary"]]
    assert names == ["proximal", "soft", "adaptive", "sklearn:naive_bayes.GaussianNB"]
    assert document["positive"] == "bad"


STREAMING = [name for name, entry in LEARNERS.items() if hasattr(entry.learner, "partial_fit")]


@pytest.mark.parametrize("name", sorted(set(LEARNERS) - set(STREAMING)))
def test_batch_model_works_in_stream_and_fit_commands(run, table, tmp_path, name):
    streamed = run("stream", table, "--target", "label", "--model", name, "--limit", 400)
    assert streamed.exit_code == 0, streamed.output
    failed = run("stream", table, "--target", "label", "--model", name, "--save", tmp_path / "m")
    assert failed.exit_code == 1
    assert "cannot be saved" in failed.stderr
    out = tmp_path / "model.steelyard"
    fitted = run("fit", table, "--target", "label", "--model", name, "--limit", 400, "-o", out)
    assert fitted.exit_code == 0, fitted.output
    assert run("predict", out, table).stdout.count("\n") == 4001


@pytest.mark.parametrize("name", STREAMING)
def test_every_streaming_model_learns_and_is_saved(run, table, tmp_path, name):
    out = tmp_path / "model.steelyard"
    result = run(
        "stream", table, "--target", "label", "--model", name, "--limit", 400, "--chunk", 100, "--save", out
    )
    assert result.exit_code == 0, result.output
    assert run("predict", out, table).stdout.count("\n") == 4001
    assert json.loads(run("inspect", out, "--json").stdout)["target"] == "label"


def test_stream_with_river_model_succeeds(run, table):
    pytest.importorskip("river", reason="river is an optional peer and is not installed")
    result = run(
        "stream",
        table,
        "--target",
        "label",
        "--model",
        "river:linear_model.LogisticRegression",
        "--limit",
        600,
    )
    assert result.exit_code == 0, result.output
    assert "river:linear_model" in result.stdout


def test_time_window_without_time_column_is_an_error(run, tmp_path):
    frame = pd.DataFrame({"t": pd.date_range("2026-01-01", periods=900, freq="h"), "a": np.arange(900) % 7})
    frame["y"] = (frame["a"] > 4).astype(int)
    frame.to_csv(tmp_path / "t.csv", index=False)
    base = ("stream", tmp_path / "t.csv", "--target", "y", "--window", "10d", "--chunk", 100)
    assert run(*base, "--time", "t").exit_code == 0
    failed = run(*base, "--drop", "t")
    assert failed.exit_code == 1
    assert "needs the times of the rows" in failed.stderr


def test_window_option_sets_the_window_of_the_default_model(run, table, tmp_path):
    saved = tmp_path / "m.steelyard"
    result = run("stream", table, "--target", "label", "--window", 500, "--limit", 1500, "--save", saved)
    assert result.exit_code == 0, result.output
    model = steelyard.load(saved).estimator
    assert isinstance(model, StreamClassifier)
    assert (model.window, model.class_count_.sum()) == (500, 500)


def test_stream_positive_option_sets_positive_class(run, table):
    document = json.loads(run("stream", table, "--target", "label", "--positive", "ok", "--json").stdout)
    assert document["positive"] == "ok"
    failed = run("stream", table, "--target", "label", "--positive", "odd")
    assert failed.exit_code == 1
    assert "there is no class 'odd'" in failed.stderr


def test_stream_reads_standard_input(run, table):
    result = run("stream", "-", "--target", "label", "--json", input=table.read_bytes())
    assert json.loads(result.stdout)["rows"] == 4000


def test_stream_error_still_writes_report_and_model(run, table, tmp_path):
    with table.open("a", encoding="utf-8") as file:
        file.write("1,2,oops,north,ok\n")
    result = run(
        "stream",
        table,
        "--target",
        "label",
        "--report",
        tmp_path / "r.html",
        "--save",
        tmp_path / "m.steelyard",
        "--json",
    )
    assert result.exit_code == 1
    assert "rows.csv, line 4,002, column 'c': expected a number; got 'oops'." in result.stderr
    assert "4,000 rows before it were learned and reported" in result.stderr
    assert json.loads(result.stdout)["rows"] == 4000
    assert (tmp_path / "r.html").exists()
    assert steelyard.load(tmp_path / "m.steelyard").estimator.class_count_.sum() == 4000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("a,b\n1,2\n", "the target column 'label' does not exist"),
        ("\0\0\0", "this is a binary file"),
    ],
)
def test_stream_error_in_first_row_prints_message_only(run, tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_text(content, encoding="utf-8")
    result = run("stream", path, "--target", "label")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [["stream", "rows.csv"], ["stream", "--save", "x"], ["stream", "--chunk", "0"], ["stream", "--nonsense"]],
)
def test_usage_error_exits_with_2(run, arguments):
    assert run(*arguments).exit_code == 2


def test_ctrl_c_exits_with_130_and_complete_report(tmp_path):
    """SIGINT stops the command while it reads an endless feed."""
    command = [sys.executable, "-c", "from steelyard.cli import main; main()", "stream", "-", "--target", "y"]
    saved = tmp_path / "m.steelyard"
    command += ["--chunk", "1000", "--report", str(tmp_path / "r.html"), "--json"]
    command += ["--save", str(saved), "--save-every", "10000"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        # These rows exceed the capacity of a pipe. After this write the command must have started to read.
        process.stdin.write(b"a,y\n" + b"".join(b"%020d,%d\n" % (i % 9, i % 2) for i in range(20_000)))
        process.stdin.flush()
        while not saved.exists():  # written after 10,000 rows
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        timer = threading.Timer(300, process.kill)
        timer.start()
        out = process.stdout.read()
        process.wait()
        timer.cancel()
    assert process.returncode == 130
    assert json.loads(out)["rows"] >= 10_000
    assert "<svg" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_live_display_shows_progress_measures_share_and_counts(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setitem(os.environ, "COLUMNS", "100")
    stream = demo_stream(6000)
    evaluator = PrequentialEvaluator({"balanced": ProximalSVC()}, window=1000)
    for chunk in stream:
        evaluator.step(chunk)
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(LiveDisplay(stream)._render(evaluator))
    text = console.export_text()
    for part in (
        "6,000 rows",
        "rows/s",
        "G-mean of the last 1,000 rows",
        "balanced",
        "share of 1",
        "positive class: 1",
        "found",
        "alarms were false",
        "▲",
    ):
        assert part in text


def test_live_display_shows_correct_share_of_rarest_class():
    from steelyard.cli.live_display import _class_shares

    stream = ArrayStream(np.arange(4000.0)[:, None] % 7, np.array(["a", "b", "c", "a"] * 1000), chunk=100)
    evaluator = PrequentialEvaluator({"model": ProximalSVC()}, window=1000)
    for chunk in stream:
        evaluator.step(chunk)
    assert _class_shares(evaluator) == pytest.approx([0.25] * len(_class_shares(evaluator)), abs=0.01)


def test_miss_cost_column_gives_more_alarms_than_low_constant_cost(run, tmp_path):
    rng = np.random.default_rng(3)
    is_bad = rng.random(2000) < 0.1
    frame = pd.DataFrame(
        {"a": rng.normal(size=2000) + 1.5 * is_bad, "amount": rng.choice([1.0, 500.0], 2000)}
    )
    frame["y"] = np.where(is_bad, "bad", "ok")
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("stream", tmp_path / "t.csv", "--target", "y", "--drop", "amount", "--json", "--cost")
    rates = []
    for cost in ("miss=amount,alarm=5", "miss=1,alarm=5"):
        result = run(*arguments, cost)
        assert result.exit_code == 0, result.stderr
        ((positive,),) = [
            [line for line in lines if line["label"] == "bad"]
            for lines in json.loads(result.stdout)["by_class"].values()
        ]
        rates.append(positive["answered"] / 2000)
    assert rates[0] > 0.4  # half of the rows have 500 times the cost
    assert rates[1] < 0.1
    assert run(*arguments, "miss=amount,alarm=5", "--model", "proximal").exit_code == 1
