"""Transports between sites and hub: in memory, through a shared folder, and through a service."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

from steelyard._http_client import RETRY_STATUSES, HttpClient, attempts, auth_headers, json_object
from steelyard.exceptions import DataError, FileAccessError, FileFormatError, ParameterError
from steelyard.federated.hub import Hub
from steelyard.federated.site_update import SiteUpdate
from steelyard.persistence import from_bytes
from steelyard.persistence.files import write_atomically
from steelyard.tables import TableModel

if TYPE_CHECKING:
    import httpx

Age = tuple[int, int]  # epoch and version of a site update

_NAME = re.compile(r"(?P<site>.+)\.(?P<epoch>\d{20})\.(?P<version>\d{12})\.(?P<kind>bulletin|gone)")
_MAX_READ_ATTEMPTS = 100  # maximum number of attempts to read an update while newer ones replace it
_MAX_SITE_NAME_CHARS = 200  # limit of the length of the quoted site name in a file name


class Exchange(Protocol):
    """Protocol of a transport between sites and hub.

    An exchange stores the latest update of every site. Writes are atomic. An update older than the stored one
    is ignored. Dropping a site leaves a tombstone with the age (epoch and version) of its last update; only a
    newer update restores the site.
    """

    def put(self, site_update: SiteUpdate) -> bool:
        """Store a site update durably; return False if it is not newer than the last known update."""

    def sites(self) -> list[str]:
        """Return the sorted names of the sites that have published and were not dropped."""

    def find(self, site: str) -> SiteUpdate | None:
        """Return the newest update of a site, or None if there is none."""

    def gone(self) -> Mapping[str, Age]:
        """Return the dropped sites and the age of the last update of each."""

    def drop(self, site: str) -> None:
        """Delete the updates of a site and leave a tombstone; raise DataError if the site is unknown."""


def collect(exchange: Exchange, hub: Hub) -> int:
    """Apply all updates of an exchange to a hub; return the number of changed or dropped sites.

    Damaged or incompatible updates do not block the others: the first error is raised after all other updates
    have been applied.
    """
    n_changed, first_error = 0, None
    for site, age in exchange.gone().items():
        n_changed += site in hub.sites and hub.site_update(site).age <= age
        hub.ignore(site, age)
    for site in exchange.sites():
        try:
            site_update = exchange.find(site)
            n_changed += site_update is not None and hub.receive(site_update)
        except (DataError, FileFormatError) as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return n_changed


class Memory(Exchange):
    """Exchange in the memory of one process, for experiments and tests."""

    def __init__(self) -> None:
        self._site_updates: dict[str, bytes] = {}
        self._ages: dict[str, Age] = {}  # last update of every site, also of dropped sites

    def put(self, site_update: SiteUpdate) -> bool:
        site, age = site_update.site, site_update.age
        if site in self._ages and age <= self._ages[site]:
            return False
        self._site_updates[site], self._ages[site] = site_update.to_bytes(), age
        return True

    def sites(self) -> list[str]:
        return sorted(self._site_updates)

    def find(self, site: str) -> SiteUpdate | None:
        return SiteUpdate.from_bytes(self._site_updates[site]) if site in self._site_updates else None

    def gone(self) -> Mapping[str, Age]:
        return {site: age for site, age in self._ages.items() if site not in self._site_updates}

    def drop(self, site: str) -> None:
        if site not in self._site_updates:
            raise DataError(f"there is no update of site {site!r}.", source="Memory")
        del self._site_updates[site]


class Folder(Exchange):
    """Exchange through a shared folder or a mounted object store.

    Each update is one file. It is written under a temporary name and renamed, so readers never see a partial
    file. Files are never modified; a newer update deletes the older files of its site. A dropped site leaves
    an empty tombstone file whose name contains the age of the last update.

    Parameters
    ----------
    path : path
        The folder. The first write creates it if it does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def put(self, site_update: SiteUpdate) -> bool:
        known = self._entries(site_update.site)
        if known and site_update.age <= max(known).age:
            return False
        self.write(self._name(site_update.site, site_update.age, "bulletin"), site_update.to_bytes())
        for entry in known:  # the difference of two stored updates would reveal the rows learned between them
            self._remove(entry.path)
        return True

    def sites(self) -> list[str]:
        return sorted({entry.site for entry in self._entries()} - set(self.gone()))

    def find(self, site: str) -> SiteUpdate | None:
        """Return the newest update of a site, or None; raise FileFormatError for a damaged file."""
        for _ in range(_MAX_READ_ATTEMPTS):
            entry = max(self._entries(site), default=None)
            if entry is None or entry.is_tombstone:
                return None
            data = self.read(entry.path.name)
            if data is not None:  # otherwise a newer update has just replaced this file
                return _stored_update(data, entry)
        raise FileAccessError(
            f"the updates of site {site!r} change faster than they can be read.", source=str(self.path)
        )

    def gone(self) -> Mapping[str, Age]:
        newest: dict[str, _Entry] = {}
        for entry in self._entries():
            newest[entry.site] = max(entry, newest.get(entry.site, entry))
        return {site: entry.age for site, entry in newest.items() if entry.is_tombstone}

    def drop(self, site: str) -> None:
        entries = self._entries(site)
        if not entries or max(entries).is_tombstone:
            raise DataError(f"there is no update of site {site!r}.", source=str(self.path))
        self.write(self._name(site, max(entries).age, "gone"), b"")
        for entry in entries:
            self._remove(entry.path)

    def collect(self, hub: Hub) -> int:
        """Apply the updates in the folder to a hub; return the number of changed or dropped sites."""
        return collect(self, hub)

    # -- files in the folder ------------------------------------------------------------------------

    def write(self, name: str, data: bytes) -> Path:
        """Write a file atomically and durably under a name that is not in use."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileAccessError.from_os_error("created", error, self.path) from error
        target = self.path / name
        write_atomically(target, [data], source=str(self.path))
        return target

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file, or None if there is no file of this name."""
        path = self.path / name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileAccessError.from_os_error("read", error, path) from error

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FileAccessError.from_os_error("removed", error, path) from error

    @staticmethod
    def _name(site: str, age: Age, kind: str) -> str:
        quoted = quote(site, safe="")
        if len(quoted) > _MAX_SITE_NAME_CHARS or age[0] >= 10**20 or age[1] >= 10**12:
            raise DataError(f"the name of site {site[:40]!r} with age {age} is too long for a file name.")
        return f"{quoted}.{age[0]:020d}.{age[1]:012d}.{kind}"

    def _entries(self, site: str | None = None) -> list[_Entry]:
        """Return the files of one site, or of all sites, parsed from the file names."""
        try:
            names = [path.name for path in self.path.iterdir()]
        except FileNotFoundError:  # no site has published yet
            return []
        except OSError as error:
            raise FileAccessError.from_os_error("read", error, self.path) from error
        entries = []
        for parts in filter(None, map(_NAME.fullmatch, names)):
            age = int(parts["epoch"]), int(parts["version"])
            entries.append(_Entry(age, parts["kind"] == "gone", self.path / parts[0], unquote(parts["site"])))
        return [entry for entry in entries if site is None or entry.site == site]


