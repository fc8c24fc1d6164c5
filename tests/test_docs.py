"""The code that the README and the pages of the documentation print does run.

The Python blocks of a page are one program, run from top to bottom in an empty folder; blocks with prompts
are compared with what they print. A block that shall not run stands under a line ``<!-- not run: why -->``.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "learners").glob("*.md")]
)
BLOCK = re.compile(
    r"(?P<skip><!-- not run: .+ -->\n\n?)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def code_blocks(page):
    """Line number and text of every block that is to run."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match["skip"] is None:
            yield text.count("\n", 0, match.start("code")), match["code"]


def run_block(code, line, names, page):
    if not code.startswith(">>> "):
        exec(compile("\n" * line + code, page.name, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(code, {}, page.name, page.name, line)
    test.globs = names
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test, out=said.append, clear_globs=False)
    assert not runner.failures, "".join(said)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if any(code_blocks(page))],
)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for line, code in code_blocks(page):
        run_block(code, line, names, page)
