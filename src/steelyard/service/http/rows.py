"""Handlers of requests with rows: learning, predictions, explanations, delayed labels and forgetting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from steelyard.service import commands
from steelyard.service import rows as wire
from steelyard.service.http.responses import JSON, Problem, prediction, write_prediction
from steelyard.service.http.routes import ANY, MODEL, NOT_READY, route
from steelyard.service.http.service import MAX_TIME_SECONDS, format_of, seconds
from steelyard.service.session import pending_rows
from steelyard.tables.columns import ColumnBatch

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

_MAX_ROWS_ON_LOOP = 2_000  # larger predictions run in a thread, so that other requests do not wait
_MAX_EXPLAINED_ROWS = 1_000  # maximum number of rows in a request for explanations
_V2_MODEL = "/v2/models/{model}"
_NUMBERS = frozenset(
    {"BOOL", "FP16", "FP32", "FP64", *(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))}
)


@route(
    "POST", f"{MODEL}/learn", "learn", response="Learned", body="Rows", takes_rows=True, is_idempotent=True
)
async def learn(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Learn labelled rows."""
    published = service.model(name)
    body = await service.read_body(request)
    batch = await service.rows(body, request, published)
    return await service.change(request, commands.Learn(name, batch), body)


@route(
    "POST",
    f"{MODEL}/predict",
    "predict",
    response="Prediction",
    body="Predict",
    takes_rows=True,
    is_idempotent=True,
)
async def predict(service: Service, request: Request, name: str) -> Response:
    """Predict labels, scores and probabilities; with ``remember``, store the rows for delayed labels."""
    body = await service.read_body(request)
    options, values = dict(request.query_params), None
    if format_of(request) == "json":
        values = await service._json_object(body)
        options.update({key: values[key] for key in ("remember", "as_of") if key in values})
    published = await service.model_as_of(name, options.get("as_of"))
    batch = await service.rows(body, request, published, values)
    if batch.n_rows <= _MAX_ROWS_ON_LOOP:
        answers, probabilities = published.predict(batch)
    else:
        answers, probabilities = await run_in_threadpool(published.predict, batch)
    service.alarms.add(published, batch, answers, service.writer.clock())
    response = prediction(answers, probabilities, published.version)
    if str(options.get("remember")).lower() in {"1", "true", "yes"}:
        rows = pending_rows(published.spec, batch, answers, service.writer.clock())
        response = await service.change(request, commands.Remember(name, rows, response), body)
    service.metrics.rows_predicted(name, batch.n_rows)
    return write_prediction(request, response)


@route("POST", f"{MODEL}/labels", "learn", response="Labelled", body="Labels", is_idempotent=True)
async def label(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Learn remembered rows whose labels have arrived."""
    body, values = await service.read_json(request)
    labels, correct = values.get("labels"), values.get("correct", False)
    if not isinstance(labels, dict) or not labels:
        raise Problem(422, 'expected {"labels": {"id": label, ...}}.')
    if len(labels) > service.limits.rows:
        raise Problem(413, f"a request may have {service.limits.rows:,} labels; got {len(labels):,}.")
    _check_identifiers(labels)
    if not isinstance(correct, bool):
        raise Problem(422, f"correct must be true or false; got {str(correct)[:40]!r}.")
    return await service.change(request, commands.Label(name, labels, correct), body)


@route("POST", f"{MODEL}/forget", "forget", response="Forgotten", body="Forget", is_idempotent=True)
async def forget(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Forget rows, selected by ids, subject, time, values or request."""
    body, published = await service.read_body(request), service.model(name)
    is_json = format_of(request) == "json"
    values = await service._json_object(body) if is_json else {"rows": None}
    ways = {"ids", "subject", "rows", "before", "batch", "learned"}
    if len(values) != 1 or not set(values) <= ways:
        raise Problem(422, "select rows in exactly one way: ids, subject, rows, before, batch or learned.")
    ((way, value),) = values.items()
    selection: dict[str, Any]
    if way == "rows":
        selection = {"batch": await service.rows(body, request, published, values if is_json else None)}
    else:
        selection = _selection(way, value)
    response = await service.change(request, commands.Forget(name, **selection), body)
    service.alarms.drop(name)
    return response


def _selection(way: str, value: Any) -> dict[str, Any]:
    """Return the fields of a forget request; raise Problem if the value of the selection is not valid."""
    if way == "ids":
        if not isinstance(value, list) or not all(isinstance(v, str | int) for v in value):
            raise Problem(422, "ids must be a list of texts.")
        return {"ids": _check_identifiers([str(v) for v in value])}
    if way == "subject":
        if not isinstance(value, str | int):
            raise Problem(422, "subject must be a text.")
        return {"subject": _check_identifiers([str(value)])[0]}
    if way == "before":
        return {"before": seconds(value)}
    if way == "batch":
        if not isinstance(value, str) or not 1 <= len(value) <= 255:
            raise Problem(422, "batch must be the idempotency key of a request.")
        return {"request_key": value}
    if not isinstance(value, dict) or not value or not set(value) <= {"since", "until"}:
        raise Problem(422, 'learned must be {"since": time, "until": time}.')
    given = {name: seconds(moment) for name, moment in value.items() if moment is not None}
    return {"learned": (given.get("since", -MAX_TIME_SECONDS), given.get("until", MAX_TIME_SECONDS))}


def _check_identifiers(names: Iterable[str]) -> list[str]:
    """Return ids or subjects as a list; raise Problem if one of them is not valid."""
    invalid = next((name for name in names if not wire.is_identifier(name)), None)
    if invalid is not None:
        raise Problem(422, f"{invalid[:40]!r} ({len(invalid)} characters) is not a valid id or subject.")
    return list(names)


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
        if kind in _NUMBERS:
            return np.array([np.nan if v is None else float(v) for v in flat])
        if kind == "BYTES":
            texts = np.empty(len(flat), dtype=object)
            texts[:] = [None if v is None else str(v) for v in flat]
            return texts
    except (TypeError, ValueError, IndexError) as error:
        raise Problem(422, f"the tensor {name!r} cannot be read: {error}.") from error
    raise Problem(422, f"the tensor {name!r} has datatype {kind!r}; expected a number type or BYTES.")
