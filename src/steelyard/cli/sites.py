"""``steelyard site`` and ``hub``: pooled model of several sites whose rows stay local."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import ANY_FILE, read_file, save_model
from steelyard.cli.output import emit_facts, emit_json, emit_table, json_option, print_message
from steelyard.cli.runs import parse_labels
from steelyard.exceptions import FileAccessError, ParameterError, SteelyardError

if TYPE_CHECKING:
    from steelyard.federated import Folder, ReleasePolicy, RoundKeys, Service

ENDPOINT = "FOLDER|URL"
key_option: Callable[[Any], Any] = opt.option(
    "--key",
    "KEY",
    "Key of the service. The environment variable STEELYARD_KEY is safer than the option.",
    envvar="STEELYARD_KEY",
)
_to_option = opt.option(
    "--to endpoint", ENDPOINT, "Shared folder, or URL of the pooled model.", required=True
)
_name_option = opt.option("--name", "SITE", "Name of this site.", required=True)


def round_option(text: str, *, required: bool = False) -> Callable[[Any], Any]:
    """Return the option for the name of a secure-aggregation round."""
    return opt.option("--round round_name", "ROUND", text, required=required)


def open_endpoint(endpoint: str, key: str | None) -> Folder | Service:
    """Open an endpoint: a service if it is a URL, otherwise a folder."""
    from steelyard.federated import Folder, Service

    if endpoint.startswith(("http://", "https://")):
        service = Service(endpoint, key=key)
        click.get_current_context().call_on_close(service.close)
        return service
    if "://" in endpoint:
        raise ParameterError(f"expected a folder or a URL with http:// or https://; got {endpoint!r}.")
    return Folder(Path(endpoint))


def open_folder(endpoint: str) -> Folder:
    """Open a folder. A URL is an error, because secure aggregation does not work over HTTP."""
    from steelyard.federated import Folder

    found = open_endpoint(endpoint, None)
    if not isinstance(found, Folder):
        raise ParameterError(f"secure aggregation needs a shared folder; got {endpoint!r}.")
    return found


@click.group("site")
def site_command() -> None:
    """Publish statistics of rows that stay local."""


@site_command.command(
    "publish", cls=opt.renamed({"--least-rows": "--min-rows", "--least-change": "--min-change"})
)
@click.argument("data")
@_name_option
@_to_option
@opt.target("Label column; with --round, the round defines it.")
@opt.count("--min-rows", "Do not publish classes with fewer rows.", default=20)
@opt.count("--min-change", "Do not publish changes of a class by fewer rows.", minimum=0, default=10)
@round_option("Publish masked statistics in this secure-aggregation round.")
@opt.option(
    "--receipt", "FILE", "Receipt of the round, needed to leave it.  [default: SITE.receipt]", type=ANY_FILE
)
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    help="Seconds to wait for the keys of the other sites.",
)
@opt.flag("--confirm", "Ask whether all sites show the same fingerprint.")
@key_option
@json_option
def publish_command(
    *,
    data: str,
    name: str,
    endpoint: str,
    target: str | None,
    min_rows: int,
    min_change: int,
    round_name: str | None,
    receipt: Path | None,
    wait: float,
    confirm: bool,
    key: str | None,
    as_json: bool,
) -> None:
    """Publish the statistics of all rows of DATA, replacing those published before.

    The rows stay local. Statistics of few rows could reveal these rows, and so could the difference between
    two versions. Therefore classes with few rows and small changes are not published. In a secure-aggregation
    round (hub open) nobody sees the statistics of a single site: the hub learns only the sum over all sites.
    """
    from steelyard.federated import ReleasePolicy, Site

    policy = ReleasePolicy(min_rows, min_change)
    if round_name is not None:
        path = Path(f"{name}.receipt") if receipt is None else receipt
        facts = _publish_masked(
            data, name, endpoint, policy, round_name=round_name, receipt=path, wait=wait, confirm=confirm
        )
        emit_facts(facts, as_json=as_json)
        return
    if target is None:
        raise click.UsageError("Missing option '--target'.")
    exchange, site = open_endpoint(endpoint, key), Site(name, target, policy=policy)
    n_rows = site.learn(data)
    before = exchange.find(name)
    if before is not None:
        site.resume(before)
    update = site.publish()
    exchange.put(update)
    facts = {"site": name, "version": update.version, "rows": n_rows, "bytes": len(update.to_bytes())}
    emit_facts({**facts, "held_back": dict(update.held_back)}, as_json=as_json)


def _publish_masked(
    data: str,
    name: str,
    endpoint: str,
    policy: ReleasePolicy,
    *,
    round_name: str,
    receipt: Path,
    wait: float,
    confirm: bool,
) -> dict[str, Any]:
    from steelyard.federated import Masker, Round
    from steelyard.federated.masks import round_of

    folder = open_folder(endpoint)
    current = Round(folder, round_name)
    site = current.config.site(name, policy)
    n_rows = site.learn(data)
    if receipt.exists():  # the policy also limits the change since the previous round
        previous = read_file(receipt)
        site.resume(Round(folder, round_of(previous)).part(previous))
    update = site.publish()
    masker = Masker(name)

    def show(keys: RoundKeys) -> None:
        print_message(f"fingerprint {keys.fingerprint}")
        if confirm:
            click.confirm("Do all sites show this fingerprint?", abort=True, err=True)

    _, message = current.send(masker, update, wait=wait, confirm=show)
    _write_private(receipt, masker.receipt(round_name))
    return {
        "site": name,
        "round": round_name,
        "rows": n_rows,
        "bytes": len(message),
        "held_back": dict(update.held_back),
        "receipt": str(receipt),
    }


@site_command.command("leave")
@_name_option
@_to_option
@opt.option("--receipt", "FILE", "Receipt of the secure-aggregation round.", type=ANY_FILE)
@key_option
def leave_command(*, name: str, endpoint: str, receipt: Path | None, key: str | None) -> None:
    """Withdraw the statistics of a site; the next pooled model does not contain its rows.

    Published statistics are deleted. With a receipt, masked statistics are subtracted from the sum of their
    round; this reveals them to the hub.
    """
    if receipt is None:
        open_endpoint(endpoint, key).drop(name)
        print_message(f"removed {name}")
        return
    from steelyard.federated import Round
    from steelyard.federated.masks import round_of

    data = read_file(receipt)
    current = Round(open_folder(endpoint), round_of(data))
    current.leave(name, data)
    print_message(f"removed {name} from round {current.name}")


def _write_private(path: Path, data: bytes) -> None:
    """Write a private file with the unmasked statistics of the site, which only its owner can read."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FileAccessError(
            f"cannot be written: {error.strerror or error}.",
            source=str(path),
            hint="the message was sent; without a receipt this site can leave only by a new round",
        ) from error


