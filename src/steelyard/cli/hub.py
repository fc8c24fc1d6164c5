"""``steelyard hub``: pooled model of all sites, built once or kept up to date."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import ANY_FILE, save_model
from steelyard.cli.output import emit_json, emit_table, json_option, print_message
from steelyard.cli.row_order import parse_labels
from steelyard.cli.site import ENDPOINT, key_option, open_endpoint, open_folder, round_option
from steelyard.exceptions import ParameterError, SteelyardError

if TYPE_CHECKING:
    from steelyard.federated import Exchange, Hub

# Table heading of each name in the JSON output.
_COLUMNS = {
    "site": "site",
    "rows": "rows",
    "squared_error": "error",
    "local_squared_error": "local error",
    "auc": "auc",
    "local_auc": "local auc",
    "held_back": "held back",
}


@click.group("hub")
def hub_command() -> None:
    """Build the pooled model of all sites."""


# -- commands that run once -------------------------------------------------------------------------


@hub_command.command("collect")
@click.argument("endpoint", metavar=ENDPOINT)
@opt.out("Output file for the pooled model.", required=True)
@round_option("Use the sum of this secure-aggregation round.")
@click.option(
    "--wait", type=click.FloatRange(0), default=0.0, show_default=True, help="Seconds to wait for the round."
)
@key_option
def collect_command(
    *, endpoint: str, out: Path, round_name: str | None, wait: float, key: str | None
) -> None:
    """Build the model of all published statistics. It equals a model fitted on the rows of all sites."""
    from steelyard.federated import Hub, Round

    if round_name is None:
        hub = _collected(open_endpoint(endpoint, key))
    else:
        hub = Hub()
        hub.receive(Round(open_folder(endpoint), round_name).sum(wait).site_update())
    save_model(hub.model(), out)
    print_message(f"{hub.explain()}\ndigest {hub.digest()}; wrote {out}")


def _collected(exchange: Exchange) -> Hub:
    from steelyard.federated import Hub, collect

    hub = Hub()
    collect(exchange, hub)
    return hub


@hub_command.command("compare")
@click.argument("endpoint", metavar=ENDPOINT)
@key_option
@json_option
def compare_command(*, endpoint: str, key: str | None, as_json: bool) -> None:
    """Compare the pooled model with the local model of each site, using only statistics.

    The columns error and auc measure the pooled model on the rows of a site; local error and local auc
    measure the site's own model on the same rows.
    """
    from steelyard.federated import Service

    exchange = open_endpoint(endpoint, key)
    if isinstance(exchange, Service):
        rows = exchange.table()["sites"]
    else:
        rows = [asdict(summary) for summary in _collected(exchange).compare()]
    if as_json:
        emit_json(rows)
        return
    emit_table(
        list(_COLUMNS.values()), [{head: row[name] for name, head in _COLUMNS.items()} for row in rows]
    )


@hub_command.command("drop")
@click.argument("endpoint", metavar=ENDPOINT)
@click.argument("site")
@key_option
def drop_command(*, endpoint: str, site: str, key: str | None) -> None:
    """Delete the statistics of SITE; the next pooled model does not contain its rows."""
    open_endpoint(endpoint, key).drop(site)
    print_message(f"removed {site}")


# -- secure aggregation -----------------------------------------------------------------------------


@hub_command.command("open")
@click.argument("folder", metavar="FOLDER")
@round_option("Name of the round; it must be new.", required=True)
@click.option("--site", "sites", multiple=True, required=True, metavar="SITE", help="Name of a site.")
@opt.target(required=True)
@click.option(
    "--label",
    "labels",
    multiple=True,
    required=True,
    metavar="LABEL",
    help="Class label; repeat the option for each class.",
)
@click.option("--number", "numbers", multiple=True, metavar="COL", help="Numeric column; may be repeated.")
@click.option(
    "--category",
    "categories",
    multiple=True,
    metavar="COL=A,B",
    help="Categorical column with its values; may be repeated.",
)
@click.option(
    "--step",
    type=click.IntRange(-60, 60),
    default=-30,
    show_default=True,
    help="Quantization step, as an exponent: values are rounded to multiples of 2 to this power.",
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
    """Open a secure-aggregation round in FOLDER; sites then publish with --round.

    The hub learns the sum over all sites and nothing about a single site.
    """
    from steelyard.federated import Round, RoundConfig

    known = dict(_parse_category(text) for text in categories)
    if not numbers and not known:
        raise click.UsageError("Give the columns with --number and --category.")
    config = RoundConfig.of(
        sites, target=target, numbers=numbers, categories=known, labels=parse_labels(labels), step=step
    )
    Round(open_folder(folder), round_name).open(config)
    print_message(f"round {round_name} is open for {', '.join(config.sites)}")


def _parse_category(text: str) -> tuple[str, list[str]]:
    column, equals, values = text.partition("=")
    if not (column and equals and values):
        raise ParameterError(f"--category: expected COL=A,B; got {text!r}.")
    return column, values.split(",")


# -- hub as a service --------------------------------------------------------------------------------


@hub_command.command("serve")
@click.argument("folder", required=False, metavar="[FOLDER]")
@opt.out("Output file for the pooled model of FOLDER.")
@click.option(
    "--every",
    type=click.FloatRange(0.01),
    default=2.0,
    show_default=True,
    help="Seconds between two checks of FOLDER.",
)
@click.option("--store", default="hub.db", show_default=True, metavar="FILE.db", help="Store of the service.")
@click.option(
    "--model", "model", default="pooled", show_default=True, metavar="NAME", help="Name of the pooled model."
)
@opt.target("Label column; needed once, to create the model.")
@opt.address
@click.option(
    "--keys", "keys_file", type=ANY_FILE, metavar="FILE", help="Keys of the sites, from `serve keys add`."
)
@click.pass_context
def serve_command(
    ctx: click.Context,
    /,
    *,
    folder: str | None,
    out: Path | None,
    every: float,
    model: str,
    target: str | None,
    **service_options: Any,
) -> None:
    """Run a hub for a shared FOLDER, or over HTTP for `site publish --to URL`. Stop it with Ctrl-C.

    The pooled model of FOLDER is rewritten after every change. Over HTTP, published statistics are stored on
    disk before they are acknowledged.
    """
    if folder is not None:
        if out is None:
            raise click.UsageError("Missing option '-o', the output file for the pooled model of FOLDER.")
        _watch(folder, out, every)
        return
    from steelyard.cli.serve import serve_command as serve

    print_message(f"sites publish to the address below, path /v1/models/{model}")
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, f"{model}.toml")
        if target is not None:  # a JSON string is a valid string of TOML
            path.write_text(f"target = {json.dumps(target)}\nsites = true\n", "utf-8")
        ctx.invoke(serve, specs=() if target is None else (path,), **service_options)


def _watch(folder: str, out: Path, every: float) -> None:
    """Poll a folder until interrupted. Invalid statistics of one site do not affect other sites."""
    from steelyard.federated import Hub, collect

    exchange, hub, last_error = open_folder(folder), Hub(), ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # service managers stop processes with SIGTERM
    print_message(f"following {exchange.path} (Ctrl-C stops)")
    try:
        while True:
            before, error_text = hub.copy(), ""
            try:
                collect(exchange, hub)
            except SteelyardError as error:
                error_text = error.summary
            if error_text and error_text != last_error:
                print_message(f"left out: {error_text}")
            last_error = error_text
            if hub.sites and (not before.sites or hub.digest() != before.digest()):
                save_model(hub.model(), out)
                print_message(f"{hub.explain()}\ndigest {hub.digest()}; wrote {out}")
            elif before.sites and not hub.sites:
                out.unlink(missing_ok=True)
                print_message(f"no sites left; removed {out}")
            time.sleep(every)
    except KeyboardInterrupt:
        print_message("stopped")
