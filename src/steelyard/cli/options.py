"""Options shared by several commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, TypeVar

import click

from steelyard.cli.files import ANY_FILE, OUT_FILE
from steelyard.cli.output import print_message
from steelyard.cli.registry import LEARNERS

# Copy of a constant of TableEncoder, because importing TableEncoder takes a second.
MISSING = ("indicator", "refuse", "mean", "zero")

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]


def complete_models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return model names for shell completion."""
    names = [
        *LEARNERS,
        "lightgbm",
        "sklearn:linear_model.SGDClassifier",
        "sklearn:ensemble.RandomForestClassifier",
        "river:linear_model.LogisticRegression",
    ]
    return [name for name in names if name.startswith(incomplete)]


def renamed(new_names: Mapping[str, str]) -> type[click.Command]:
    """Return a command class that also accepts old option names, with a deprecation message."""

    class RenamedOptionsCommand(click.Command):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            end = args.index("--") if "--" in args else len(args)
            for place, word in enumerate(args[:end]):
                old, equals, value = word.partition("=")
                if old in new_names:
                    print_message(f"note: {old} is deprecated; use {new_names[old]}.")
                    args[place] = f"{new_names[old]}{equals}{value}"
            return super().parse_args(ctx, args)

    return RenamedOptionsCommand


@dataclass(frozen=True)
class ColumnOptions:
    """Values of the options that :func:`columns` adds: column roles, and how rows are read."""

    time: str | None
    features: tuple[str, ...]
    drop: tuple[str, ...]
    categorical: tuple[str, ...]
    missing: str
    max_classes: int
    chunk: int
    limit: int | None


def collect_options(record: type, name: str) -> Decorator:
    """Return a decorator that collects option values in an instance of the dataclass ``record``.

    Each field of ``record`` takes the value of the option of the same name. The instance is passed to the
    command as the argument ``name``.
    """
    names = [field.name for field in fields(record)]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(*args: Any, **values: Any) -> Any:
            return command(*args, **{name: record(**{key: values.pop(key) for key in names})}, **values)

        return call  # type: ignore[return-value]

    return decorate


def _in_order(*options: Decorator) -> Decorator:
    """Return a decorator that adds options in the order in which the help lists them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def option(names: str, metavar: str, text: str, *, default: Any = None, **settings: Any) -> Decorator:
    """Return an option with the help ``text``, which shows the default. ``names`` are separated by spaces."""
    shows_default = default not in {None, ""}
    return click.option(
        *names.split(), metavar=metavar, help=text, default=default, show_default=shows_default, **settings
    )


def flag(name: str, text: str) -> Decorator:
    """Return an option without a value."""
    return click.option(name, is_flag=True, help=text)


def count(name: str, text: str, *, minimum: int = 1, default: int | None = None) -> Decorator:
    """Return an option for an integer N of at least ``minimum``."""
    return option(name, "N", text, type=click.IntRange(minimum), default=default)


def choice(*names: str, among: Sequence[str], default: str, text: str) -> Decorator:
    """Return an option with a few allowed values."""
    return click.option(*names, type=click.Choice(among), default=default, show_default=True, help=text)


def target(text: str = "Label column.", *, required: bool = False) -> Decorator:
    """Return the option for the label column."""
    return option("--target", "COL", text, required=required)


def out(text: str, *, required: bool = False, metavar: str = "FILE") -> Decorator:
    """Return the option for the output file."""
    return option("-o --out", metavar, text, type=OUT_FILE, required=required)


def settings(text: str = "Model parameter, for example C=10.") -> Decorator:
    """Return the option for model parameters."""
    return option("--set settings", "NAME=VALUE", text, multiple=True)


time: Decorator = option("--time", "COL", "Column with the time of each row.")
features: Decorator = option("--feature features", "COL", "Use only these columns.", multiple=True)
drop: Decorator = option("--drop", "COL", "Do not use these columns.", multiple=True)
missing: Decorator = choice(
    "--missing",
    among=MISSING,
    default="indicator",
    text="Treatment of missing values: add an indicator feature, report an error, use the running mean of "
    "the column, or use zero.",
)
positive: Decorator = option(
    "--positive", "LABEL", "Positive class. Default: 1 or true, otherwise the rarer of two classes."
)
report: Decorator = option("--report", "FILE.html", "Write an HTML report.", type=OUT_FILE)
query: Decorator = option(
    "--query", "SELECT", "Read the rows of this query; SOURCE is the address of the database."
)
how: Decorator = choice(
    "--how",
    among=("auto", "pushed", "streamed"),
    default="auto",
    text="For databases: compute the sums inside the database (pushed) or read its rows (streamed). The "
    "results are bit-identical.",
)
seed: Decorator = count("--seed", "Random seed of the models that use one.", minimum=0, default=0)
chunk: Decorator = count("--chunk", "Rows read at a time.", default=1000)
limit: Decorator = count("--limit", "Stop after N rows.")
address: Decorator = _in_order(
    option("--host", "ADDRESS", "Address to listen on.", default="127.0.0.1"),
    option(
        "--port",
        "N",
        "Port to listen on; 0 selects a free port.",
        type=click.IntRange(0, 65535),
        default=8471,
    ),
    option("--tls-cert", "FILE", "TLS certificate.", type=ANY_FILE),
    option("--tls-key", "FILE", "Private key of the TLS certificate.", type=ANY_FILE),
)


def measure_window(note: str = "", default: int | None = None) -> Decorator:
    """Return the option for the window of the running measures."""
    return count("--measure-window", f"Window of the running measures, in rows.{note}", default=default)


k: Decorator = count(
    "--k",
    "Precision and recall at k use the N highest scores of each window or, with --time, of each day.",
    default=100,
)


def _column_options(chunk: Decorator) -> Decorator:
    return _in_order(
        time,
        features,
        drop,
        option(
            "--categorical",
            "COL",
            "Treat these columns as categories even if they contain numbers.",
            multiple=True,
        ),
        missing,
        count("--max-classes", "Report an error if there are more than N classes.", minimum=2, default=500),
        chunk,
        limit,
        collect_options(ColumnOptions, "columns"),
    )


columns: Decorator = _column_options(chunk)
# In commands that test rows before learning them, the chunk size is also a delay of the labels.
prequential_columns: Decorator = _column_options(
    count(
        "--chunk",
        "Predict N rows before the first of them is learned, so labels are up to N rows late. With smaller "
        "values models adapt sooner; larger values are faster.",
        default=100,
    )
)


def model(*, multiple: bool, peers: bool = True, default: str | None = None, note: str = "") -> Decorator:
    """Return the options for the model and its parameters.

    If ``peers`` is true, the help mentions models of other packages, which can be tested but not saved.
    ``note`` is added to the help; it describes the default model.
    """
    by_path = ", lightgbm, or sklearn:CLASS_PATH, xgboost:, imblearn: or river:CLASS_PATH" if peers else ""
    several = " Give several to compare them." if multiple else ""
    return _in_order(
        click.option(
            "--model",
            "model_names" if multiple else "model_name",
            metavar="[LABEL=]NAME",
            multiple=multiple,
            default=default,
            show_default=default is not None,
            shell_complete=complete_models,
            help=f"A model listed by `steelyard models`{by_path}.{several}{note}",
        ),
        settings("Model parameter, for example C=10, or LABEL.C=10 for one of several models."),
    )
