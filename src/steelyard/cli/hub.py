"""``steelyard hub``: the pooled model of all places, once or for as long as it runs."""

from __future__ import annotations

import json
import re
import signal
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.endpoints import PLACE, key_option, open_folder, open_place
from steelyard.cli.files import ANY_FILE, OUT_FILE, save_model
from steelyard.cli.options import address_options
from steelyard.cli.output import emit_json, emit_table, json_option, tell
from steelyard.exceptions import ParameterError, SteelyardError

if TYPE_CHECKING:
    from steelyard.federated import Exchange, Hub

__all__ = ["hub_command"]

_ROUND = click.option("--round", "round_name", metavar="ROUND", help="The secure sum of this round.")
_COLUMNS = ["site", "rows", "squared_error", "local_squared_error", "auc", "local_auc", "held_back"]
# As people read them: the pooled model against the one that the site would have alone.
_HEADS = ["site", "rows", "error", "alone", "auc", "alone ", "held back"]


@click.group("hub")
def hub_command() -> None:
    """The pooled model of all places."""


# -- once -------------------------------------------------------------------------------------------


@hub_command.command("collect")
@click.argument("place", metavar=PLACE)
@click.option("-o", "--out", type=OUT_FILE, required=True, metavar="FILE", help="The pooled model.")
@_ROUND
@click.option("--wait", type=click.FloatRange(0), default=0.0, show_default=True, help="Seconds for a round.")
@key_option
def collect_command(*, place: str, out: Path, round_name: str | None, wait: float, key: str | None) -> None:
    """Make the model of all rows behind the bulletins: exactly that of one place with all rows."""
    hub = _summed(place, round_name, wait) if round_name is not None else _collected(open_place(place, key))
    save_model(hub.model(), out)
    tell(hub.explain())
    tell(f"digest {hub.digest()}; written to {out}")


def _collected(exchange: Exchange) -> Hub:
    from steelyard.federated import Hub, collect

    hub = Hub()
    collect(exchange, hub)
    return hub


def _summed(place: str, round_name: str, wait: float) -> Hub:
    from steelyard.federated import Hub, Round

    hub = Hub()
    hub.receive(Round(open_folder(place), round_name).sum(wait).site_update())
    return hub


@hub_command.command("compare")
@click.argument("place", metavar=PLACE)
@key_option
@json_option
def compare_command(*, place: str, key: str | None, as_json: bool) -> None:
    """What each place brings, and what the pooled model does for it, from statistics alone.

    error and auc are those of the pooled model on the place's rows, alone those of the place's own model.
    """
    from steelyard.federated import Service

    exchange = open_place(place, key)
    if isinstance(exchange, Service):
        rows = exchange.table()["sites"]
    else:
        rows = [asdict(standing) for standing in _collected(exchange).compare()]
    if as_json:
        emit_json(rows)
        return
    shown = [dict(zip(_HEADS, (row[column] for column in _COLUMNS), strict=True)) for row in rows]
    emit_table(_HEADS, shown)


@hub_command.command("drop")
@click.argument("place", metavar=PLACE)
@click.argument("site")
@key_option
def drop_command(*, place: str, site: str, key: str | None) -> None:
    """Take a place out: its bulletin is deleted, and the next model is as if it had never been there."""
    open_place(place, key).drop(site)
    tell(f"{site} is out")


# -- a secure sum -----------------------------------------------------------------------------------


@hub_command.command("open")
@click.argument("folder", metavar="FOLDER")
@click.option("--round", "round_name", required=True, metavar="ROUND", help="A name that was never used.")
@click.option("--site", "sites", multiple=True, required=True, metavar="SITE", help="Who takes part.")
@click.option("--target", required=True, metavar="COL", help="Column of the labels.")
@click.option("--label", "labels", multiple=True, required=True, metavar="LABEL", help="Every class.")
@click.option("--number", "numbers", multiple=True, metavar="COL", help="Every column of numbers.")
@click.option(
    "--category", "categories", multiple=True, metavar="COL=A,B", help="Every column of categories."
)
@click.option(
    "--step",
    type=click.IntRange(-60, 60),
    default=-30,
    show_default=True,
    help="Values are counted in steps of 2 to this power.",
)
def open_command(
    *,
    folder: str,
    round_name: str,
    sites: tuple[str, ...],
    target: str,
    labels: tuple[str, ...],
    numbers: tuple[str, ...],
    categories: tuple[str, ...],
    step: int,
) -> None:
    """Open a round of a secure sum in FOLDER: what all places agree on before they publish with --round.

    The hub will learn the sum over all places and nothing of a single one.
    """
    from steelyard.federated import Round, RoundConfig

    known = dict(_category(text) for text in categories)
    if not numbers and not known:
        raise click.UsageError("Name the columns with --number and --category.")
    terms = RoundConfig.of(
        sites, target=target, numbers=numbers, categories=known, labels=_labels(labels), step=step
    )
    Round(open_folder(folder), round_name).open(terms)
    tell(f"round {round_name} is open for {', '.join(terms.sites)}")


