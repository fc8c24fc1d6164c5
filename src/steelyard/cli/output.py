"""Output of commands: data to standard output, messages to standard error.

Labels, column names and file names are untrusted input, so control characters are escaped before they reach
a terminal. Slow imports are local to functions because --help and shell completion import this module.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from steelyard._visible import CONTROL_CHARACTERS, json_value, visible
from steelyard.exceptions import FileAccessError

if TYPE_CHECKING:
    from rich.console import Console


def stderr_console() -> Console:
    """Return a console that writes to standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def print_status(message: str) -> None:
    """Print a message if standard error is a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        print_message(message)


def print_message(message: str) -> None:
    """Print a message to standard error, above the live display if one is running."""
    if sys.stderr is not None:  # click.echo would bypass rich and overwrite the live display
        sys.stderr.write(wrap_lines(visible(message, keep="\n")) + "\n")
        sys.stderr.flush()


def wrap_lines(text: str) -> str:
    """Wrap text at word boundaries to the terminal width if standard error is a terminal."""
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return text
    if width < 1:  # the size of the terminal is unknown, as in many containers
        return text
    wrapper = textwrap.TextWrapper(
        width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))


def emit_text(text: str) -> None:
    """Print text to standard output. On a terminal, control characters are escaped."""
    output = standard_output()
    output.write(visible(text, keep="\r\n") if output.isatty() else text)


def standard_output() -> IO[str]:
    if sys.stdout is None or sys.stdout.closed:
        raise FileAccessError("standard output is closed.")
    return sys.stdout


def emit_json(data: Any) -> None:
    """Print one JSON document."""
    standard_output()
    click.echo(json_text(data, indent=2))


def json_text(data: Any, indent: int | None = None) -> str:
    """Return JSON in which control characters are escaped."""
    text = json.dumps(json_value(data), ensure_ascii=False, indent=indent, allow_nan=False, default=repr)
    return CONTROL_CHARACTERS.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    """Return a character as a JSON escape. Line breaks are kept, because they only format the JSON."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    pairs = (units[k : k + 2].hex() for k in range(0, len(units), 2))
    return found[0] if found[0] == "\n" else "".join(f"\\u{pair}" for pair in pairs)


def emit_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as an aligned table on a terminal, otherwise as tab-separated values."""
    lines = [[visible(_format_value(row.get(column))) for column in columns] for row in rows]
    heads = [visible(column) for column in columns]
    if standard_output().isatty():
        _draw_table(heads, lines)
        return
    for line in [heads, *lines]:
        click.echo("\t".join(line))


def _draw_table(heads: list[str], lines: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    width = sum(max(map(len, column)) + 2 for column in zip(heads, *lines, strict=True)) - 2
    if width > console.width and len(heads) > len(lines) + 1:
        # The table is transposed, so that it fits into the terminal.
        heads, *lines = [list(column) for column in zip(heads, *lines, strict=True)]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, head in enumerate(heads):  # rich would interpret brackets in a str as markup
        table.add_column(Text(head), no_wrap=index == 0, overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    console.print(table)


def emit_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print names and values: one pair per line, or one JSON document."""
    if as_json:
        emit_json(facts)
        return
    width = max(map(len, facts), default=0) if standard_output().isatty() else 0
    for name, value in facts.items():
        click.echo(f"{visible(name):<{width}}\t{visible(_format_value(value))}")


def _format_value(value: Any, *, count: bool = False) -> str:
    """Return a value as text. A number that is usually a ``count`` has no decimals if it is an integer."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        is_count = value.is_integer() and (count or abs(value) > 1)
        return f"{value:,.0f}" if is_count or abs(value) >= 1000 else f"{value:.4f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_value, value)) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_format_value(item, count=True)}" for name, item in value.items()) or "-"
    return str(value)
