"""Data to standard output, talk to standard error; the one place where text reaches a terminal.

Labels and names of columns and files come from strangers: whatever a terminal would obey is written out.
Whatever takes long to import is imported where it is used: help and completion pass through here.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from steelyard._visible import CONTROL_CHARACTERS, visible
from steelyard.exceptions import FileAccessError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "emit_json",
    "emit_pairs",
    "emit_table",
    "emit_text",
    "folded",
    "json_option",
    "json_text",
    "plain",
    "standard_output",
    "talk",
    "talk_console",
    "tell",
]

Command = TypeVar("Command", bound=Callable[..., Any])

json_option: Callable[[Command], Command] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of a table."
)


def talk_console() -> Console:
    """Where people are talked to."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def talk(message: str) -> None:
    """Tell a person; silent when standard error is no terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        tell(message)


def tell(message: str) -> None:
    """Say something on standard error, to whoever listens; above a live panel, if there is one."""
    if sys.stderr is not None:  # not click.echo, which would write past the panel, into its picture
        sys.stderr.write(folded(visible(message, keep="\n")) + "\n")
        sys.stderr.flush()


def folded(text: str) -> str:
    """Lines that a terminal need not break within a word; as they are where nobody looks at a terminal."""
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return text
    if width < 1:  # a terminal that was not told its size, as in many containers
        return text
    fold = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
    return "\n".join(fold.fill(line) for line in text.split("\n"))


def emit_text(text: str) -> None:
    """Print text as it is; made visible where a terminal would obey it."""
    output = standard_output()
    output.write(visible(text, keep="\r\n") if output.isatty() else text)


def standard_output() -> IO[str]:
    """Standard output, if there is one."""
    if sys.stdout is None or sys.stdout.closed:
        raise FileAccessError("standard output is closed, so nothing can be printed.")
    return sys.stdout


def emit_json(data: Any) -> None:
    """Print one JSON document."""
    standard_output()
    click.echo(json_text(data, indent=2))


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON whose text is visible: what a terminal would obey is escaped, as JSON allows everywhere."""
    text = json.dumps(plain(data), ensure_ascii=False, indent=indent, allow_nan=False, default=repr)
    return CONTROL_CHARACTERS.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    """A character as JSON escapes it; a line break here stands between values, not in one."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    pairs = (units[k : k + 2].hex() for k in range(0, len(units), 2))
    return found[0] if found[0] == "\n" else "".join(f"\\u{pair}" for pair in pairs)


def emit_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows: drawn for a terminal, tab-separated for a pipe."""
    lines = [[_cell(row.get(column)) for column in columns] for row in rows]
    heads = [visible(column) for column in columns]
    if not standard_output().isatty():
        for line in [heads, *lines]:
            click.echo("\t".join(line))
        return
    _draw_table(heads, lines)


def _draw_table(heads: list[str], lines: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if _width(heads, lines) > console.width and len(heads) > len(lines) + 1:
        heads, *lines = [list(column) for column in zip(heads, *lines, strict=True)]  # on its side it may fit
    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(Text(head))  # as text, or brackets would be taken for markup
    for line in lines:
        table.add_row(*map(Text, line))
    console.print(table)


def _width(heads: list[str], lines: list[list[str]]) -> int:
    """Columns of a terminal that a table takes, with two between one and the next."""
    return sum(max(map(len, column)) + 2 for column in zip(heads, *lines, strict=True)) - 2


def emit_pairs(facts: Mapping[str, Any]) -> None:
    """Print names and values, one a line."""
    width = max(map(len, facts), default=0) if standard_output().isatty() else 0
    for name, value in facts.items():
        click.echo(f"{visible(name):<{width}}\t{_cell(value)}")


def _cell(value: Any) -> str:
    """A value for people, in one line."""
    return visible(_written(value))


def _written(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) > 1
        return f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.4f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_written, value)) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_count(item)}" for name, item in value.items()) or "-"
    return str(value)


def _count(value: Any) -> str:
    """A number that is nearly always whole, such as the rows of a class."""
    return f"{value:,.0f}" if isinstance(value, float) and value.is_integer() else _written(value)


def plain(value: Any) -> Any:
    """The same as JSON can say it; what is not a number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