def _category(text: str) -> tuple[str, list[str]]:
    column, equals, values = text.partition("=")
    if not (column and equals and values):
        raise ParameterError(f"a column of categories is written COL=A,B; got {text!r}.")
    return column, values.split(",")


def _labels(texts: tuple[str, ...]) -> list[Any]:
    """Labels as tables are read: whole numbers where all of them are."""
    whole = all(re.fullmatch(r"-?\d{1,18}", text) for text in texts)
    return [int(text) if whole else text for text in texts]


# -- for as long as it runs -------------------------------------------------------------------------


@hub_command.command("serve")
@click.argument("folder", required=False, metavar="[FOLDER]")
@click.option("-o", "--out", type=OUT_FILE, metavar="FILE", help="Keep the pooled model of FOLDER here.")
@click.option(
    "--every", type=click.FloatRange(0.01), default=2.0, show_default=True, help="Seconds between two looks."
)
@click.option("--store", default="hub.db", show_default=True, metavar="FILE.db", help="As of serve.")
@click.option("--model", "model", default="pooled", show_default=True, metavar="NAME")
@click.option("--target", metavar="COL", help="Column of the labels; needed once, to make NAME.")
@address_options
@click.option("--keys", "keys_file", type=ANY_FILE, metavar="FILE", help="Keys of sites: serve keys add.")
@click.pass_context
def serve_command(
    ctx: click.Context,
    *,
    folder: str | None,
    out: Path | None,
    every: float,
    store: str,
    model: str,
    target: str | None,
    host: str,
    port: int,
    keys_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Be the hub: of FOLDER, whose pooled model is kept up to date, or over HTTP, for site publish --to URL.

    Over HTTP every bulletin is on disk before it is acknowledged. Stop it with Ctrl-C.
    """
    if folder is not None:
        if out is None:
            raise click.UsageError("Missing option '-o' / '--out': where the pooled model of FOLDER goes.")
        _follow(folder, out, every)
        return
    from steelyard.cli.serve import serve_command as serve

    options = {"store": store, "host": host, "port": port, "keys_file": keys_file}
    options |= {"tls_cert": tls_cert, "tls_key": tls_key}
    tell(f"sites publish to the address below with v1/models/{model}")
    with tempfile.TemporaryDirectory() as made:
        specs = () if target is None else (_spec(Path(made, f"{model}.toml"), target),)
        ctx.invoke(serve, specs=specs, **options)


def _spec(path: Path, target: str) -> Path:
    """The spec of a pooled model, as a file; a string of JSON is one of TOML."""
    path.write_text(f"target = {json.dumps(target)}\nsites = true\n", "utf-8")
    return path


def _follow(folder: str, out: Path, every: float) -> None:
    """PushdownPlan at a folder again and again; what is wrong with one place does not stop the others."""
    from steelyard.federated import Hub, collect

    exchange, hub, told = open_folder(folder), Hub(), ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service is stopped like this
    tell(f"following {exchange.path}  (Ctrl-C stops)")
    try:
        while True:
            before = hub.copy()
            trouble = ""
            try:
                collect(exchange, hub)
            except SteelyardError as error:
                trouble = error.summary
            if trouble and trouble != told:
                tell(f"left out: {trouble}")
            told = trouble
            if hub.sites and (not before.sites or hub.digest() != before.digest()):
                save_model(hub.model(), out)
                tell(f"{hub.explain()}\ndigest {hub.digest()}; written to {out}")
            elif before.sites and not hub.sites:
                out.unlink(missing_ok=True)
                tell(f"no site is left; {out} is gone")
            time.sleep(every)
    except KeyboardInterrupt:
        tell("stopped")
