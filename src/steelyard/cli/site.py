"""``steelyard site``: what a place that keeps its rows publishes, and how it leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.endpoints import PLACE, key_option, open_folder, open_place
from steelyard.cli.files import ANY_FILE
from steelyard.cli.options import count_option
from steelyard.cli.output import emit_json, emit_pairs, json_option, tell
from steelyard.exceptions import FileAccessError

if TYPE_CHECKING:
    from steelyard.federated import ReleasePolicy, RoundKeys

__all__ = ["site_command"]

_TO = click.option("--to", "place", required=True, metavar=PLACE, help="Where sites and hub meet.")
_NAME = click.option("--name", required=True, metavar="SITE", help="What the hub calls this place.")


@click.group("site")
def site_command() -> None:
    """What a place that keeps its rows publishes."""


@site_command.command("publish")
@click.argument("data")
@_NAME
@_TO
@click.option("--target", metavar="COL", help="Column of the labels; a round has agreed on it.")
@count_option("--least-rows", "A class below is held back.", default=20)
@count_option(
    "--least-change", "A class that changed by fewer rows is not published anew.", least=0, default=10
)
@click.option("--round", "round_name", metavar="ROUND", help="Publish masked, in this round of a secure sum.")
@click.option(
    "--receipt", type=ANY_FILE, metavar="FILE", help="What leaving needs later  [default: SITE.receipt]"
)
@click.option(
    "--wait", type=click.FloatRange(0), default=600.0, show_default=True, help="Seconds for the others' keys."
)
@click.option("--confirm", is_flag=True, help="Ask whether all sites show the same fingerprint.")
@key_option
@json_option
def publish_command(
    *,
    data: str,
    name: str,
    place: str,
    target: str | None,
    least_rows: int,
    least_change: int,
    round_name: str | None,
    receipt: Path | None,
    wait: float,
    confirm: bool,
    key: str | None,
    as_json: bool,
) -> None:
    """Publish what may be known of all rows that DATA has now; it replaces what was published before.

    The rows stay here. Statistics of a class with few rows would reveal them, and the difference of two
    bulletins is what came between: both are held back. In a round of a secure sum (hub open) not even the
    statistics are seen by anyone: the hub learns the sum over all sites.
    """
    from steelyard.federated import ReleasePolicy

    policy = ReleasePolicy(least_rows, least_change)
    if round_name is None:
        if target is None:
            raise click.UsageError("Missing option '--target'.")
        facts = _published(data, name, place, policy, target=target, key=key)
    else:
        file = Path(f"{name}.receipt") if receipt is None else receipt
        facts = _masked(
            data, name, place, policy, round_name=round_name, receipt=file, wait=wait, confirm=confirm
        )
    emit_json(facts) if as_json else emit_pairs(facts)


def _published(
    data: str, name: str, place: str, policy: ReleasePolicy, *, target: str, key: str | None
) -> dict[str, Any]:
    from steelyard.federated import Site

    shared = open_place(place, key)
    site = Site(name, target, policy=policy)
    n_rows = site.learn(data)
    before = shared.find(name)
    if before is not None:
        site.resume(before)
    site_update = site.publish()
    shared.put(site_update)
    return {
        "site": name,
        "version": site_update.version,
        "rows": n_rows,
        "bytes": len(site_update.to_bytes()),
        "held_back": dict(site_update.held_back),
    }


def _masked(
    data: str,
    name: str,
    place: str,
    policy: ReleasePolicy,
    *,
    round_name: str,
    receipt: Path,
    wait: float,
    confirm: bool,
) -> dict[str, Any]:
    from steelyard.federated import Masker, Round
    from steelyard.federated.masks import round_of

    folder = open_folder(place)
    this = Round(folder, round_name)
    site = this.config.site(name, policy)
    n_rows = site.learn(data)
    if receipt.exists():  # of the round before: what changed since is a matter of the policy too
        before = _read(receipt)
        site.resume(Round(folder, round_of(before)).part(before))
    site_update = site.publish()
    masker = Masker(name)

    def show(agreement: RoundKeys) -> None:
        tell(f"fingerprint {agreement.fingerprint}")
        if confirm:
            click.confirm("Do all sites show this one?", abort=True, err=True)

    _, message = this.send(masker, site_update, wait=wait, confirm=show)
    _write_private(receipt, masker.receipt(round_name))
    return {
        "site": name,
        "round": round_name,
        "rows": n_rows,
        "bytes": len(message),
        "held_back": dict(site_update.held_back),
        "receipt": str(receipt),
    }


@site_command.command("leave")
@_NAME
@_TO
@click.option("--receipt", type=ANY_FILE, metavar="FILE", help="Of the round of a secure sum that is left.")
@key_option
def leave_command(*, name: str, place: str, receipt: Path | None, key: str | None) -> None:
    """Leave: the next model is as if this place had never been there.

    A bulletin is deleted. A masked part is taken out of its sum by the receipt, which shows it to the hub.
    """
    if receipt is None:
        open_place(place, key).drop(name)
        tell(f"{name} is out")
        return
    from steelyard.federated import Round
    from steelyard.federated.masks import round_of

    data = _read(receipt)
    this = Round(open_folder(place), round_of(data))
    this.leave(name, data)
    tell(f"{name} is out of round {this.name}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=str(path)) from error


def _write_private(path: Path, data: bytes) -> None:
    """A file that nobody else may read: it holds this place's statistics unmasked."""
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
            hint="the message was sent; without a receipt this place can leave by a new round alone",
        ) from error
