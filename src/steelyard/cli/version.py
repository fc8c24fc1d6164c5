"""``steelyard version``: versions of this package and its dependencies."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import click

from steelyard.cli.output import emit_json, json_option

_PACKAGES = ("steelyard", "numpy", "scipy", "scikit-learn", "pyarrow", "pandas", "polars", "river")


@click.command("version")
@json_option
def version_command(as_json: bool) -> None:
    """Print the versions of steelyard and its dependencies."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    if as_json:
        emit_json(versions)
        return
    click.echo(f"steelyard {versions.pop('steelyard')}")
    for package, number in versions.items():
        click.echo(f"{package} {number or 'not installed'}")
