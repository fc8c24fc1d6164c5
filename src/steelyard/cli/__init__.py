"""Command-line interface. ``steelyard --help`` lists the commands, ``app`` their modules."""

from steelyard.cli.app import main

__all__ = ["main"]
