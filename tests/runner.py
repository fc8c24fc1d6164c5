"""Runner of commands for tests."""

from __future__ import annotations

import inspect

from click.testing import CliRunner

__all__ = ["cli_runner"]


def cli_runner() -> CliRunner:
    """Return a runner with separate standard output and standard error, the default since click 8.2."""
    options = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**options)
