"""Command-line interface: one module per command. ``steelyard --help`` lists the commands."""

from steelyard.cli.app import main

__all__ = ["main"]
