"""Exchange over HTTP: a pooled model of the steelyard service acts as the hub."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from steelyard._http_client import RETRY_STATUSES, HttpClient, attempts, auth_headers, json_object
from steelyard.exceptions import DataError, FileAccessError, ParameterError
from steelyard.federated.exchange import Age, Exchange
from steelyard.federated.site_update import SiteUpdate
from steelyard.persistence import from_bytes
from steelyard.tables import TableModel

if TYPE_CHECKING:
    import httpx

_STALE = "stale"  # reason given in the response to an outdated update


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
        response = self._send("PUT", self._site(site_update.site), site_update.to_bytes())
        body = json_object(response)
        if response.status_code == 409 and body.get("reason") == _STALE:
            return False
        self._check(response)
        return bool(body["news"])

    def sites(self) -> list[str]:
        return [summary["site"] for summary in self.table()["sites"]]

    def find(self, site: str) -> SiteUpdate | None:
        response = self._send("GET", self._site(site))
        if response.status_code == 404 and json_object(response).get("reason") == "no site":
            return None
        self._check(response)
        return SiteUpdate.from_bytes(response.content)

    def gone(self) -> Mapping[str, Age]:
        return {site: (epoch, version) for site, (epoch, version) in self.table()["gone"].items()}

    def drop(self, site: str) -> None:
        """Remove a site. The pooled model then equals one fitted without the site."""
        # With an idempotency key, a repeated request returns the first response.
        self._check(self._send("DELETE", self._site(site), headers={"Idempotency-Key": uuid.uuid4().hex}))

    # -- reading the pooled model -------------------------------------------------------------------

    def table(self) -> dict[str, Any]:
        """Return site summaries, the digest of the pooled statistics, and the dropped sites."""
        response = self._send("GET", "/sites")
        self._check(response)
        table: dict[str, Any] = response.json()
        return table

    def model(self) -> TableModel:
        """Return the pooled model."""
        response = self._send("GET", "/pooled")
        self._check(response)
        model = from_bytes(response.content)
        if not isinstance(model, TableModel):
            raise DataError("the response of the service is not a pooled model.", source=self.url)
        return model

    # -- HTTP requests -----------------------------------------------------------------------------------

    @staticmethod
    def _site(site: str) -> str:
        return f"/sites/{quote(site, safe='')}"

    def _send(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        problem = ""
        for _ in attempts():
            try:
                response = self._http.request(method, self.url + path, content=content, headers=headers)
            except self._lost as error:
                problem = f"no response: {type(error).__name__}, {error}"
            else:
                if response.status_code not in RETRY_STATUSES:
                    return response
                default = f"the service returned status {response.status_code}"
                problem = str(json_object(response).get("detail", default)).rstrip(".")
        raise FileAccessError(f"{problem}.", source=self.url, hint="the request can be repeated safely")

    def _check(self, response: httpx.Response) -> None:
        if response.status_code >= 400:
            body = json_object(response)
            message = str(body.get("detail", f"the service returned status {response.status_code}."))
            raise DataError(message, source=self.url, hint=body.get("hint"))

    def __repr__(self) -> str:
        return f"Service({self.url!r})"  # the API key is not shown
