"""Bulletins through a folder that sites and hub share: written once, under names that sort by age."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from steelyard.exceptions import DataError, FileAccessError, FileFormatError
from steelyard.sites.bulletin import Bulletin
from steelyard.sites.hub import Hub

__all__ = ["Folder"]

_NAME = re.compile(r"(?P<site>.+)\.(?P<epoch>\d{20})\.(?P<version>\d{12})\.bulletin")


class Folder:
    """A shared folder, or an object store that is mounted as one.

    A bulletin is one file, written beside under another name and renamed: whoever looks sees it whole or not
    at all. Files are never changed; older ones of a site may be removed by anyone.

    Parameters
    ----------
    path : path
        The folder; made if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileAccessError(f"cannot be made: {error.strerror or error}.", who=str(path)) from error

    def put(self, bulletin: Bulletin) -> Path:
        """Publish a bulletin; returns its file."""
        name = f"{quote(bulletin.site, safe='')}.{bulletin.epoch:020d}.{bulletin.version:012d}.bulletin"
        target = self.path / name
        temporary = self.path / f".{secrets.token_hex(8)}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(bulletin.to_bytes())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise FileAccessError(
                f"cannot be written: {error.strerror or error}.", who=str(target)
            ) from error
        return target

    def latest(self) -> Iterator[Bulletin]:
        """The newest bulletin of every site; a file that is damaged or lies is refused with its name."""
        newest: dict[str, tuple[tuple[int, int], Path]] = {}
        for path in self.path.glob("*.bulletin"):
            parts = _NAME.fullmatch(path.name)
            if parts is None:
                continue
            age = int(parts["epoch"]), int(parts["version"])
            site = unquote(parts["site"])
            if site not in newest or age > newest[site][0]:
                newest[site] = age, path
        for site, (age, path) in sorted(newest.items()):
            yield self._read(path, site, age)

    @staticmethod
    def _read(path: Path, site: str, age: tuple[int, int]) -> Bulletin:
        try:
            bulletin = Bulletin.from_bytes(path.read_bytes())
        except OSError as error:
            raise FileAccessError(f"cannot be read: {error.strerror or error}.", who=str(path)) from error
        except FileFormatError as error:
            raise error.told_by(str(path)) from error
        if (bulletin.site, bulletin.age) != (site, age):
            raise FileFormatError("the file's name and its bulletin do not agree.", who=str(path))
        return bulletin

    def drop(self, site: str) -> int:
        """Delete all bulletins of a site; returns how many there were."""
        found = [
            path
            for path in self.path.glob("*.bulletin")
            if (parts := _NAME.fullmatch(path.name)) is not None and unquote(parts["site"]) == site
        ]
        if not found:
            raise DataError(f"there is no bulletin of {site!r}.", who=str(self.path))
        for path in found:
            path.unlink()
        return len(found)

    def collect(self, hub: Hub) -> int:
        """Give a hub what is new; returns how many bulletins were."""
        return sum(hub.receive(bulletin) for bulletin in self.latest())