class _Entry(NamedTuple):
    """File in the folder. Entries sort by age; a tombstone sorts after an update of the same age."""

    age: Age
    is_tombstone: bool
    path: Path
    site: str


def _stored_update(data: bytes, entry: _Entry) -> SiteUpdate:
    source = str(entry.path)
    try:
        site_update = SiteUpdate.from_bytes(data)
    except FileFormatError as error:
        raise error.with_source(source) from error
    if (site_update.site, site_update.age) != (entry.site, entry.age):
        raise FileFormatError("the file name does not match the site update in the file.", source=source)
    return site_update


class Service(HttpClient, Exchange):
    """Exchange with a pooled model of the service (``sites = true`` in its spec).

    Parameters
    ----------
    url : str
        URL of the model, such as ``"https://hub.example:8471/v1/models/heart"``.
    key : str, optional
        API key. The scope ``site`` allows publishing under the name of the key; ``admin`` allows all
        requests.
    timeout : float, default=30.0
        Seconds to wait for a response.
    transport : httpx.BaseTransport, optional
        Transport of the HTTP client, for tests and special networks.

    Notes
    -----
    All requests are idempotent. A request that fails is repeated; it is sent at most four times.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ParameterError(
                "access to a service needs the package httpx.",
                source="Service",
                hint='pip install "steelyard[sites]"',
            ) from error
        try:
            is_valid = httpx.URL(url).scheme in {"http", "https"}
        except httpx.InvalidURL:
            is_valid = False
        if not is_valid:
            raise ParameterError(f"the URL of a model must begin with http:// or https://; got {url!r}.")
        self.url = url.rstrip("/")
        headers = auth_headers(key)
        self._http = httpx.Client(headers=headers, timeout=timeout, transport=transport)
        self._lost = httpx.TransportError

    # -- implementation of the Exchange protocol ---------------------------------------------------------

    def put(self, site_update: SiteUpdate) -> bool:
        path, content = self._site(site_update.site), site_update.to_bytes()
        response = self._send("PUT", path, content, refusal="stale")
        return response is not None and bool(response.json()["news"])

    def sites(self) -> list[str]:
        return [summary["site"] for summary in self.table()["sites"]]

    def find(self, site: str) -> SiteUpdate | None:
        response = self._send("GET", self._site(site), refusal="no site")
        return None if response is None else SiteUpdate.from_bytes(response.content)

    def gone(self) -> Mapping[str, Age]:
        return {site: (epoch, version) for site, (epoch, version) in self.table()["gone"].items()}

    def drop(self, site: str) -> None:
        """Remove a site. The pooled model then equals one fitted without the site."""
        # With an idempotency key, a repeated request returns the first response.
        self._send("DELETE", self._site(site), headers={"Idempotency-Key": uuid.uuid4().hex})

    # -- reading the pooled model -------------------------------------------------------------------

    def table(self) -> dict[str, Any]:
        """Return site summaries, the digest of the pooled statistics, and the dropped sites."""
        return self._send("GET", "/sites").json()

    def model(self) -> TableModel:
        """Return the pooled model."""
        model = from_bytes(self._send("GET", "/pooled").content)
        if not isinstance(model, TableModel):
            raise DataError("the response of the service is not a pooled model.", source=self.url)
        return model

    # -- HTTP requests -----------------------------------------------------------------------------------

    @staticmethod
    def _site(site: str) -> str:
        return f"/sites/{quote(site, safe='')}"

    def _send(self, method: str, path: str, content: Any = None, *, refusal: str = "", **more: Any) -> Any:
        """Send a request, again if the service is not available, and return the response.

        Returns None if the service refuses the request and gives ``refusal`` as the reason. ``more`` are
        further arguments of the HTTP client.
        """
        message = ""
        for _ in attempts():
            try:
                response = self._http.request(method, self.url + path, content=content, **more)
            except self._lost as error:
                message = f"no response: {type(error).__name__}, {error}."
                continue
            if response.status_code < 400:
                return response
            body = json_object(response)
            if refusal and body.get("reason") == refusal:
                return None
            message = str(body.get("detail", f"the service returned status {response.status_code}."))
            if response.status_code not in RETRY_STATUSES:
                raise DataError(message, source=self.url, hint=body.get("hint"))
        raise FileAccessError(message, source=self.url, hint="the request can be repeated safely")

    def __repr__(self) -> str:
        return f"Service({self.url!r})"  # the API key is not shown
