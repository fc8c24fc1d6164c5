"""Hints on the command line: every hint of the library names options, not Python arguments."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

import steelyard
from steelyard.cli import main
from steelyard.cli.app import COMMANDS, command_line_hint
from tests.runner import cli_runner

SOURCE = Path(steelyard.__file__).parent
# Packages whose errors can occur in commands. Dask, Spark, HTTP clients and plots are used from Python only.
PACKAGES = ("cli", "ensemble", "persistence", "proximal", "report", "sql", "streams", "tables", "windowing")
PYTHON_ONLY = {
    "tables/connections.py": "open connections are passed in Python",
    "streams/chunks.py": "ArrayStream is made in Python",
    "proximal/certificate.py": "certificates with feature maps are checked in Python",
    "proximal/folds.py": "feature maps that follow the data are refused by `steelyard statistics`",
    "proximal/statistics.py": "tables add features by themselves",
    "proximal/row_ledger.py": "no Python argument is meant",
    "persistence/objects.py": "own classes are saved from Python",
    "persistence/tree.py": "values are saved from Python",
    "persistence/files.py": "open files are passed in Python",
    "tables/files.py": "open files are passed in Python",
    "tables/frames.py": "tables in memory are passed in Python",
}


def hints(packages=PACKAGES, without=PYTHON_ONLY):
    """Yield (file, text) of every hint. Expressions in f-strings are replaced by x."""
    for package in packages:
        for path in sorted((SOURCE / package).rglob("*.py")):
            if str(path.relative_to(SOURCE)) in without:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.keyword) and node.arg == "hint":
                    for text in _texts(node.value):
                        yield pytest.param(text, id=f"{path.relative_to(SOURCE)}:{node.lineno}")


def _texts(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            part.value if isinstance(part, ast.Constant) else ("'x'" if part.conversion == ord("r") else "x")
            for part in node.values
        )
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


def command(name):
    return main.get_command(click.Context(main), name)


def all_options():
    def walk(each):
        yield from (opt for p in each.params for opt in p.opts)
        for other in getattr(each, "commands", {}).values():
            yield from walk(other)

    return {option for name in COMMANDS for option in walk(command(name))}


@pytest.mark.parametrize("hint", list(hints()))
def test_hint_names_existing_options_and_no_python_arguments(hint):
    shown = command_line_hint(hint, command("stream"), command("fit"))
    foreign = re.sub(r"pg_dump \S+|pip install \S+|steelyard serve keys add", "", shown)
    assert set(re.findall(r"(?<!\S)--[a-z-]+", foreign)) <= all_options()
    assert "=--" not in foreign
    assert not re.search(r"(?<![-\w,.=])(?<!--set )(?<!--grid )(?<!--cost )(?<!--model )[a-z_]\w*=", foreign)
    assert not re.search(r"\w\(\)|\bsteelyard\.\w|on the command line", foreign)


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ('fill values with missing="mean" or missing="zero" (--missing on the command line)',
         "fill values with --missing mean or --missing zero (option of `steelyard fit`)"),
        ("leave it out: drop='my col' (--drop on the command line)",
         "leave it out: --drop 'my col' (option of `steelyard fit`)"),
        ("if they had been learned more than once, use again=True (--again on the command line)",
         "if they had been learned more than once, use --again"),
        ("use ProximalSVC (fit --model proximal on the command line)", "use fit --model proximal"),
        ("for example --set C=10", "for example --set C=10"),
        ("use more rows", "use more rows"),
    ],
)  # fmt: skip
def test_command_line_hint_rewrites_arguments(hint, shown):
    assert command_line_hint(hint, command("forget"), command("fit")) == shown


def test_predict_with_missing_value_gives_hint_about_fit_option(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n1,0\n2,1\n3,0\n4,1\n")
    (tmp_path / "c.csv").write_text("a,b\n1,1\n,1\n")
    model = str(tmp_path / "m")
    assert (
        cli_runner()
        .invoke(main, ["fit", str(tmp_path / "a.csv"), "--target", "y", "--missing", "refuse", "-o", model])
        .exit_code
        == 0
    )
    result = cli_runner().invoke(main, ["predict", model, str(tmp_path / "c.csv")])
    assert result.exit_code == 1
    hint = "hint: learn from missing values with --missing indicator, or fill them with --missing zero"
    assert hint in result.stderr
