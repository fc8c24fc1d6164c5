"""Endpoints of federated learning: a shared folder, or the URL of a model in a service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard.federated import Folder, Service

ENDPOINT = "FOLDER|URL"
key_option: Callable[[Any], Any] = click.option(
    "--key",
    envvar="STEELYARD_KEY",
    metavar="KEY",
    help="Key of the service. The environment variable STEELYARD_KEY is safer than the option.",
)


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
