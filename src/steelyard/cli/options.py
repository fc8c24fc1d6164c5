"""Declaration of commands, and options shared by several commands.

A command is a function whose parameters have options as default values, as in Typer::

    @opt.command("inspect")
    def inspect_command(
        file: Path = opt.argument(type=IN_FILE),
        top: int = opt.count("Number of features to list.", default=10),
    ) -> None: ...

Such a default value is a function that takes the name of the parameter and returns the parameter of click. A
default value that is a dataclass, whose fields have such default values, stands for several options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

import click

from steelyard.cli.files import ANY_FILE, OUT_FILE
from steelyard.cli.output import print_message
from steelyard.cli.registry import LEARNERS

# Copy of a constant of TableEncoder, because importing TableEncoder takes a second.
MISSING = ("indicator", "refuse", "mean", "zero")


# -- commands ---------------------------------------------------------------------------------------------


def command(
    name: str, parent: click.Group | None = None, **settings: Any
) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that makes a command of a function, in the group ``parent`` if it is given."""

    def decorate(function: Callable[..., None]) -> Any:
        @wraps(function)
        def run(**values: Any) -> None:
            function(**_arguments(function, values))

        return (parent or click).command(name, params=_parameters(function), **settings)(run)

    return decorate


def _declarations(call: Callable[..., Any]) -> dict[str, Any]:
    """Return the declared parameters of a function or dataclass by name."""
    parameters = signature(call).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _parameters(call: Callable[..., Any]) -> list[click.Parameter]:
    """Return the parameters of click in the order of their declarations, which is that of the help."""
    found: list[click.Parameter] = []
    for name, declared in _declarations(call).items():
        found += _parameters(declared) if isinstance(declared, type) else [declared(name)]
    return found


def _arguments(call: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function or dataclass; ``values`` has the value of every option."""
    return {
        name: declared(**_arguments(declared, values)) if isinstance(declared, type) else values[name]
        for name, declared in _declarations(call).items()
    }


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


# -- kinds of options -------------------------------------------------------------------------------------
#
# The return type is Any, because the result is the default value of a parameter that has another type.


def argument(**settings: Any) -> Any:
    """Declare a positional argument."""
    return lambda name: click.Argument([name], **settings)


def option(
    text: str, metavar: str | None = None, *, names: str = "", default: Any = None, **settings: Any
) -> Any:
    """Declare an option with the help ``text``, to which the default is added.

    The option of the parameter ``min_rows`` is ``--min-rows``, unless other ``names`` (separated by spaces)
    are given.
    """

    def declared(name: str) -> click.Option:
        given = names.split() or [f"--{name.replace('_', '-')}"]
        return click.Option([*given, name], metavar=metavar, help=text, **settings)

    if default is not None:  # since click 8.3, a required option with the default None may be left out
        settings["default"] = default
    settings.setdefault("show_default", default not in {None, ""})
    return declared


def flag(text: str, *, names: str = "") -> Any:
    """Declare an option without a value."""
    return option(text, names=names, is_flag=True, default=False, show_default=False)


def count(text: str, *, minimum: int = 1, default: int | None = None) -> Any:
    """Declare an option for an integer N of at least ``minimum``."""
    return option(text, "N", type=click.IntRange(minimum), default=default)


def choice(text: str, among: Sequence[str], *, names: str = "", default: str | None = None) -> Any:
    """Declare an option with a few allowed values."""
    return option(text, names=names, type=click.Choice(among), default=default)


def target(text: str = "Label column.", *, required: bool = False) -> Any:
    """Declare the option for the label column."""
    return option(text, "COL", required=required)


def out(text: str, *, required: bool = False, metavar: str = "FILE") -> Any:
    """Declare the option for the output file."""
    return option(text, metavar, names="-o --out", type=OUT_FILE, required=required)


def settings(text: str = "Model parameter, for example C=10.") -> Any:
    """Declare the option for model parameters."""
    return option(text, "NAME=VALUE", names="--set", multiple=True)


def model(*, multiple: bool = False, peers: bool = True, default: str | None = None, note: str = "") -> Any:
    """Declare the option for the model.

    If ``peers`` is true, the help mentions models of other packages, which can be tested but not saved.
    ``note`` is added to the help; it describes the default model.
    """
    by_path = ", lightgbm, or sklearn:CLASS_PATH, xgboost:, imblearn: or river:CLASS_PATH" if peers else ""
    several = " Give several to compare them." if multiple else ""
    text = f"A model listed by `steelyard models`{by_path}.{several}{note}"
    return option(
        text,
        "[LABEL=]NAME",
        names="--model",
        default=default,
        multiple=multiple,
        shell_complete=complete_models,
    )


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


def measure_window(note: str = "", default: int | None = None) -> Any:
    """Declare the option for the window of the running measures."""
    return count(f"Window of the running measures, in rows.{note}", default=default)


# -- shared options ---------------------------------------------------------------------------------------

as_json: Any = flag("Print JSON instead of a table.", names="--json")
model_settings: Any = settings("Model parameter, for example C=10, or LABEL.C=10 for one of several models.")
positive: Any = option("Positive class. Default: 1 or true, otherwise the rarer of two classes.", "LABEL")
report: Any = option("Write an HTML report.", "FILE.html", type=OUT_FILE)
query: Any = option("Read the rows of this query; SOURCE is the address of the database.", "SELECT")
how: Any = choice(
    "For databases: compute the sums inside the database (pushed) or read its rows (streamed). The "
    "results are bit-identical.",
    ("auto", "pushed", "streamed"),
    default="auto",
)
seed: Any = count("Random seed of the models that use one.", minimum=0, default=0)
k: Any = count(
    "Precision and recall at k use the N highest scores of each window or, with --time, of each day.",
    default=100,
)


@dataclass(frozen=True)
class AddressOptions:
    """Address of an HTTP service, and its certificate."""

    host: str = option("Address to listen on.", "ADDRESS", default="127.0.0.1")
    port: int = option(
        "Port to listen on; 0 selects a free port.", "N", type=click.IntRange(0, 65535), default=8471
    )
    tls_cert: Path | None = option("TLS certificate.", "FILE", type=ANY_FILE)
    tls_key: Path | None = option("Private key of the TLS certificate.", "FILE", type=ANY_FILE)


@dataclass(frozen=True)
class ColumnOptions:
    """Column roles, and how rows are read."""

    time: str | None = option("Column with the time of each row.", "COL")
    features: tuple[str, ...] = option("Use only these columns.", "COL", multiple=True, names="--feature")
    drop: tuple[str, ...] = option("Do not use these columns.", "COL", multiple=True)
    categorical: tuple[str, ...] = option(
        "Treat these columns as categories even if they contain numbers.", "COL", multiple=True
    )
    missing: str = choice(
        "Treatment of missing values: add an indicator feature, report an error, use the running mean of "
        "the column, or use zero.",
        MISSING,
        default="indicator",
    )
    max_classes: int = count("Report an error if there are more than N classes.", minimum=2, default=500)
    chunk: int = count("Rows read at a time.", default=1000)
    limit: int | None = count("Stop after N rows.")


@dataclass(frozen=True)
class PrequentialColumnOptions(ColumnOptions):
    """Options of commands that test rows before learning them: the chunk size also delays the labels."""

    chunk: int = count(
        "Predict N rows before the first of them is learned, so labels are up to N rows late. With smaller "
        "values models adapt sooner; larger values are faster.",
        default=100,
    )


# Default values of parameters; each stands for all options of a class.
address: Any = AddressOptions
columns: Any = ColumnOptions
prequential_columns: Any = PrequentialColumnOptions
