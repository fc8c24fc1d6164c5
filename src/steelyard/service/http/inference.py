"""Predictions with the Open Inference Protocol, version 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from steelyard.service.http.process import NOT_READY
from steelyard.service.http.responses import JSON, Problem
from steelyard.service.http.routes import ANY, route
from steelyard.tables.columns import ColumnBatch

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

_MODEL = "/v2/models/{model}"
_NUMBERS = frozenset(
    {"BOOL", "FP16", "FP32", "FP64", *(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))}
)


@route("GET", "/v2")
async def server(_service: Service, _request: Request) -> dict[str, Any]:
    """Return the name and the version of the protocol."""
    return {"name": "steelyard", "version": "2", "extensions": []}


@route("GET", _MODEL, "predict", response="Metadata")
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


@route("GET", f"{_MODEL}/ready", "predict", response=ANY, statuses=NOT_READY)
async def model_ready(service: Service, _: Request, name: str) -> Response:
    """Return 200 if a model can predict."""
    is_ready = service.model(name).is_ready
    return JSON({"name": name, "ready": is_ready}, 200 if is_ready else 503)


@route("POST", f"{_MODEL}/infer", "predict", response="Inferred", body="Infer")
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
