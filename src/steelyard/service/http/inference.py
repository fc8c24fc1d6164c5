"""Predictions with the Open Inference Protocol, version 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from steelyard.service.http.bodies import Handler
from steelyard.service.http.health import Health
from steelyard.service.http.problems import Problem
from steelyard.tables.columns import ColumnBatch

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

__all__ = ["routes"]

_NUMBERS = frozenset(
    {
        "BOOL",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "FP16",
        "FP32",
        "FP64",
    }
)


def routes(service: Service) -> list[tuple[str, str, Handler]]:
    """Return the routes of the protocol."""

    async def server(_request: Request) -> Response:
        return JSONResponse({"name": "steelyard", "version": "2", "extensions": []})

    async def live(_request: Request) -> Response:
        return JSONResponse({"live": True})

    async def metadata(request: Request) -> Response:
        name = request.path_params["model"]
        service.authorize(request, "predict", name)
        kinds = service.model(name).columns
        inputs = [
            {"name": column, "datatype": "FP64" if kind == "number" else "BYTES", "shape": [-1]}
            for column, kind in kinds.items()
        ]
        outputs = [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "score", "datatype": "FP64", "shape": [-1, -1]},
        ]
        return JSONResponse(
            {
                "name": name,
                "versions": [str(service.model(name).version)],
                "platform": "steelyard",
                "inputs": inputs,
                "outputs": outputs,
            }
        )

    async def model_ready(request: Request) -> Response:
        name = request.path_params["model"]
        service.authorize(request, "predict", name)
        is_ready = service.model(name).is_ready
        return JSONResponse({"name": name, "ready": is_ready}, status_code=200 if is_ready else 503)

    async def infer(request: Request) -> Response:
        name = request.path_params["model"]
        service.authorize(request, "predict", name)
        _, body = await service.read_json(request)
        published = service.model(name)
        batch = _batch(body)
        answers, probabilities = await run_in_threadpool(published.predict, batch)
        service.metrics.rows_predicted(name, batch.n_rows)
        outputs: list[dict[str, Any]] = [
            {
                "name": "label",
                "datatype": "BYTES",
                "shape": [batch.n_rows],
                "data": [str(label) for label in answers.labels.tolist()],
            },
            _matrix("score", answers.scores),
        ]
        if probabilities is not None:
            outputs.append(_matrix("probability", probabilities))
        return JSONResponse(
            {
                "model_name": name,
                "model_version": str(published.version),
                "id": str(body.get("id", "")),
                "parameters": {"classes": [str(label) for label in answers.classes]},
                "outputs": outputs,
            }
        )

    model = "/v2/models/{model}"
    return [
        ("GET", "/v2", server),
        ("GET", "/v2/health/live", live),
        ("GET", "/v2/health/ready", Health(service).ready),
        ("GET", model, metadata),
        ("GET", f"{model}/ready", model_ready),
        ("POST", f"{model}/infer", infer),
    ]


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
