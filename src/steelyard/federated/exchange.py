"""Ways between sites and hub: what all of them promise, a folder that is shared, and one in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote

from steelyard.exceptions import DataError, FileAccessError, FileFormatError
from steelyard.federated.hub import Hub
from steelyard.federated.site_update import SiteUpdate
from steelyard.persistence.files import write_atomically

__all__ = ["Exchange", "Folder", "Memory", "collect"]

Age = tuple[int, int]

_NAME = re.compile(r"(?P<site>.+)\.(?P<epoch>\d{20})\.(?P<version>\d{12})\.(?P<kind>bulletin|gone)")
_LOOKS = 100  # at a site whose files change meanwhile
_LONGEST_NAME = 200  # bytes of a site's name in a file's name


class Exchange(Protocol):
    """What sites and hub ask of whatever lies between them.

    The latest bulletin of every site is there, whole; older ones that come late change nothing. A site that
    was dropped is gone, with the age of its last word: only a newer bulletin brings it back.
    """

    def put(self, site_update: SiteUpdate) -> bool:
        """Publish a bulletin; returns whether it was news. It is safe when this returns."""
        ...

    def sites(self) -> list[str]:
        """Names of the sites that have published and not left, sorted."""
        ...

    def find(self, site: str) -> SiteUpdate | None:
        """The newest bulletin of a site; None where there is none."""
        ...

    def gone(self) -> Mapping[str, Age]:
        """Sites that were dropped and have not come back, each with the age of its last word."""
        ...

    def drop(self, site: str) -> None:
        """Delete all that there is of a site; refused with a sentence where there is nothing."""
        ...


def collect(exchange: Exchange, hub: Hub) -> int:
    """Bring a hub up to date; returns how many sites have changed or left.

    A bulletin that is damaged or does not fit keeps no other one out: it is told when all others are in.
    """
    news, trouble = 0, None
    for site, age in exchange.gone().items():
        news += site in hub.sites and hub.site_update(site).age <= age
        hub.ignore(site, age)
    for site in exchange.sites():
        try:
            site_update = exchange.find(site)
            news += site_update is not None and hub.receive(site_update)
        except (DataError, FileFormatError) as error:
            trouble = trouble or error
    if trouble is not None:
        raise trouble
    return news


class Memory:
    """Bulletins within one process: for trials, and where site and hub live together."""

    def __init__(self) -> None:
        self._site_updates: dict[str, bytes] = {}
        self._gone: dict[str, Age] = {}

    def put(self, site_update: SiteUpdate) -> bool:
        """Publish a bulletin; returns whether it was news."""
        known = self.find(site_update.site)
        last = self._gone.get(site_update.site) if known is None else known.age
        if last is not None and site_update.age <= last:
            return False
        self._site_updates[site_update.site] = site_update.to_bytes()
        self._gone.pop(site_update.site, None)
        return True

    def sites(self) -> list[str]:
        """Names of the sites that have published and not left, sorted."""
        return sorted(self._site_updates)

    def find(self, site: str) -> SiteUpdate | None:
        """The newest bulletin of a site; None where there is none."""
        return SiteUpdate.from_bytes(self._site_updates[site]) if site in self._site_updates else None

    def gone(self) -> Mapping[str, Age]:
        """Sites that were dropped, each with the age of its last word."""
        return dict(self._gone)

    def drop(self, site: str) -> None:
        """Delete what there is of a site."""
        known = self.find(site)
        if known is None:
            raise DataError(f"there is no bulletin of {site!r}.", source="Memory")
        self._gone[site] = known.age
        del self._site_updates[site]


class Folder:
    """A shared folder, or an object store that is mounted as one.

    A bulletin is one file, written beside under another name and renamed: whoever looks sees it whole or not
    at all. Files are never changed; those of a site that a newer one has replaced are removed with the next.
    A site that was dropped leaves a mark with the age of its last word and nothing else.

    Parameters
    ----------
    path : path
        The folder; made when the first file is written, if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def put(self, site_update: SiteUpdate) -> bool:
        """Publish a bulletin; returns whether it was news."""
        known = self._marks(site_update.site)
        if known and site_update.age <= max(known).age:
            return False
        self.write(self._name(site_update.site, site_update.age, "bulletin"), site_update.to_bytes())
        for mark in known:  # two bulletins side by side would show what came between them
            self._remove(mark.path)
        return True

    def sites(self) -> list[str]:
        """Names of the sites that have published and not left, sorted."""
        return sorted({mark.site for mark in self._marks()} - set(self.gone()))

    def find(self, site: str) -> SiteUpdate | None:
        """The newest bulletin of a site, None where there is none; one that is damaged or lies is refused."""
        for _ in range(_LOOKS):
            marks = self._marks(site)
            if not marks or max(marks).is_gone:
                return None
            try:
                return _read(max(marks))
            except FileNotFoundError:
                continue  # a newer one has just replaced it
        raise FileAccessError(
            f"the bulletins of {site!r} change faster than they are read.", source=str(self.path)
        )

    def gone(self) -> Mapping[str, Age]:
        """Sites that were dropped, each with the age of its last word."""
        newest: dict[str, _Mark] = {}
        for mark in self._marks():
            newest[mark.site] = max(mark, newest.get(mark.site, mark))
        return {site: mark.age for site, mark in newest.items() if mark.is_gone}

    def drop(self, site: str) -> None:
        """Delete all bulletins of a site; a mark with the age of the last one keeps late copies out."""
        marks = self._marks(site)
        if not marks or max(marks).is_gone:
            raise DataError(f"there is no bulletin of {site!r}.", source=str(self.path))
        self.write(self._name(site, max(marks).age, "gone"), b"")
        for mark in marks:
            self._remove(mark.path)

    def collect(self, hub: Hub) -> int:
        """Bring a hub up to date; returns how many sites have changed or left."""
        return collect(self, hub)

    # -- files --------------------------------------------------------------------------------------

    def write(self, name: str, data: bytes) -> Path:
        """Write a file whole, under a name that nothing else has; on disk when this returns."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileAccessError(
                f"cannot be made: {error.strerror or error}.", source=str(self.path)
            ) from error
        target = self.path / name
        write_atomically(target, [data], source=str(self.path))
        return target

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FileAccessError(
                f"cannot be removed: {error.strerror or error}.", source=str(path)
            ) from error

    @staticmethod
    def _name(site: str, age: Age, kind: str) -> str:
        written = quote(site, safe="")
        if len(written) > _LONGEST_NAME or age[0] >= 10**20 or age[1] >= 10**12:
            raise DataError(f"a site {site[:40]!r} with the age {age} has no room in a file's name.")
        return f"{written}.{age[0]:020d}.{age[1]:012d}.{kind}"

    def _marks(self, site: str | None = None) -> list[_Mark]:
        """What the names of the files say, of all sites or of one."""
        try:
            names = [path.name for path in self.path.iterdir()]
        except FileNotFoundError:  # nobody has published yet
            return []
        except OSError as error:
            raise FileAccessError(
                f"cannot be read: {error.strerror or error}.", source=str(self.path)
            ) from error
        found = (_NAME.fullmatch(name) for name in names)
        marks = [
            _Mark((int(parts["epoch"]), int(parts["version"])), parts["kind"] == "gone", self.path / parts[0])
            for parts in found
            if parts is not None
        ]
        return [mark for mark in marks if site is None or mark.site == site]


class _Mark(NamedTuple):
    """A file by its name; marks of one site are in the order of their ages, a leaving after what it ends."""

    age: Age
    is_gone: bool
    path: Path

    @property
    def site(self) -> str:
        return unquote(self.path.name.rsplit(".", 3)[0])


def _read(mark: _Mark) -> SiteUpdate:
    source = str(mark.path)
    try:
        site_update = SiteUpdate.from_bytes(mark.path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=source) from error
    except FileFormatError as error:
        raise error.with_source(source) from error
    if (site_update.site, site_update.age) != (mark.site, mark.age):
        raise FileFormatError("the file's name and its bulletin do not agree.", source=source)
    return site_update
