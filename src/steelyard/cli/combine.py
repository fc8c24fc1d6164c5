"""``steelyard combine``, which is ``steelyard merge`` now: hidden, and says so."""

from __future__ import annotations

import click

from steelyard.exceptions import SteelyardError

__all__ = ["combine_command"]


@click.command(
    "combine", hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def combine_command(words: tuple[str, ...]) -> None:  # noqa: ARG001  whatever was written
    """Say where the command has gone."""
    raise SteelyardError("`steelyard combine` is `steelyard merge` now; it takes statistics and models.")
