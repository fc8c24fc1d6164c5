"""Commands on a terminal of any width, and the live display."""

from __future__ import annotations

import gzip
import os
import re

import numpy as np
import pandas as pd
import pytest

import steelyard
from steelyard.cli import main
from steelyard.cli.live_display import LiveDisplay, _events, _measures
from steelyard.cli.output import wrap_lines
from steelyard.evaluation import PrequentialEvaluator, prequential
from steelyard.evaluation.evaluator import Event
from steelyard.streams import ArrayStream, demo_stream
from steelyard.tables import TableModel, open_stream
from tests.terminal import in_terminal

WIDTHS = (40, 80, 120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terminal")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1500, 3)), columns=["a", "b", "c"])
    frame["label"] = np.where(frame["a"] + frame["b"] > 1.8, "bad", "ok")
    frame[:1000].assign(a=frame["a"] + 0.25).to_csv(folder / "more.csv", index=False)
    frame.assign(shop=np.where(frame["c"] > 0, "north", "south")).to_csv(folder / "shops.csv", index=False)
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_csv(folder / "rows.tsv", index=False, sep="\t")
    frame.to_json(folder / "rows.jsonl", orient="records", lines=True)
    frame.to_parquet(folder / "rows.parquet", index=False)
    for name in ("rows.csv", "rows.jsonl"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    run = prequential(steelyard.ProximalSVC(), open_stream(frame, "label", chunk=100))
    run.to_json(folder / "run.json")
    return folder


def _commands():
    """Return one call of every command by name. Later calls use files that earlier calls have written."""
    table = ["rows.csv", "--target", "label"]
    return {
        "version": ["version"],
        "models": ["models"],
        "stream": ["stream", *table, "--report", "r.html", "--table", "t.csv", "--save", "s.steelyard"],
        "fit": ["fit", *table, "--model", "proximal", "-o", "m.steelyard"],
        "tune": ["tune", *table, "--grid", "C=0.1,1", "-o", "best.steelyard"],
        "inspect": ["inspect", "m.steelyard"],
        "export": ["export", "m.steelyard", "--c", "m.h"],
        "compare": ["compare", "run.json", "run.json", "--report", "compared.html"],
        "predict": ["predict", "m.steelyard", "rows.csv"],
        "evaluate": ["evaluate", "m.steelyard", "rows.csv"],
        "statistics": ["statistics", "more.csv", "--target", "label", "-o", "part.stats"],
        "merge": ["merge", "m.steelyard", "part.stats", "-o", "both.steelyard"],
        "forget": ["forget", "both.steelyard", "rows.csv", "-o", "less.steelyard", "--certificate", "c.json"],
        "verify": ["verify", "c.json", "--against", "more.csv"],
        "drift": ["drift", "rows.csv", "more.csv", "--target", "label"],
        "cube build": ["cube", "build", "shops.csv", "--target", "label", "--by", "shop", "-o", "shops.cube"],
        "cube ask": ["cube", "ask", "shops.cube", "--where", "shop=north", "-o", "north.steelyard"],
        "cube compare": ["cube", "compare", "shops.cube", "--report", "shops.html"],
    }


def test_list_of_commands_tested_on_a_terminal_is_complete():
    groups = {"serve", "hub", "site"}  # tested elsewhere
    assert {name.split()[0] for name in _commands()} == set(main.list_commands(None)) - groups


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(width, marks=pytest.mark.xdist_group(f"terminal of width {width}")) for width in WIDTHS
    ],
)
def session(request, folder):
    """Return a terminal width, and the exit code and output of every command at this width.

    One Python process runs all commands, because starting a process for each takes longer.
    """
    commands = {**_commands(), "stream of the demo": ["stream", "--limit", "3000"]}
    ended = in_terminal(*commands.values(), columns=request.param, folder=folder)
    return request.param, dict(zip(commands, ended, strict=True))


def test_every_command_succeeds_on_a_terminal(session, folder):
    for name, ended in session[1].items():
        assert ended.exit_code == 0, f"{name}: {ended.text}"
        assert "Traceback" not in ended.text, name
    assert "<svg" in (folder / "r.html").read_text(encoding="utf-8")
    assert len(pd.read_csv(folder / "t.csv")) > 1
    model = steelyard.load(folder / "s.steelyard")
    assert isinstance(model, TableModel)
    assert model.estimator.class_count_.sum() == 1500


