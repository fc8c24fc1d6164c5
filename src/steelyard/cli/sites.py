"""``steelyard site`` and ``steelyard hub``: several places that keep their rows, through a shared folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steelyard.cli.files import OUT_FILE, save_model
from steelyard.cli.output import emit_json, emit_table, json_option, tell

if TYPE_CHECKING:
    from steelyard.sites import Hub

__all__ = ["hub_command", "site_command"]

_FOLDER = click.Path(file_okay=False, path_type=Path)
_COLUMNS = ["site", "rows", "squared_error", "local_squared_error", "auc", "local_auc", "held_back"]


@click.group("site")
def site_command() -> None:
    """What a place that keeps its rows publishes."""


@site_command.command("publish")
@click.argument("data")
@click.option("--target", required=True, metavar="COL", help="Column of the labels.")
@click.option("--name", required=True, metavar="SITE", help="What the hub calls this place.")
@click.option("--to", "folder", type=_FOLDER, required=True, metavar="FOLDER", help="The shared folder.")
@click.option(
    "--least-rows", type=click.IntRange(1), default=20, show_default=True, help="A class below is held back."
)
@click.option(
    "--least-change",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="A class that changed by fewer rows is not published anew.",
)
@json_option
def publish_command(
    *, data: str, target: str, name: str, folder: Path, least_rows: int, least_change: int, as_json: bool
) -> None:
    """Publish what may be known of all rows that DATA has now; it replaces what was published before.

    The rows stay here. Statistics of a class with few rows would reveal them, and the difference of two
    bulletins is what came between: both are held back.
    """
    from steelyard.sites import Folder, ReleasePolicy, Site

    shared = Folder(folder)
    site = Site(name, target, policy=ReleasePolicy(least_rows, least_change))
    n_rows = site.learn(data)
    before = shared.find(name)
    if before is not None:
        site.resume(before)
    bulletin = site.publish()
    shared.put(bulletin)
    facts = {
        "site": name,
        "version": bulletin.version,
        "rows": n_rows,
        "bytes": len(bulletin.to_bytes()),
        "held_back": dict(bulletin.held_back),
    }
    emit_json(facts) if as_json else emit_table(list(facts), [facts])


@click.group("hub")
def hub_command() -> None:
    """The pooled model of all places."""


@hub_command.command("collect")
@click.argument("folder", type=_FOLDER)
@click.option("-o", "--out", type=OUT_FILE, required=True, metavar="FILE", help="The pooled model.")
def collect_command(*, folder: Path, out: Path) -> None:
    """Make the model of all rows behind the bulletins in FOLDER: exactly that of one place with all rows."""
    hub = _collected(folder)
    save_model(hub.model(), out)
    tell(hub.explain())
    tell(f"digest {hub.digest()}; written to {out}")


@hub_command.command("compare")
@click.argument("folder", type=_FOLDER)
@json_option
def compare_command(*, folder: Path, as_json: bool) -> None:
    """What each place brings, and what the pooled model does for it, from statistics alone."""
    rows = [asdict(standing) for standing in _collected(folder).compare()]
    emit_json(rows) if as_json else emit_table(_COLUMNS, rows)


@hub_command.command("drop")
@click.argument("folder", type=_FOLDER)
@click.argument("site")
def drop_command(*, folder: Path, site: str) -> None:
    """Take a place out: its bulletins are deleted, and the next model is as if it had never been there."""
    from steelyard.sites import Folder

    Folder(folder).drop(site)
    tell(f"{site} is out")


def _collected(folder: Path) -> Hub:
    from steelyard.sites import Folder, Hub

    hub = Hub()
    Folder(folder).collect(hub)
    return hub
