"""The lint step for plain words finds excluded words and names, and only them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def plain_words():
    spec = importlib.util.spec_from_file_location("plain_words", ROOT / ".ci" / "plain_words.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["plain_words"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["plain_words"]


@pytest.fixture(scope="module")
def rules(plain_words):
    return plain_words.Rules.from_pyproject((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "line",
    [
        "_MANY = 200",
        "    _PAUSE = 0.01",
        "_MOST: int = 5",
        "_LONG_ROWS = 3  # a constant with a unit is fine, but whoever reads this",
        "# The window is fitted anew.",
        '"""The sentence for labels that cannot be compared."""',
        "    told_by: str",
        "# An expert that is heard has a weight.",
        "# The learner takes the short way.",
        "# It shows the state of one moment.",
        "class Scribe:",
        "def test_what_cannot_be_is_said():",
        "def test_who_waits_goes_first():",
        "def test_nobody_waits():",
        "// Whoever holds the lock",
        "# It is computed once.",
        "    // Otherwise the rows are copied.",
        "_BLOCK_ROWS = 500  # of the two-sample tests",
        "int n;  // that wait for labels",
        '    """What is needed of the stream."""',
        "# The client is told the reason.",
        "# The nearest integer, halves upwards.",
        "# maximal number of rows",
        "# The lock prevents that two threads write.",
    ],
)
def test_excluded_word_or_name_is_reported_by_lint(rules, line):
    assert list(rules.check("src/example.py", line))


@pytest.mark.parametrize(
    "line",
    [
        "_MAX_GROUP_REQUESTS = 200",
        "_POLL_SECONDS = 0.01",
        "_MIN_ROWS_TO_CONCATENATE = 200",
        "def test_forget_unknown_row_raises_and_keeps_state():",
        "# The first sentence of a docstring names the class.",
        "# The memory of the process is measured in bytes.",
        "def what_if(): ...",
        "# If the row is new, it is stored.",
        "_BLOCK_ROWS = 500  # number of rows per block",
        "# The nearest integer; ties are rounded up.",
        '    """Whatever the order of the rows, the sums are equal."""',
    ],
)
def test_line_of_plain_words_gives_no_finding(rules, line):
    assert not list(rules.check("src/example.py", line))


def test_exception_applies_only_below_its_path(plain_words, rules):
    with_exception = plain_words.Rules(rules.patterns, [], [("docs/", "whoever")])
    assert not list(with_exception.check("docs/page.md", "whoever"))
    assert list(with_exception.check("src/page.md", "whoever"))


def test_entry_without_reason_raises(plain_words):
    table = '[tool.steelyard.plain-words]\npatterns = []\nexceptions = []\nexclude = [{ path = "src/a" }]\n'
    with pytest.raises(ValueError, match="src/a needs a reason"):
        plain_words.Rules.from_pyproject(table)


def test_repository_has_no_findings(plain_words, capsys):
    assert plain_words.main([]) == 0, capsys.readouterr().out