def test_stream_reads_every_file_format_on_a_terminal(folder):
    names = ["rows.csv", "rows.tsv", "rows.jsonl", "rows.parquet", "rows.csv.gz", "rows.jsonl.gz"]
    commands = [["stream", name, "--target", "label", "--save", f"{name}.model"] for name in names]
    for name, ended in zip(names, in_terminal(*commands, folder=folder), strict=True):
        assert ended.exit_code == 0, f"{name}: {ended.text}"
        assert "1,500 rows" in ended.text
        assert "g_mean" in ended.text
        assert (folder / f"{name}.model").exists()


def test_live_display_fits_the_terminal(session):
    columns, ended_by_name = session
    ended = ended_by_name["stream of the demo"]
    display = ended.text[: ended.text.rindex("╯") + 1]
    # A terminal prints ^C after the display, so a line that fills the width would wrap.
    assert max(len(line) for line in display.replace("\r", "\n").split("\n")) <= columns - 2


def test_summary_is_complete_at_any_terminal_width(session):
    """A table that is too wide is transposed, so that no name and no number is truncated."""
    columns, ended_by_name = session
    ended = ended_by_name["stream"]
    summary = ended.text[ended.text.rindex("╯") + 1 :]
    for name in ("g_mean", "lowest_g_mean", "sensitivity", "all_rows_per_second", "bad"):
        assert name in summary
    assert re.search(r"\srows_per_second\s+[\d,]+\s", summary) or columns > 80  # an integer rate
    assert "…" not in summary


def test_error_message_wraps_at_word_boundaries(folder):
    (ended,) = in_terminal(["fit", "rows.csv", "--target", "nothing", "-o", "x"], columns=40, folder=folder)
    assert ended.exit_code == 1
    lines = ended.text.strip().replace("\r", "").split("\n")
    assert len(lines) > 1
    assert " ".join(lines) == (
        "Error: rows.csv: the target column 'nothing' does not exist; the columns are 'a', 'b', 'c', 'label'."
    )


def test_note_is_printed_above_live_display(folder):
    frame = pd.read_csv(folder / "rows.csv").assign(constant=1.0)
    pd.concat([frame] * 6).to_csv(folder / "constant.csv", index=False)
    (ended,) = in_terminal(
        ["stream", "constant.csv", "--target", "label", "--model", "proximal"], folder=folder
    )
    before, _, after = ended.text.partition("note: ")
    # The display is erased before the note is printed; otherwise the next refresh would erase the note.
    assert not before.rstrip(" ").endswith("╯")
    assert "'constant'" in after[: after.index("╭")]


def test_progress_fraction_excludes_buffered_rows(folder):
    """A small gzip file is read into memory at once, but the progress bar counts only processed rows."""
    stream = open_stream(folder / "rows.csv.gz", "label", chunk=100)
    assert [stream.fraction_read() for _ in stream][4] == pytest.approx(500 / 1500)
    assert stream.fraction_read() == 1.0


def test_error_in_live_display_does_not_end_the_run(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    stream = demo_stream(2000)
    calls = []

    def broken():
        calls.append(1)
        raise ValueError("no more")

    monkeypatch.setattr(stream, "fraction_read", broken)
    evaluator = PrequentialEvaluator({"balanced": steelyard.ProximalSVC()})
    with LiveDisplay(stream) as display:
        for chunk in stream:
            evaluator.step(chunk)
            display.update(evaluator, final=True)
        evaluator.finish()
    assert evaluator.n_learned == 2000
    assert len(calls) == 1
    assert "the live display failed, the run continues: ValueError: no more" in capsys.readouterr().err


def test_wrap_lines_with_unknown_terminal_width_keeps_text(monkeypatch):
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((0, 0)))
    assert wrap_lines("Error: a message.\nhint: another") == "Error: a message.\nhint: another"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (70, []),
        (80, ["AP", "Brier"]),
        (108, ["AP", "Brier", "logl."]),
        (120, ["AP", "Brier", "logl.", "P@k", "R@k"]),
    ],
)
def test_live_display_shows_more_measures_on_wider_terminals(width, shown):
    evaluator = PrequentialEvaluator({"linear": steelyard.ProximalSVC()}, window=200)
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.2).astype(int)
    for chunk in ArrayStream(rng.normal(size=(600, 2)) + y[:, None], y, chunk=100):
        evaluator.step(chunk)
    table = _measures(evaluator, width, ())
    assert [column.header for column in table.columns][4:] == shown


def test_live_display_names_the_columns_of_a_drift():
    evaluator = PrequentialEvaluator({"linear": steelyard.ProximalSVC()})
    change = {"row": 3, "cause": "features", "columns": ["x1"], "further": []}
    evaluator.events.append(Event(3, "drift", "columns moved: x1", "linear", change))
    lines = [line.plain for line in _events(evaluator, ["amount", "hour"], 100)]
    assert "columns moved in all classes: hour" in lines[-1]
