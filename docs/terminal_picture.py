"""Make docs/images/terminal.png: the terminal after a run of ``steelyard stream``.

    python docs/terminal_picture.py [--rows 60000] [--to FILE.png]

Needs Chromium and playwright. The command runs in a pseudo-terminal; the picture shows its last screen.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

PICTURE = Path(__file__).parent / "images" / "terminal.png"
N_COLUMNS, N_LINES = 112, 50
WIDTH = 1000  # width of the browser window in pixels
# Lines of this height touch each other, so that the frames drawn with characters have no gaps.
_PAGE = """<body style="margin: 0; background: transparent">
<main style="width: fit-content; padding: 14px 18px; border-radius: 8px;
  color: {foreground}; background: {background}">
<pre style="margin: 0; font: 14px/16px 'DejaVu Sans Mono', monospace">{code}</pre></main></body>"""
_ERASE_LINE = "\x1b[2K"  # the live display erases its lines before it draws them again


def output_of(command: list[str]) -> str:
    """Run a command in a pseudo-terminal; return everything that it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", N_LINES, N_COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    running = subprocess.Popen(  # noqa: S603  our own command
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65_536):
            parts.append(part)
    except OSError:  # the command has ended
        pass
    if running.wait():
        raise SystemExit(f"the command failed with status {running.returncode}")
    return b"".join(parts).decode()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, help="rows of the built-in stream")
    parser.add_argument("--to", type=Path, default=PICTURE, help="file of the picture")
    options = parser.parse_args()
    shown = ["steelyard", "stream", *(["--limit", str(options.rows)] if options.rows else [])]
    with tempfile.TemporaryDirectory() as folder:
        last = output_of([sys.executable, "-m", *shown, "--report", f"{folder}/report.html"])
        last = last[last.rindex(_ERASE_LINE) + len(_ERASE_LINE) :] if _ERASE_LINE in last else last
        last = last.replace("\r", "").replace(f"{folder}/", "").rstrip()
        console = Console(record=True, width=N_COLUMNS, file=io.StringIO(), color_system="truecolor")
        console.print(f"$ {' '.join(shown)} --report report.html", highlight=False)
        console.print(Text.from_ansi(last))
        with sync_playwright() as play:
            chromium = shutil.which("chromium") or shutil.which("google-chrome")
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": WIDTH, "height": WIDTH})
            page.set_content(
                console.export_html(theme=SVG_EXPORT_THEME, inline_styles=True, code_format=_PAGE)
            )
            page.locator("main").screenshot(path=options.to, omit_background=True)
            browser.close()


if __name__ == "__main__":
    main()