_COLUMNS = ("site", "rows", "squared_error", "local_squared_error", "auc", "local_auc", "held_back")


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
    from steelyard.federated import Hub, Round, collect

    hub = Hub()
    if round_name is None:
        collect(open_endpoint(endpoint, key), hub)
    else:
        hub.receive(Round(open_folder(endpoint), round_name).sum(wait).site_update())
    save_model(hub.model(), out)
    print_message(f"{hub.explain()}\ndigest {hub.digest()}; wrote {out}")


@hub_command.command("compare")
@click.argument("endpoint", metavar=ENDPOINT)
@key_option
@json_option
def compare_command(*, endpoint: str, key: str | None, as_json: bool) -> None:
    """Compare the pooled model with the local model of each site, using only statistics.

    The columns error and auc measure the pooled model on the rows of a site; local error and local auc
    measure the site's own model on the same rows.
    """
    from steelyard.federated import Hub, Service, collect

    exchange, hub = open_endpoint(endpoint, key), Hub()
    if isinstance(exchange, Service):
        rows = exchange.table()["sites"]
    else:
        collect(exchange, hub)
        rows = [asdict(summary) for summary in hub.compare()]
    if as_json:
        emit_json(rows)
        return
    headings = {name.replace("squared_", "").replace("_", " "): name for name in _COLUMNS}
    emit_table(list(headings), [{head: row[name] for head, name in headings.items()} for row in rows])


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
@opt.option("--site sites", "SITE", "Name of a site.", multiple=True, required=True)
@opt.target(required=True)
@opt.option(
    "--label labels", "LABEL", "Class label; repeat the option for each class.", multiple=True, required=True
)
@opt.option("--number numbers", "COL", "Numeric column; may be repeated.", multiple=True)
@opt.option(
    "--category categories", "COL=A,B", "Categorical column with its values; may be repeated.", multiple=True
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
@opt.option("--store", "FILE.db", "Store of the service.", default="hub.db")
@opt.option("--model model", "NAME", "Name of the pooled model.", default="pooled")
@opt.target("Label column; needed once, to create the model.")
@opt.address
@opt.option("--keys keys_file", "FILE", "Keys of the sites, from `serve keys add`.", type=ANY_FILE)
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
