"""HTTP client of the service, with idempotent retries."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx

from steelyard._http_client import RETRY_STATUSES, HttpClient, attempts, auth_headers, json_object
from steelyard.exceptions import SteelyardError

Rows = Sequence[Mapping[str, Any]] | Any  # mappings, or a data frame with the Arrow interface
_ARROW = "application/vnd.apache.arrow.stream"


class RefusedError(SteelyardError, ValueError):
    """The service refused the request; nothing was changed."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        row: int | None = None,
        column: str | None = None,
        **more: str | None,
    ) -> None:
        super().__init__(message, **more)
        self.status, self.row, self.column = status, row, column


class UnreachableError(SteelyardError, ConnectionError):
    """The service cannot be reached, so the request was not sent."""


class UnansweredError(SteelyardError, TimeoutError):
    """The request was sent, but no response arrived. The request may or may not have taken effect.

    Sending the request again with the same ``key`` is safe.
    """

    def __init__(self, message: str, *, key: str | None = None, **more: str | None) -> None:
        super().__init__(message, **more)
        self.key = key


class Client(HttpClient):
    """Client of a service.

    Parameters
    ----------
    url : str
        Address of the service, such as ``"http://127.0.0.1:8471"``.
    key : str, optional
        API key; it must have the scopes of the requests to send.
    timeout : float, default=30.0
        Seconds to wait for a response.
    retry_seconds : float, default=30.0
        Seconds during which a request without a response, or with status 429 or 503, is sent again. A service
        that restarts, or a model that moves to another process, is back within this time.
    transport : httpx.BaseTransport, optional
        Custom transport, for example for tests or a proxy.

    Notes
    -----
    Every request that changes a model carries an idempotency key, so it can be repeated safely when a
    response is lost. Rows are mappings, or a data frame of pandas, polars or PyArrow.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        retry_seconds: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = auth_headers(key)
        self._retry_seconds = retry_seconds
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)

    # -- requests to the service --------------------------------------------------------------------

    def put(self, model: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Create a model or change its settings."""
        return self._send("PUT", f"/v1/models/{model}", dict(spec))

    def delete(self, model: str, *, key: str | None = None) -> dict[str, Any]:
        """Delete a model with all its rows, snapshots and certificates."""
        return self._send("DELETE", f"/v1/models/{model}", key=key)

    def rename(self, model: str, new_name: str, *, key: str | None = None) -> dict[str, Any]:
        """Rename a model."""
        return self._send("POST", f"/v1/models/{model}/rename", {"name": new_name}, key=key)

    def models(self) -> list[dict[str, Any]]:
        """Return all models."""
        return self._list("models", "GET", "/v1/models")

    def model(self, model: str) -> dict[str, Any]:
        """Return the version, the digest, the classes and the row counts of a model."""
        return self._send("GET", f"/v1/models/{model}")

    def learn(self, model: str, rows: Rows, *, key: str | None = None) -> dict[str, Any]:
        """Learn labelled rows: mappings or a data frame."""
        return self._send("POST", f"/v1/models/{model}/learn", _rows_body(rows), key=key)

    def predict(
        self,
        model: str,
        rows: Rows,
        *,
        remember: bool = False,
        as_of: int | str | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Return labels, scores and probabilities; with ``remember``, also row ids for delayed labels."""
        options: dict[str, Any] = {"remember": True} if remember else {}
        if as_of is not None:
            options["as_of"] = as_of
        path, body = f"/v1/models/{model}/predict", _rows_body(rows)
        if isinstance(body, dict):
            body.update(options)
        elif options:
            path += "?" + urlencode({name: str(value).lower() for name, value in options.items()})
        return self._send("POST", path, body, key=key, changes=remember)

    def explain(self, model: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Explain predictions: contributions, nearest remembered rows, and changes that alter the label."""
        return self._send("POST", f"/v1/models/{model}/explain", {"rows": list(rows)}, changes=False)

    def explanations(self, model: str) -> dict[str, Any]:
        """Return recent alarms of a model with their explanations, and the importance of its columns."""
        return self._send("GET", f"/v1/models/{model}/explanations")

    def label(
        self, model: str, labels: Mapping[str, Any], *, correct: bool = False, key: str | None = None
    ) -> dict[str, Any]:
        """Send delayed labels by row id. With ``correct``, labels of learned rows are replaced."""
        body: dict[str, Any] = {"labels": dict(labels)}
        if correct:
            body["correct"] = True
        return self._send("POST", f"/v1/models/{model}/labels", body, key=key)

    def forget(
        self,
        model: str,
        *,
        ids: Sequence[str] | None = None,
        subject: str | None = None,
        rows: Rows | None = None,
        before: str | None = None,
        batch: str | None = None,
        learned: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Forget rows selected by exactly one of the arguments. The response contains a certificate.

        ``batch`` is the ``key`` of an earlier request: the rows of that request are forgotten. ``learned`` is
        a range of arrival times such as ``{"since": "2026-11-16T10:00:00Z", "until":
        "2026-11-16T11:00:00Z"}``.
        """
        selection = {"ids": ids, "subject": subject, "before": before, "batch": batch, "learned": learned}
        body: Any = {name: value for name, value in selection.items() if value is not None}
        if rows is not None:
            rows_body = _rows_body(rows)
            body = {**body, **rows_body} if isinstance(rows_body, dict) else rows_body
        return self._send("POST", f"/v1/models/{model}/forget", body, key=key)

    def challenge(self, model: str, settings: Mapping[str, Any], *, replay: bool = True) -> dict[str, Any]:
        """Start a challenger: a model with changed settings that learns the same rows."""
        return self._send("PUT", f"/v1/models/{model}/challenger", {**settings, "replay": replay})

    def challenger(self, model: str) -> dict[str, Any]:
        """Return the quality of the model and of its challenger on the same rows."""
        return self._send("GET", f"/v1/models/{model}/challenger")

    def end_challenger(self, model: str, *, key: str | None = None) -> dict[str, Any]:
        """Remove the challenger."""
        return self._send("DELETE", f"/v1/models/{model}/challenger", key=key)

    def promote(self, model: str, *, key: str | None = None) -> dict[str, Any]:
        """Swap model and challenger. A second call swaps them back."""
        return self._send("POST", f"/v1/models/{model}/promote", key=key)

    def quarantine(self, model: str) -> list[dict[str, Any]]:
        """Return the rows in quarantine, each with its number and the reason."""
        return self._list("rows", "GET", f"/v1/models/{model}/quarantine")

    def release(
        self,
        model: str,
        *,
        learn: Sequence[int] | None = None,
        discard: Sequence[int] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Learn or discard rows in quarantine, given by number in exactly one of the arguments."""
        body = {name: list(n) for name, n in (("learn", learn), ("discard", discard)) if n is not None}
        return self._send("POST", f"/v1/models/{model}/quarantine", body, key=key)

    def audit(self, **selection: Any) -> list[dict[str, Any]]:
        """Return entries of the audit log, newest first.

        ``selection`` filters the entries, for example by model, verb, key, outcome or since.
        """
        return self._list("entries", "GET", str(httpx.URL("/v1/audit", params=selection)))

    def measures(self, model: str) -> dict[str, Any]:
        """Return the quality of predictions, current and over time."""
        return self._send("GET", f"/v1/models/{model}/measures")

    def certificates(self, model: str) -> list[dict[str, Any]]:
        """Return the certificates of forget requests."""
        return self._list("certificates", "GET", f"/v1/models/{model}/certificates")

    def file(self, model: str) -> bytes:
        """Return the learner in the file format that :func:`steelyard.load` reads."""
        return self._response("GET", f"/v1/models/{model}/file").content

    # -- HTTP transport -----------------------------------------------------------------------------

    def _send(self, method: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        return self._response(method, path, body, **more).json()

    def _list(self, name: str, method: str, path: str) -> list[dict[str, Any]]:
        return self._send(method, path)[name]

    def _response(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, changes: bool = True
    ) -> httpx.Response:
        headers = {}
        if method in {"POST", "DELETE"} and changes:
            key = key or uuid.uuid4().hex
            headers["Idempotency-Key"] = key
        failure: SteelyardError | None = None
        content: dict[str, Any] = {"json": body}
        if isinstance(body, bytes):
            content, headers["Content-Type"] = {"content": body}, _ARROW
        for _ in attempts(self._retry_seconds):
            try:
                response = self._http.request(method, path, headers=headers, **content)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = UnreachableError(
                    f"the service cannot be reached: {error}.", source=f"{method} {path}"
                )
            except httpx.TransportError as error:
                failure = UnansweredError(
                    f"no response came: {type(error).__name__}.", source=f"{method} {path}", key=key
                )
            else:
                if response.status_code < 400:
                    return response
                failure = _refusal(response)
                if response.status_code not in RETRY_STATUSES:
                    break
        assert failure is not None
        raise failure


def _rows_body(rows: Rows) -> dict[str, Any] | bytes:
    """Return rows as a JSON value, or a data frame as an Arrow stream."""
    is_pandas = type(rows).__module__.partition(".")[0] == "pandas"
    if not is_pandas and not hasattr(rows, "__arrow_c_stream__"):
        return {"rows": list(rows)}
    import pyarrow as pa

    table = pa.Table.from_pandas(rows, preserve_index=False) if is_pandas else pa.table(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _refusal(response: httpx.Response) -> RefusedError:
    problem = json_object(response)
    return RefusedError(
        str(problem.get("detail", f"the service responded with status {response.status_code}.")),
        hint=problem.get("hint"),
        status=response.status_code,
        row=problem.get("row"),
        column=problem.get("column"),
    )
