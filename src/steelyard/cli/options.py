"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from steelyard.cli.files import ANY_FILE, OUT_FILE
from steelyard.cli.registry import available
from steelyard.exceptions import ParameterError

__all__ = [
    "MISSING",
    "MODEL_FILE",
    "ColumnOptions",
    "address_options",
    "chunk_option",
    "column_options",
    "complete_models",
    "count_option",
    "gathered",
    "how_option",
    "label_of",
    "limit_option",
    "measure_window_option",
    "model_options",
    "positive_option",
    "query_option",
    "report_option",
    "seed_option",
    "tested_column_options",
]

MISSING = ("refuse", "mean", "zero")  # those of TableEncoder, which takes a second to import

Command = TypeVar("Command", bound=Callable[..., Any])

MODEL_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def complete_models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names for shell completion."""
    names = [*available(), "sklearn:linear_model.SGDClassifier", "river:linear_model.LogisticRegression"]
    return [name for name in names if name.startswith(incomplete)]


@dataclass(frozen=True)
class ColumnOptions:
    """What :func:`column_options` asks for: which columns are what, and how rows are read."""

    time: str | None
    features: tuple[str, ...]
    drop: tuple[str, ...]
    categorical: tuple[str, ...]
    missing: str
    max_classes: int
    chunk: int
    limit: int | None


def gathered(record: type, name: str) -> Callable[[Command], Command]:
    """Options that are fields of a frozen dataclass come to the command as one argument of that class."""
    names = [field.name for field in fields(record)]

    def around(command: Command) -> Command:
        @wraps(command)
        def call(*args: Any, **given: Any) -> Any:
            return command(*args, **{name: record(**{key: given.pop(key) for key in names})}, **given)

        return call  # type: ignore[return-value]

    return around


def count_option(
    name: str, says: str, *, least: int = 1, default: int | None = None
) -> Callable[[Command], Command]:
    """A whole number N, no smaller than ``least``."""
    return click.option(
        name,
        type=click.IntRange(least),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=says,
    )


def column_options(command: Command) -> Command:
    """Which columns are what, and how they are read: the argument ``columns`` of the command."""
    return _column_options(command, chunk_option)


def tested_column_options(command: Command) -> Command:
    """The same for commands that test rows before they learn them, where a chunk is a delay of labels."""
    return _column_options(
        command,
        count_option(
            "--chunk",
            "Rows that are tested before the first of them is learned: labels come up to so many rows late. "
            "Smaller is nearer to a model that learns at once, larger is faster.",
            default=100,
        ),
    )


def _column_options(command: Command, chunk: Callable[[Any], Any]) -> Command:
    command = gathered(ColumnOptions, "columns")(command)
    for option in reversed(
        [
            click.option("--time", metavar="COL", help="Column that says when a row happened."),
            click.option(
                "--feature", "features", metavar="COL", multiple=True, help="Use only these columns."
            ),
            click.option("--drop", metavar="COL", multiple=True, help="Leave these columns out."),
            click.option(
                "--categorical",
                metavar="COL",
                multiple=True,
                help="Categories although they look like numbers.",
            ),
            click.option(
                "--missing",
                type=click.Choice(MISSING),
                default="refuse",
                show_default=True,
                help="Missing values: refuse, the mean of the column so far, or zero.",
            ),
            count_option(
                "--max-classes",
                "More classes are refused: the target is then hardly a label.",
                least=2,
                default=500,
            ),
            chunk,
            limit_option,
        ]
    ):
        command = option(command)
    return command


def model_options(
    *, multiple: bool, peers: bool = True, default: str | None = None, unnamed: str = ""
) -> Callable[[Command], Command]:
    """Which model, with which parameters; peers can race but not be saved.

    ``unnamed`` tells which one it is without a name, where that depends.
    """

    def add(command: Command) -> Command:
        several = " Several race each other." if multiple else f" Not named: {unnamed}." if unnamed else ""
        by_name = ", or sklearn:... or river:... by dotted name" if peers else ""
        command = click.option(
            "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A parameter: C=10, or LABEL.C=10."
        )(command)
        return click.option(
            "--model",
            "model_names" if multiple else "model_name",
            metavar="[LABEL=]NAME",
            multiple=multiple,
            default=default,
            show_default=default is not None,
            shell_complete=complete_models,
            help=f"A model of `steelyard models`{by_name}.{several}",
        )(command)

    return add


positive_option: Callable[[Command], Command] = click.option(
    "--positive", metavar="LABEL", help="The positive class; the rarer of two by default."
)


seed_option: Callable[[Command], Command] = count_option(
    "--seed",
    "For models that take their chances: the same seed, the same model.",
    least=0,
    default=0,
)
report_option: Callable[[Command], Command] = click.option(
    "--report", type=OUT_FILE, metavar="FILE.html", help="Write a report to read in a browser."
)
chunk_option: Callable[[Command], Command] = count_option("--chunk", "Rows at a time.", default=1000)
limit_option: Callable[[Command], Command] = count_option("--limit", "Stop after so many rows.")


def measure_window_option(more: str = "", default: int | None = None) -> Callable[[Command], Command]:
    """Over how many rows running measures are taken."""
    return count_option(
        "--measure-window", f"Rows that the running measures are taken over{more}.", default=default
    )


query_option: Callable[[Command], Command] = click.option(
    "--query", metavar="SELECT", help="Rows of a query; SOURCE is then the address of a database alone."
)


def address_options(command: Command) -> Command:
    """Where a service listens, and with which certificate."""
    for option in reversed(
        [
            click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS"),
            click.option(
                "--port", type=click.IntRange(0, 65535), default=8471, show_default=True, metavar="N"
            ),
            click.option(
                "--tls-cert", type=ANY_FILE, metavar="FILE", help="Certificate, for encrypted connections."
            ),
            click.option("--tls-key", type=ANY_FILE, metavar="FILE", help="Its private key."),
        ]
    ):
        command = option(command)
    return command


how_option = click.option(
    "--how",
    type=click.Choice(("auto", "pushed", "streamed")),
    default="auto",
    show_default=True,
    help="Of a database: whether it takes the sums itself, or gives its rows. Both give the same bits.",
)


def label_of(text: str, labels: Any) -> Any:
    """The label that was written on the command line, as the data has it; refused where it is none."""
    for label in labels:
        if str(label) == text:
            return label
    raise ParameterError(f"--positive: there is no class {text!r}; there are {', '.join(map(str, labels))}.")
