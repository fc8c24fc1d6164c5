"""Where sites and hub meet, as a command names it: a shared folder, or the address of a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard.federated import Folder, Service

__all__ = ["PLACE", "key_option", "open_folder", "open_place"]

Command = TypeVar("Command", bound=Callable[..., Any])

PLACE = "FOLDER|URL"
key_option: Callable[[Command], Command] = click.option(
    "--key",
    envvar="STEELYARD_KEY",
    metavar="KEY",
    help="Key of a service; better in the environment variable STEELYARD_KEY.",
)


def open_place(place: str, key: str | None) -> Folder | Service:
    """A folder, or a service where the place has an address."""
    from steelyard.federated import Folder, Service

    if place.startswith(("http://", "https://")):
        service = Service(place, key=key)
        click.get_current_context().call_on_close(service.close)
        return service
    if "://" in place:
        raise ParameterError(f"a place is a folder or an address with http:// or https://; got {place!r}.")
    return Folder(Path(place))


def open_folder(place: str) -> Folder:
    """A folder; secure sums go through one."""
    found = open_place(place, None)
    from steelyard.federated import Folder

    if not isinstance(found, Folder):
        raise ParameterError(f"a secure sum goes through a shared folder; got {place!r}.")
    return found
