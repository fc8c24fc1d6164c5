"""The command line as tests run it."""

from __future__ import annotations

import inspect

from click.testing import CliRunner

__all__ = ["cli_runner"]


def cli_runner() -> CliRunner:
    """A runner that keeps standard output and standard error apart, as click does by itself since 8.2."""
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart)
