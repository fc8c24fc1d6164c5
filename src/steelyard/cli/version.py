"""``steelyard version``: this package and what it stands on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import click

from steelyard.cli.output import emit_json, json_option

__all__ = ["version_command"]

_PACKAGES = ("steelyard", "numpy", "scipy", "scikit-learn", "pyarrow", "pandas", "polars", "river")


@click.command("version")
@json_option
def version_command(as_json: bool) -> None:
    """Print the versions of this package and of what it uses."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    if as_json:
        emit_json(versions)
        return
    click.echo(f"steelyard {versions['steelyard']}")
    for package, number in versions.items():
        if package != "steelyard":
            click.echo(f"{package} {number or 'not installed'}")
