"""Labels, columns and file names with control characters and markup are escaped."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from steelyard._visible import CONTROL_CHARACTERS
from steelyard.cli import main
from tests.runner import cli_runner
from tests.terminal import in_terminal

CLIPBOARD, TITLE = "\x1b]52;c;cm0gLXJm\x07", "\x1b]0;owned\x07"
LABEL = f"bad{CLIPBOARD}{TITLE}\x9b2J\u202egnp.exe[red]"
COLUMN = f"amount{CLIPBOARD}\u2066"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Return paths of a table and of a model, both with control characters in names and content."""
    folder = tmp_path_factory.mktemp("hostile")
    table = folder / f"rows{TITLE}.csv"
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([COLUMN, "word", "y"])
    writer.writerows(
        [k % 7 + 3 * (k % 5 == 0), f"w{CLIPBOARD}", LABEL if k % 5 == 0 else "good"] for k in range(200)
    )
    table.write_text(text.getvalue(), encoding="utf-8")
    model = folder / f"model{TITLE}"
    result = cli_runner().invoke(main, ["fit", str(table), "--target", "y", "-o", str(model)])
    assert result.exit_code == 0, result.output
    return table, model


def commands(table, model, folder):
    model, table = str(model), str(table)
    out = str(folder / f"out{TITLE}")
    return {
        "fit": ["fit", table, "--target", "y", "-o", out],
        "predict": ["predict", model, table],
        "evaluate": ["evaluate", model, table],
        "inspect": ["inspect", model],
        "tune": ["tune", table, "--target", "y", "--chunk", "20", "-o", out],
        "stream": ["stream", table, "--target", "y", "--chunk", "20", "--save", out],
        "forget": ["forget", model, table, "-o", out],
        "merge": ["merge", model, "-o", out],
        "statistics": ["statistics", table, "--target", "y", "-o", out],
        "no such column": ["fit", table, "--target", f"z{CLIPBOARD}", "-o", out],
        "no such class": ["evaluate", model, table, "--positive", f"z{CLIPBOARD}"],
        "no such file": ["inspect", f"nowhere{CLIPBOARD}"],
        "no such option": ["inspect", model, f"--x{CLIPBOARD}"],
        "no such model": ["fit", table, "--target", "y", "--model", f"x{CLIPBOARD}", "-o", out],
        "json": ["inspect", model, "--json"],
        "stream, json": ["stream", table, "--target", "y", "--chunk", "20", "--json"],
        "predict, json": ["predict", model, table, "--json"],
    }


NAMES = list(commands("", "", Path()))


def test_data_of_this_module_contains_control_characters():
    assert CONTROL_CHARACTERS.search(LABEL)
    assert CONTROL_CHARACTERS.search(COLUMN)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "predict"])
def test_control_characters_are_escaped_in_a_pipe(hostile, tmp_path, name):
    result = cli_runner().invoke(main, commands(*hostile, tmp_path)[name])
    for text in (result.stdout, result.stderr):
        assert not CONTROL_CHARACTERS.search(text.replace("\n", "").replace("\t", ""))


def test_control_characters_are_escaped_on_a_terminal(hostile, tmp_path):
    """The library rich writes escape sequences, so the test only searches for those of the test strings."""
    every = commands(*hostile, tmp_path)
    for name, ended in zip(every, in_terminal(*every.values(), columns=200, folder=tmp_path), strict=True):
        assert "\x1b]" not in ended.raw, name
        assert not {"\x9b", "\u202e", "\u2066", "\x07"} & set(ended.raw), name
        if name != "tune":  # the table of tune contains no test strings
            assert "\\x1b" in ended.text or "\\u001b" in ended.text, name
        if name == "evaluate":
            assert "[red]" in ended.text  # rich does not interpret brackets as markup


def test_predict_csv_in_a_pipe_keeps_labels_unchanged(hostile):
    result = cli_runner().invoke(main, ["predict", *map(str, reversed(hostile))])
    labels = {row["label"] for row in csv.DictReader(io.StringIO(result.stdout))}
    assert labels == {LABEL, "good"}


def test_json_escapes_control_characters_without_loss(hostile):
    result = cli_runner().invoke(main, ["inspect", str(hostile[1]), "--json"])
    facts = json.loads(result.stdout)
    assert set(facts["classes"]) == {LABEL, "good"}
    assert COLUMN in facts["columns"]
