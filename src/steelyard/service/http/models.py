"""Handlers of requests about models: summaries, lifecycle, audit log, sites, explanations, inference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from steelyard.exceptions import FileFormatError
from steelyard.federated import Hub, SiteUpdate
from steelyard.persistence import to_bytes
from steelyard.service import commands
from steelyard.service.errors import NotFoundError, QueueFullError, Unavailable
from steelyard.service.http.responses import JSON, Problem, file_response
from steelyard.service.http.routes import ANY, BINARY, EVENTS, MODEL, MODELS, NOT_READY, route
from steelyard.service.http.service import seconds
from steelyard.service.published import PublishedModel
from steelyard.service.spec import Spec
from steelyard.service.stored_rows import unpack
from steelyard.tables.columns import ColumnBatch, as_texts

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

_MAX_POINTS, _MAX_CERTIFICATES = 2_000, 50  # maximum numbers of entries in a response
_MAX_SPEC_BYTES = 1 << 20
_MAX_ENTRIES = 1_000  # maximum number of audit entries or quarantined rows in a response
_SITE = f"{MODEL}/sites/{{site:path}}"
_MAX_NAME_CHARACTERS = 200
_MAX_UPDATE_BYTES = 16 << 20  # sufficient for about 1,000 columns with two classes
_MAX_EXPLAINED_ROWS = 1_000  # maximum number of rows in a request for explanations
_V2_MODEL = "/v2/models/{model}"
_NUMBER_TYPES = frozenset(
    {"BOOL", "FP16", "FP32", "FP64", *(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))}
)
_FILTERS = ("verb", "key", "address", "request_id", "outcome")
_NUMBER = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_TIME = {**_TEXT, "format": "date-time"}
_AUDIT_QUERY: dict[str, Any] = {
    **{name: _TEXT for name in ("model", *_FILTERS)},  # noqa: C420  the schemas are never changed
    "since": _TIME,
    "until": _TIME,
    "before": _NUMBER,
    "limit": _NUMBER,
}


# -- summaries --------------------------------------------------------------------------------------


@route("GET", MODELS, response="Models")
async def list_models(service: Service, request: Request) -> dict[str, Any]:
    """Return all models that the key has access to."""
    key = service.authorize(request, "predict")
    names = [name for name in sorted(service.writer.published) if key is None or key.allows("predict", name)]
    models = await run_in_threadpool(_summaries, service, names) + await service.forwarder.models(request)
    return {"models": sorted(models, key=lambda model: model["name"])}


def _summaries(service: Service, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the summaries of models, except those that have just moved to another process."""
    found = []
    for name in names:
        with suppress(NotFoundError, Unavailable):
            found.append(_summary(service, name))
    return found


def _summary(service: Service, name: str) -> dict[str, Any]:
    published = service.model(name)
    measures = published.measures
    recent = service.metrics.activity.points(name, time.time() - 3_600.0)["points"]
    return {
        "name": name,
        "version": published.version,
        **published.summary(),
        "waiting_for_labels": service.writer.store.n_pending(name),
        "spec": published.spec.as_dict(),
        # The web page sorts models by these values.
        "quality": {"g_mean": measures["g_mean"], "auc": measures["auc"]},
        "errors_per_hour": sum(point["errors"] for point in recent),
        "requests_per_hour": sum(point["learn"] + point["predict"] for point in recent),
        "has_challenger": published.challenger is not None,
    }


@route("GET", MODEL, "predict", response="Model")
def get_model(service: Service, _: Request, name: str) -> dict[str, Any]:
    """Return the version, digest, classes, row counts, experts and latency of a model."""
    published = service.model(name)
    return {
        **published.experts_and_drifts(),
        **_summary(service, name),
        "latency_ms": service.metrics.activity.latency(name),
        "realised_rates": published.realised_rates(),
        "topics": [consumer.describe() for consumer in service.consumers if consumer.model == name],
    }


