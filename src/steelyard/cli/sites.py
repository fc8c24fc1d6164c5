"""``steelyard site`` and ``hub``: pooled model of several sites whose rows stay local."""

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
from steelyard.cli.files import ANY_FILE, read_file, save_model
from steelyard.cli.options import AddressOptions
from steelyard.cli.output import emit_facts, emit_json, emit_table, print_message
from steelyard.cli.runs import parse_labels
from steelyard.exceptions import FileAccessError, ParameterError, SteelyardError

if TYPE_CHECKING:
    from steelyard.federated import Folder, ReleasePolicy, RoundKeys, Service

ENDPOINT = "FOLDER|URL"
key_option: Any = opt.option(
    "Key of the service. The environment variable STEELYARD_KEY is safer than the option.",
    "KEY",
    envvar="STEELYARD_KEY",
)
_to_option: Any = opt.option(
    "Shared folder, or URL of the pooled model.", ENDPOINT, required=True, names="--to"
)
_name_option: Any = opt.option("Name of this site.", "SITE", required=True)


def round_option(text: str, *, required: bool = False) -> Any:
    """Declare the option for the name of a secure-aggregation round."""
    return opt.option(text, "ROUND", names="--round", required=required)


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


@opt.command(
    "publish",
    site_command,
    cls=opt.renamed({"--least-rows": "--min-rows", "--least-change": "--min-change"}),
)
def publish_command(
    data: str = opt.argument(),
    name: str = _name_option,
    endpoint: str = _to_option,
    target: str | None = opt.target("Label column; with --round, the round defines it."),
    min_rows: int = opt.count("Do not publish classes with fewer rows.", default=20),
    min_change: int = opt.count("Do not publish changes of a class by fewer rows.", minimum=0, default=10),
    round_name: str | None = round_option("Publish masked statistics in this secure-aggregation round."),
    receipt: Path | None = opt.option(
        "Receipt of the round, needed to leave it.  [default: SITE.receipt]", "FILE", type=ANY_FILE
    ),
    wait: float = opt.option(
        "Seconds to wait for the keys of the other sites.", "SECONDS", type=click.FloatRange(0), default=600.0
    ),
    confirm: bool = opt.flag("Ask whether all sites show the same fingerprint."),
    key: str | None = key_option,
    as_json: bool = opt.as_json,
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
    _write_receipt(receipt, masker.receipt(round_name))
    return {
        "site": name,
        "round": round_name,
        "rows": n_rows,
        "bytes": len(message),
        "held_back": dict(update.held_back),
        "receipt": str(receipt),
    }


@opt.command("leave", site_command)
def leave_command(
    name: str = _name_option,
    endpoint: str = _to_option,
    receipt: Path | None = opt.option("Receipt of the secure-aggregation round.", "FILE", type=ANY_FILE),
    key: str | None = key_option,
) -> None:
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


def _write_receipt(path: Path, data: bytes) -> None:
    """Write the receipt of a round; it is private, because it has the unmasked statistics of the site."""
    from steelyard.persistence.files import write_atomically

    try:
        write_atomically(path, [data], source="receipt", is_private=True)
    except FileAccessError as error:
        hint = "the message was sent; without a receipt this site can leave only by a new round"
        raise FileAccessError(error.message, source=error.source, hint=hint) from error


_COLUMNS = ("site", "rows", "squared_error", "local_squared_error", "auc", "local_auc", "held_back")


@click.group("hub")
def hub_command() -> None:
    """Build the pooled model of all sites."""


# -- commands that run once -------------------------------------------------------------------------


@opt.command("collect", hub_command)
def collect_command(
    endpoint: str = opt.argument(metavar=ENDPOINT),
    out: Path = opt.out("Output file for the pooled model.", required=True),
    round_name: str | None = round_option("Use the sum of this secure-aggregation round."),
    wait: float = opt.option(
        "Seconds to wait for the round.", "SECONDS", type=click.FloatRange(0), default=0.0
    ),
    key: str | None = key_option,
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


@opt.command("compare", hub_command)
def compare_command(
    endpoint: str = opt.argument(metavar=ENDPOINT), key: str | None = key_option, as_json: bool = opt.as_json
) -> None:
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


@opt.command("drop", hub_command)
def drop_command(
    endpoint: str = opt.argument(metavar=ENDPOINT), site: str = opt.argument(), key: str | None = key_option
) -> None:
    """Delete the statistics of SITE; the next pooled model does not contain its rows."""
    open_endpoint(endpoint, key).drop(site)
    print_message(f"removed {site}")


# -- secure aggregation -----------------------------------------------------------------------------


@opt.command("open", hub_command)
def open_command(
    folder: str = opt.argument(metavar="FOLDER"),
    round_name: str = round_option("Name of the round; it must be new.", required=True),
    sites: tuple[str, ...] = opt.option(
        "Name of a site.", "SITE", multiple=True, required=True, names="--site"
    ),
    target: str = opt.target(required=True),
    labels: tuple[str, ...] = opt.option(
        "Class label; repeat the option for each class.",
        "LABEL",
        multiple=True,
        required=True,
        names="--label",
    ),
    numbers: tuple[str, ...] = opt.option(
        "Numeric column; may be repeated.", "COL", multiple=True, names="--number"
    ),
    categories: tuple[str, ...] = opt.option(
        "Categorical column with its values; may be repeated.", "COL=A,B", multiple=True, names="--category"
    ),
    step: int = opt.option(
        "Quantization step, as an exponent: values are rounded to multiples of 2 to this power.",
        type=click.IntRange(-60, 60),
        default=-30,
    ),
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


@opt.command("serve", hub_command)
def serve_command(
    folder: str | None = opt.argument(required=False, metavar="[FOLDER]"),
    out: Path | None = opt.out("Output file for the pooled model of FOLDER."),
    every: float = opt.option(
        "Seconds between two checks of FOLDER.", "SECONDS", type=click.FloatRange(0.01), default=2.0
    ),
    store: str = opt.option("Store of the service.", "FILE.db", default="hub.db"),
    model: str = opt.option("Name of the pooled model.", "NAME", default="pooled"),
    target: str | None = opt.target("Label column; needed once, to create the model."),
    address: AddressOptions = opt.address,
    keys_file: Path | None = opt.option(
        "Keys of the sites, from `serve keys add`.", "FILE", type=ANY_FILE, names="--keys"
    ),
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
        specs = () if target is None else (path,)
        context = click.get_current_context()
        context.invoke(serve, specs=specs, store=store, keys_file=keys_file, **asdict(address))


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
