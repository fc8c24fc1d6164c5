"""Run the Python blocks of pages; write their outputs into the pages and save their pictures.

    python docs/outputs.py docs/from_river.md
    python docs/outputs.py docs/tutorials/costs.md --data FOLDER

A tutorial needs its data: FOLDER has the files under the names that the page reads. Without FOLDER the
code runs on generated rows, as a test, and nothing is written.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "images" / "tutorials"
# A Python block and the text block with its output. A comment with a reason excludes a block.
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n\n?)?(?P<code>^```python\n(?P<body>.*?)^```\n)"
    r"(?P<said>\n```text\n.*?^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def rebuilt(page: Path) -> str:
    """Return the text of a page with new outputs; the blocks run in the current folder."""
    names = {"__name__": "page"}

    def run(block: re.Match[str]) -> str:
        if block["skip"] or block["body"].startswith(">>> "):
            return block[0]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block["body"], page.name, "exec"), names)  # noqa: S102  our own page
        return block["code"] + as_block(said.getvalue())

    return BLOCK.sub(run, page.read_text(encoding="utf-8"))


def as_block(said: str) -> str:
    """Return printed text as a text block of Markdown."""
    lines = "\n".join(line.rstrip() for line in said.rstrip().split("\n"))
    return f"\n```text\n{lines}\n```\n" if lines else ""


def made_up(name: str, folder: Path) -> None:
    """Write the files of a tutorial with generated rows."""
    sys.path.insert(0, str(HERE / "tutorials"))
    from standins import STANDINS

    STANDINS[name](folder)


def main() -> None:
    """Run the pages given as arguments."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, help="folder with the files that a tutorial reads")
    options = parser.parse_args()
    for page in (path.resolve() for path in options.pages):
        trial = page.parent.name == "tutorials" and options.data is None
        data = options.data and options.data.resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            if trial:
                made_up(page.stem, Path())
            for path in data.iterdir() if data else ():
                Path(path.name).symlink_to(path)
            text = rebuilt(page)
            if not trial:
                page.write_text(text, encoding="utf-8")
            for picture in () if trial else Path().glob("*.png"):
                shutil.copy(picture, PICTURES / picture.name)
        sys.stdout.write(f"{page.name}: {'nothing written: needs --data' if trial else 'written'}\n")


if __name__ == "__main__":
    main()