@route("GET", f"{MODEL}/measures", "predict", response="Measures")
def measures(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Return the quality of predictions, current and over time."""
    published, since = service.model(name), request.query_params.get("since")
    moment = None if since is None else seconds(since)
    points = service.writer.store.points(name, moment, _MAX_POINTS)
    return {"now": published.measures, "points": points}


@route("GET", f"{MODEL}/activity", "predict", response="Activity", query={"since": _TIME})
async def activity(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Return requests, errors, latency and label delay over time, since this process started."""
    service.model(name)
    since = request.query_params.get("since")
    moment = time.time() - 3_600.0 if since is None else seconds(since)
    return service.metrics.activity.points(name, moment)


@route("GET", f"{MODEL}/columns", "predict", response="Columns")
def columns(service: Service, _: Request, name: str) -> dict[str, Any]:
    """Return missing values, drift and importance of each column, on recent rows."""
    return service.model(name).column_statistics()


@route(
    "GET",
    f"{MODEL}/versions",
    "predict",
    response="Versions",
    query={"compare": {"type": ["integer", "string"]}},
)
async def versions(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Return the versions with snapshots; with ``compare``, the agreement with one of these versions."""
    current, chosen = service.model(name), request.query_params.get("compare")
    found = await run_in_threadpool(service.writer.store.snapshots, name, _MAX_POINTS)
    answer: dict[str, Any] = {
        "versions": [{"version": v, "at": at, "digest": d, "bytes": size} for v, at, d, size in found]
    }
    if chosen is not None:
        past = await service.model_as_of(name, chosen)
        agreement = await run_in_threadpool(current.agreement, past)
        answer["compared"] = {"version": past.version, **agreement}
    return answer


@route("GET", f"{MODEL}/certificates", "predict", response="Certificates")
def certificates(service: Service, _: Request, name: str) -> dict[str, Any]:
    """Return the latest certificates of forget requests."""
    service.model(name)
    return {"certificates": service.writer.store.certificates(name, _MAX_CERTIFICATES)}


@route("GET", f"{MODEL}/file", "admin", response=BINARY)
def file(service: Service, _: Request, name: str) -> Response:
    """Return the learner in the file format of ``steelyard.save``."""
    return file_response(name, to_bytes(service.model(name).learner))


# -- lifecycle --------------------------------------------------------------------------------------


@route("PUT", MODEL, "admin", response="Made", body="Spec", statuses={201: "Created."})
async def put_model(service: Service, request: Request, name: str) -> Response:
    """Create a model or change its settings."""
    body, values = await service.read_json(request, _MAX_SPEC_BYTES)
    response = dict(await service.change(request, commands.Put(name, Spec.from_mapping(values)), body))
    is_new = response.pop("made")
    return JSON(response, 201 if is_new else 200)


@route("DELETE", MODEL, "admin", response="Deleted", is_idempotent=True)
async def delete(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Delete a model with its rows, snapshots, certificates and stored responses."""
    return await service.change(request, commands.Delete(name))


@route("POST", f"{MODEL}/rename", "admin", response="Renamed", body="Rename", is_idempotent=True)
async def rename(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Rename a model."""
    body, values = await service.read_json(request)
    new_name = values.get("name")
    if not isinstance(new_name, str):
        raise Problem(422, 'expected {"name": "new name"}.')
    service.authorize(request, "admin", new_name)
    return await service.change(request, commands.Rename(name, new_name), body)


@route("GET", f"{MODEL}/challenger", "predict", response="Comparison")
async def challenger(service: Service, _: Request, name: str) -> dict[str, Any]:
    """Return settings and quality of the challenger, and the quality of the model on the same rows."""
    published = service.model(name)
    comparison = published.comparison()
    if comparison is None:
        ended = published.challenger_ended
        reason = "" if ended is None else f"; the last challenger ended because of an error ({ended})"
        raise Problem(404, f"the model {name!r} has no challenger{reason}.")
    return comparison


@route("PUT", f"{MODEL}/challenger", "admin", response="Version", body="Challenger", is_idempotent=True)
async def start_challenger(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Start a challenger: a second model that learns the same rows in shadow mode."""
    body, values = await service.read_json(request)
    replay = values.pop("replay", True)
    if not isinstance(replay, bool):
        raise Problem(422, f"replay must be true or false; got {str(replay)[:40]!r}.")
    spec = Spec.from_mapping({**service.model(name).spec.as_dict(), **values})
    return await service.change(request, commands.Challenge(name, spec, replay), body)


@route("DELETE", f"{MODEL}/challenger", "admin", response="Version", is_idempotent=True)
async def end_challenger(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Remove the challenger."""
    return await service.change(request, commands.Challenge(name, None))


@route("POST", f"{MODEL}/promote", "admin", response="Promoted", is_idempotent=True)
async def promote(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Swap model and challenger. A second call swaps them back."""
    return await service.change(request, commands.Promote(name))


# -- quarantine and audit log ------------------------------------------------------------------------


@route("GET", f"{MODEL}/quarantine", "admin", response="Quarantine", query={"after": _NUMBER})
def quarantine(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Return the rows in quarantine with the reason for each, oldest first."""
    service.model(name)
    after = _integer(request, "after", 0)
    rows = []
    for row in service.writer.store.quarantined(name, after, _MAX_ENTRIES):
        columns = unpack(row.body)[0].columns.items()
        values = {n: as_texts(c)[0] if c.dtype == object else float(c[0]) for n, c in columns}
        rows.append({"number": row.number, "at": row.at, "reason": row.reason, "row": values})
    return {"rows": rows}


@route("POST", f"{MODEL}/quarantine", "admin", response="Released", body="Release", is_idempotent=True)
async def release(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Learn or discard rows in quarantine."""
    body, values = await service.read_json(request)
    way = next(iter(values), None)
    numbers = values.get(way) if way in {"learn", "discard"} and len(values) == 1 else None
    if not isinstance(numbers, list) or not numbers or not all(type(n) is int for n in numbers):
        raise Problem(422, 'expected {"learn": [numbers]} or {"discard": [numbers]}.')
    if not all(0 <= n < 2**62 for n in numbers):
        raise Problem(404, "some of these rows are not in quarantine; nothing was changed.")
    return await service.change(request, commands.Release(name, numbers, way == "learn"), body)


@route("GET", "/v1/audit", response="Audit", query=_AUDIT_QUERY)
async def audit(service: Service, request: Request) -> dict[str, Any]:
    """Return the audit log, newest entries first."""
    query = request.query_params
    model = query.get("model")
    key = service.authorize(request, "admin", model)
    if key is not None and model is None and "*" not in key.models:
        raise Problem(403, "this key is for some models only.", "select one of them with ?model=NAME")
    unknown = set(query) - _AUDIT_QUERY.keys()
    if unknown:
        raise Problem(422, f"there is no filter {min(unknown)[:40]!r}.", f"filters: {', '.join(_FILTERS)}")
    selection: dict[str, Any] = {name: query[name] for name in _FILTERS if name in query}
    selection |= {name: seconds(query[name]) for name in ("since", "until") if name in query}
    limit = min(_integer(request, "limit", 100), _MAX_ENTRIES)
    before, read = _integer(request, "before", 2**62), service.writer.audit.read
    entries, number = await run_in_threadpool(
        lambda: read(model=model, before=before, limit=limit, **selection)
    )
    return {"entries": [entry._asdict() for entry in entries], "next": number}


def _integer(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Problem(422, f"{name} must be a whole number; got {text[:40]!r}.")
    return int(text)


# -- event streams --------------------------------------------------------------------------


@route("GET", f"{MODEL}/events", "predict", response=EVENTS)
async def events(service: Service, request: Request, name: str) -> Response:
    """Send a server-sent event whenever the model changes."""
    service.model(name)
    streams, limit = service.event_streams, service.limits.listeners
    if len(streams.listeners) >= limit:
        raise QueueFullError(f"there are {limit} event streams already.")
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(streams.lines(request, name), media_type=EVENTS, headers=headers)


# -- federated models ------------------------------------------------------------------------


def _hub_of(published: PublishedModel) -> Hub:
    if published.hub is None:
        raise Problem(409, f"the model {published.name!r} is not federated.", "create one with sites = true")
    return published.hub


@route("PUT", _SITE, "site", response="Received", body=BINARY)
async def put_update(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Apply the update of a site. The update is durable before the response is sent."""
    site = _site_of(request)
    _hub_of(service.model(name))
    content_type = request.headers.get("content-type", BINARY).partition(";")[0].strip().lower()
    if content_type != BINARY:
        raise Problem(415, f"the content type {content_type!r} is not supported.", f"use {BINARY}")
    body = await service.read_body(request, min(service.limits.body, _MAX_UPDATE_BYTES))
    site_update = await run_in_threadpool(_parsed_update, body, site, service.limits.columns)
    return await service.change(request, commands.Publish(name, site_update))


def _parsed_update(body: bytes, site: str, max_features: int) -> SiteUpdate:
    try:
        site_update = SiteUpdate.from_bytes(body)
    except FileFormatError as error:
        raise Problem(422, f"{error.summary} Nothing was changed.", error.hint) from error
    if site_update.site != site:
        raise Problem(422, f"the update belongs to site {site_update.site!r}, but was sent as {site!r}.")
    n_features = site_update.schema.n_features
    if n_features > max_features:
        raise Problem(413, f"a model can have at most {max_features:,} features; got {n_features:,}.")
    return site_update


@route("GET", _SITE, "site", response=BINARY)
def get_update(service: Service, request: Request, name: str) -> Response:
    """Return the latest update of a site."""
    site, hub = _site_of(request), _hub_of(service.model(name))
    if site not in hub.sites:
        raise Problem(404, f"there is no site {site!r}.", reason="no site")
    return Response(hub.site_update(site).to_bytes(), media_type=BINARY)


@route("DELETE", _SITE, "site", response="Dropped", is_idempotent=True)
async def drop(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Remove a site from the model."""
    site = _site_of(request)
    _hub_of(service.model(name))
    return await service.change(request, commands.Drop(name, site))


@route("GET", f"{MODEL}/sites", "admin", response="Sites")
def table(service: Service, _: Request, name: str) -> dict[str, Any]:
    """Return the contribution of each site, and the quality of the pooled model on its rows."""
    published = service.model(name)
    hub = _hub_of(published)
    rows = []
    for summary in hub.compare() if hub.sites else []:
        site_update = hub.site_update(summary.site)
        rows.append({"epoch": site_update.epoch, "version": site_update.version, **asdict(summary)})
    return {
        "model_version": published.version,
        "digest": hub.digest() if hub.sites else None,
        "rows": hub.statistics.n_rows if hub.sites else 0.0,
        "sites": rows,
        "gone": {site: list(age) for site, age in hub.gone.items()},
    }


@route("GET", f"{MODEL}/pooled", "site", response=BINARY)
def pooled(service: Service, _: Request, name: str) -> Response:
    """Return the pooled model as a file for ``steelyard predict``."""
    hub = _hub_of(service.model(name))
    if not hub.sites:
        raise Problem(404, "no site has published yet, so there is no pooled model.")
    return file_response(name, to_bytes(hub.model()))


def _site_of(request: Request) -> str:
    site: str = request.path_params["site"]
    if not 1 <= len(site) <= _MAX_NAME_CHARACTERS:
        raise Problem(
            422, f"the name of a site must have 1 to {_MAX_NAME_CHARACTERS} characters; got {len(site)}."
        )
    return site


# -- explanations ----------------------------------------------------------------------------------


@route("POST", f"{MODEL}/explain", "predict", response="Explained", body="Rows", takes_rows=True)
async def explain(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Explain predictions: contributions of columns."""
    published = service.model(name)
    batch = await service.rows(await service.read_body(request), request, published)
    if batch.n_rows > _MAX_EXPLAINED_ROWS:
        limit = f"at most {_MAX_EXPLAINED_ROWS:,} rows; got {batch.n_rows:,}."
        raise Problem(413, f"a request can explain {limit}")
    found = await run_in_threadpool(published.explain, batch)
    return {"explanations": found, "version": published.version}


@route("GET", f"{MODEL}/explanations", "predict", response="Explanations")
def explanations(service: Service, _: Request, name: str) -> dict[str, Any]:
    """Return recent alarms with explanations, and the importance of columns."""
    published = service.model(name)
    certificates = service.writer.store.certificates(name, 1)
    forgotten_at = max((float(one["at"]) for one in certificates), default=-np.inf)
    return service.alarms.explain(published, forgotten_at)


# -- Open Inference Protocol, version 2 --------------------------------------------------------------


@route("GET", "/v2")
async def server(_service: Service, _request: Request) -> dict[str, Any]:
    """Return the name and the version of the protocol."""
    return {"name": "steelyard", "version": "2", "extensions": []}


@route("GET", _V2_MODEL, "predict", response="Metadata")
async def metadata(service: Service, _: Request, name: str) -> dict[str, Any]:
    """Return the inputs and outputs of a model."""
    published = service.model(name)
    return {
        "name": name,
        "versions": [str(published.version)],
        "platform": "steelyard",
        "inputs": [
            {"name": column, "datatype": "FP64" if kind == "number" else "BYTES", "shape": [-1]}
            for column, kind in published.columns.items()
        ],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "score", "datatype": "FP64", "shape": [-1, -1]},
        ],
    }


@route("GET", f"{_V2_MODEL}/ready", "predict", response=ANY, statuses=NOT_READY)
async def model_ready(service: Service, _: Request, name: str) -> Response:
    """Return 200 if a model can predict."""
    is_ready = service.model(name).is_ready
    return JSON({"name": name, "ready": is_ready}, 200 if is_ready else 503)


@route("POST", f"{_V2_MODEL}/infer", "predict", response="Inferred", body="Infer")
async def infer(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Predict labels, scores and probabilities of tensors."""
    _, body = await service.read_json(request)
    published, batch = service.model(name), _batch(body)
    answers, probabilities = await run_in_threadpool(published.predict, batch)
    service.metrics.rows_predicted(name, batch.n_rows)
    labels = [str(label) for label in answers.labels.tolist()]
    outputs: list[dict[str, Any]] = [
        {"name": "label", "datatype": "BYTES", "shape": [batch.n_rows], "data": labels},
        _matrix("score", answers.scores),
    ]
    if probabilities is not None:
        outputs.append(_matrix("probability", probabilities))
    return {
        "model_name": name,
        "model_version": str(published.version),
        "id": str(body.get("id", "")),
        "parameters": {"classes": [str(label) for label in answers.classes]},
        "outputs": outputs,
    }


def _matrix(name: str, values: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "FP64", "shape": list(values.shape), "data": values.ravel().tolist()}


def _batch(body: dict[str, Any]) -> ColumnBatch:
    """Return the inputs as columns; each column is a tensor of shape (n,) or (n, 1)."""
    inputs = body.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise Problem(422, "expected inputs, a list with one tensor per column.")
    columns: dict[str, Any] = {}
    lengths = set()
    for tensor in inputs:
        try:
            name, kind, data = str(tensor["name"]), tensor["datatype"], tensor["data"]
        except (TypeError, KeyError) as error:
            raise Problem(
                422, f"a tensor needs name, datatype, shape and data; {error} is missing."
            ) from error
        columns[name] = _values(name, kind, data)
        lengths.add(len(columns[name]))
    if len(lengths) != 1:
        raise Problem(422, f"all tensors must have the same length; got {sorted(lengths)}.")
    return ColumnBatch(columns, lengths.pop())


def _values(name: str, kind: Any, data: Any) -> Any:
    try:
        flat = [item[0] if isinstance(item, list) else item for item in data]
        if kind in _NUMBER_TYPES:
            return np.array([np.nan if v is None else float(v) for v in flat])
        if kind == "BYTES":
            texts = np.empty(len(flat), dtype=object)
            texts[:] = [None if v is None else str(v) for v in flat]
            return texts
    except (TypeError, ValueError, IndexError) as error:
        raise Problem(422, f"the tensor {name!r} cannot be read: {error}.") from error
    raise Problem(422, f"the tensor {name!r} has datatype {kind!r}; expected a number type or BYTES.")
