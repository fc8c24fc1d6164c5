"""Commands under a pseudo-terminal, as a person runs them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ended", "in_terminal"]

# One interpreter for many commands: importing it all takes longer than most of them.
_DRIVER = """
import json, sys
from steelyard.cli import main
for number, arguments in enumerate(json.loads(sys.argv[1])):
    try:
        main(arguments, prog_name="steelyard")
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush(); sys.stderr.flush()
    print(f"\\x1c{code}\\x1c", flush=True)
"""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


@dataclass(frozen=True)
class Ended:
    """How a command ended, and the lines that it left on the terminal, without colours and movements."""

    exit_code: int
    text: str
    raw: str  # with them

    @property
    def widest(self) -> int:
        """Columns of the longest line."""
        return max((len(line) for line in re.split(r"[\r\n]+", self.text)), default=0)


def in_terminal(*commands: list[str], columns: int = 80, folder: Path, seconds: float = 120) -> list[Ended]:
    """Run commands of ``steelyard``, one after the other, on a terminal of so many columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    unset = {"COLUMNS", "LINES", "NO_COLOR", "CI"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    process = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, json.dumps([list(map(str, command)) for command in commands])],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env={**environment, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    os.close(slave)
    try:
        output = _all_of(master)
        process.wait(seconds)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    parts = output.split("\x1c")
    assert len(parts) == 2 * len(commands) + 1, output
    return [
        Ended(int(code), _CONTROL.sub("", raw), raw)
        for raw, code in zip(parts[::2], parts[1::2], strict=False)
    ]


def _all_of(master: int) -> str:
    output = b""
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:  # Linux says so when the last program has let go of the terminal
            data = b""
        if not data:
            return output.decode(errors="replace")
        output += data
