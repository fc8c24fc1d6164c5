"""Data to standard output, talk to standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
import numpy as np
from rich.console import Console
from rich.table import Table

__all__ = ["emit_json", "emit_pairs", "emit_table", "json_option", "plain", "talk", "talk_console"]

Command = TypeVar("Command", bound=Callable[..., Any])

json_option: Callable[[Command], Command] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of a table."
)


def talk_console() -> Console:
    """Where people are talked to."""
    return Console(stderr=True, highlight=False)


def talk(message: str) -> None:
    """Tell a person; silent when standard error is no terminal."""
    if sys.stderr.isatty():
        click.echo(message, err=True)


def emit_json(data: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(plain(data), ensure_ascii=False, indent=2, allow_nan=False, default=repr))


def emit_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows: drawn for a terminal, tab-separated for a pipe."""
    lines = [[_cell(row.get(column)) for column in columns] for row in rows]
    if not sys.stdout.isatty():
        for row in [list(columns), *lines]:
            click.echo("\t".join(row))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column)
    for line in lines:
        table.add_row(*line)
    Console(highlight=False).print(table)


def emit_pairs(facts: Mapping[str, Any]) -> None:
    """Print names and values, one a line."""
    width = max(map(len, facts), default=0) if sys.stdout.isatty() else 0
    for name, value in facts.items():
        click.echo(f"{name:<{width}}\t{_cell(value)}")


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) > 1
        return f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.4f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_count(item)}" for name, item in value.items()) or "-"
    return str(value)


def _count(value: Any) -> str:
    """A number that is nearly always whole, such as the rows of a class."""
    return f"{value:,.0f}" if isinstance(value, float) and value.is_integer() else _cell(value)


def plain(value: Any) -> Any:
    """The same as JSON can say it; what is not a number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
