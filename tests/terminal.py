"""Commands on a pseudo-terminal."""

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

# One interpreter runs many commands, because the imports take longer than most commands.
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
    """Exit code and output of a command, without colours and cursor movements."""

    exit_code: int
    text: str
    raw: str  # with escape sequences

    @property
    def widest(self) -> int:
        """Length of the longest line."""
        return max((len(line) for line in re.split(r"[\r\n]+", self.text)), default=0)


def in_terminal(*commands: list[str], columns: int = 80, folder: Path, seconds: float = 120) -> list[Ended]:
    """Run commands of ``steelyard`` in sequence on a terminal with the given number of columns."""
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
        output = _read_all(master)
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


def _read_all(master: int) -> str:
    output = b""
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:  # raised on Linux after the last process has closed the terminal
            data = b""
        if not data:
            return output.decode(errors="replace")
        output += data
