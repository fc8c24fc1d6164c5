"""``steelyard site``: publish the statistics of a site, and withdraw them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import ANY_FILE, read_file
from steelyard.cli.output import emit_facts, json_option, print_message
from steelyard.exceptions import FileAccessError, ParameterError

if TYPE_CHECKING:
    from steelyard.federated import Folder, ReleasePolicy, RoundKeys, Service

ENDPOINT = "FOLDER|URL"
key_option: Callable[[Any], Any] = click.option(
    "--key",
    envvar="STEELYARD_KEY",
    metavar="KEY",
    help="Key of the service. The environment variable STEELYARD_KEY is safer than the option.",
)
_to_option = click.option(
    "--to", "endpoint", required=True, metavar=ENDPOINT, help="Shared folder, or URL of the pooled model."
)
_name_option = click.option("--name", required=True, metavar="SITE", help="Name of this site.")


def round_option(text: str, *, required: bool = False) -> Callable[[Any], Any]:
    """Return the option for the name of a secure-aggregation round."""
    return click.option("--round", "round_name", metavar="ROUND", required=required, help=text)


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
@click.option(
    "--receipt",
    type=ANY_FILE,
    metavar="FILE",
    help="Receipt of the round, needed to leave it.  [default: SITE.receipt]",
)
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    help="Seconds to wait for the keys of the other sites.",
)
@click.option("--confirm", is_flag=True, help="Ask whether all sites show the same fingerprint.")
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
@click.option("--receipt", type=ANY_FILE, metavar="FILE", help="Receipt of the secure-aggregation round.")
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
