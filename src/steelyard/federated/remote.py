"""Bulletins to and from a service: the hub is a model there that is pooled from its sites."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from steelyard._http_client import RETRY_STATUSES, HttpClient, attempts, auth_headers, json_object
from steelyard.exceptions import DataError, FileAccessError, ParameterError
from steelyard.federated.exchange import Age
from steelyard.federated.site_update import SiteUpdate
from steelyard.persistence import from_bytes
from steelyard.tables import TableModel

if TYPE_CHECKING:
    import httpx

__all__ = ["Service"]

_STALE = "stale"  # how the service calls a bulletin that is older than what it has


class Service(HttpClient):
    """A model of a service that is pooled from sites (``sites = true`` in its spec).

    Parameters
    ----------
    url : str
        The model's address, such as ``"https://hub.example:8471/v1/models/heart"``.
    key : str, optional
        A key with the scope ``site`` for publishing under one's own name, ``admin`` for the rest.
    timeout : float, default=30.0
        Seconds to wait for an answer.
    transport : httpx.BaseTransport, optional
        What carries requests; for tests and for special networks.

    Notes
    -----
    Everything may be sent again: a bulletin that is there already changes nothing, and a site leaves once.
    Repeating stops after four attempts.
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
                "a service is reached with the package httpx.",
                source="Service",
                hint='pip install "steelyard[sites]"',
            ) from error
        try:
            right = httpx.URL(url).scheme in {"http", "https"}
        except httpx.InvalidURL:
            right = False
        if not right:
            raise ParameterError(f"the address of a model begins with http:// or https://; got {url!r}.")
        self.url = url.rstrip("/")
        headers = auth_headers(key)
        self._http = httpx.Client(headers=headers, timeout=timeout, transport=transport)
        self._lost = httpx.TransportError

    # -- what every exchange does -------------------------------------------------------------------

    def put(self, site_update: SiteUpdate) -> bool:
        """Publish a bulletin; returns whether it was news. It is on the service's disk when this returns."""
        response = self._send("PUT", self._site(site_update.site), site_update.to_bytes())
        said = json_object(response)
        if response.status_code == 409 and said.get("reason") == _STALE:
            return False
        self._check(response)
        return bool(said["news"])

    def sites(self) -> list[str]:
        """Names of the sites that have published and not left, sorted."""
        return [standing["site"] for standing in self.table()["sites"]]

    def find(self, site: str) -> SiteUpdate | None:
        """The newest bulletin of a site; None where there is none."""
        response = self._send("GET", self._site(site))
        if response.status_code == 404 and json_object(response).get("reason") == "no site":
            return None
        self._check(response)
        return SiteUpdate.from_bytes(response.content)

    def gone(self) -> Mapping[str, Age]:
        """Sites that were dropped, each with the age of its last word."""
        return {site: (epoch, version) for site, (epoch, version) in self.table()["gone"].items()}

    def drop(self, site: str) -> None:
        """Take a site out: the pooled model is as if it had never been there."""
        # Under one key a repeated request gets the first answer again.
        self._check(self._send("DELETE", self._site(site), headers={"Idempotency-Key": uuid.uuid4().hex}))

    # -- what the hub knows -------------------------------------------------------------------------

    def table(self) -> dict[str, Any]:
        """What each site brings and what the pooled model does for it, the total's digest, who has left."""
        response = self._send("GET", "/sites")
        self._check(response)
        table: dict[str, Any] = response.json()
        return table

    def model(self) -> TableModel:
        """The pooled model, as the hub publishes it back."""
        response = self._send("GET", "/pooled")
        self._check(response)
        model = from_bytes(response.content)
        if not isinstance(model, TableModel):
            raise DataError("the service sent something else than a pooled model.", source=self.url)
        return model

    # -- sending ------------------------------------------------------------------------------------

    @staticmethod
    def _site(site: str) -> str:
        return f"/sites/{quote(site, safe='')}"

    def _send(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        trouble = ""
        for _ in attempts():
            try:
                response = self._http.request(method, self.url + path, content=content, headers=headers)
            except self._lost as error:
                trouble = f"no answer came: {type(error).__name__}, {error}"
            else:
                if response.status_code not in RETRY_STATUSES:
                    return response
                trouble = str(
                    json_object(response).get("detail", f"it answered {response.status_code}")
                ).rstrip(".")
        raise FileAccessError(f"{trouble}.", source=self.url, hint="sending it again later is safe")

    def _check(self, response: httpx.Response) -> None:
        if response.status_code >= 400:
            said = json_object(response)
            message = str(said.get("detail", f"it answered {response.status_code}."))
            raise DataError(message, source=self.url, hint=said.get("hint"))

    def __repr__(self) -> str:
        return f"Service({self.url!r})"  # the key stays a secret
