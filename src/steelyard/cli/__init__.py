"""The command line: one module per command, thin. ``steelyard --help`` lists them."""

from steelyard.cli.app import main

__all__ = ["main"]
