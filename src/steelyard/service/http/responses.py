"""Responses: JSON, predictions, files, and errors as RFC 9457 problem details with a message and a hint."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from steelyard._types import FloatArray
from steelyard.exceptions import FileAccessError, FileFormatError, SteelyardError
from steelyard.service.http.routes import BINARY
from steelyard.service.spec import Spec
from steelyard.streams.predictions import Predictions
from steelyard.tables.columns import RowError

_log = logging.getLogger("steelyard.service")
_TITLES = {
    400: "The request could not be read",
    401: "A key is required",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Timeout",
    406: "Response format not supported",
    409: "Conflict with the current state",
    410: "Gone",
    413: "Too large",
    415: "Content type not supported",
    421: "Not this service",
    422: "The content was refused; nothing was changed",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
}
_ARROW = "application/vnd.apache.arrow.stream"
_SETTINGS = frozenset(field.name for field in fields(Spec))
# Matches an argument such as missing="zero", track_rows=True or key=0.
_ARGUMENT = re.compile(r"""(?<![-\w.])([A-Za-z_]\w*)=("[^"]*"|'[^']*'|True|False|\d[\d.]*)""")
_ASIDE = re.compile(r" \([^()]* on the command line\)")
_TEXTS = {
    "pass time= to partial_fit() and predict(), or use a share of rows: {'alarms': 0.01}": (
        "use a share of rows: learner.threshold = {alarms = 0.01}"
    ),
    (
        'pass time= to partial_fit(), or time="COLUMN" to TableModel or open_stream(), or give '
        "the window as a number of rows"
    ): ("give the window as a number of rows, or use the setting memory"),
    'set C="auto" before fit() or the first partial_fit()': 'create a model with learner.C = "auto"',
    "convert the labels to strings, for example with str(label)": "send them as strings",
    "remove the character, for example with label.rstrip('\\0')": "remove the character",
}


class JSON(Response):
    """Response with a value as JSON. NaN becomes null. It is created twice as fast as JSONResponse."""

    def __init__(self, value: Any, status: int = 200) -> None:
        self.status_code, self.background = status, None
        self.body = msgspec.json.encode(value, enc_hook=np.generic.item)
        self.raw_headers = [
            (b"content-length", str(len(self.body)).encode()),
            (b"content-type", b"application/json"),
        ]


def prediction(answers: Predictions, probabilities: FloatArray | None, version: int) -> dict[str, Any]:
    """Return labels, scores and probabilities of rows as JSON values.

    With two classes, a score is one number, which is positive for the second class. With more classes, a
    score has one number per class.
    """
    names = [str(label) for label in answers.classes]
    response: dict[str, Any] = {
        "labels": answers.labels.tolist(),
        "scores": answers.scores[:, 1].tolist() if len(names) == 2 else _by_class(names, answers.scores),
        "classes": list(answers.classes),
        "version": version,
    }
    if probabilities is not None:
        response["probabilities"] = _by_class(names, probabilities)
    return response


def _by_class(names: list[str], values: FloatArray) -> list[dict[str, float]]:
    return [dict(zip(names, row, strict=True)) for row in values.tolist()]


def _columns(response: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Return the values of :func:`prediction` as columns of a table."""
    names = [str(label) for label in response["classes"]]
    columns: dict[str, Sequence[Any]] = {"id": response["ids"]} if "ids" in response else {}
    columns["label"] = response["labels"]
    if len(names) == 2:
        columns["score"] = response["scores"]
    else:
        columns.update({f"score {n}": [row[n] for row in response["scores"]] for n in names})
    if "probabilities" in response:
        columns.update({f"probability {n}": [row[n] for row in response["probabilities"]] for n in names})
    return columns


def write_prediction(request: Request, response: Mapping[str, Any]) -> Response:
    """Return a prediction in the format of the Accept header: JSON, JSON lines, CSV or Arrow."""
    accepted = request.headers.get("accept", "*/*")
    if "text/csv" in accepted:
        columns, text = _columns(response), io.StringIO()
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return Response(text.getvalue(), media_type="text/csv")
    if _ARROW in accepted:
        import pyarrow as pa

        table = pa.table({name: pa.array(list(values)) for name, values in _columns(response).items()})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return Response(sink.getvalue(), media_type=_ARROW)
    if "application/x-ndjson" in accepted or "application/jsonl" in accepted:
        columns = _columns(response)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return Response(msgspec.json.Encoder().encode_lines(rows), media_type="application/x-ndjson")
    return JSON(response)


def file_response(name: str, data: bytes) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}.steelyard"'}
    return Response(data, media_type=BINARY, headers=headers)


# -- errors -----------------------------------------------------------------------------------------


class Problem(Exception):  # noqa: N818  the term of RFC 9457
    """An error response with an HTTP status."""

    def __init__(self, status: int, detail: str, hint: str | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.hint, self.more = status, detail, hint, more


def problem_of(error: SteelyardError) -> Problem:
    is_internal = isinstance(error, FileAccessError | FileFormatError)
    status = getattr(error, "status", 500 if is_internal else 422)
    more: dict[str, Any] = getattr(error, "details", {})
    if isinstance(error, RowError):
        more = {"row": error.row} | ({} if error.column is None else {"column": error.column})
    # The source of the error is a path or an address of the operator's machine, so clients do not get it.
    if status == 500:
        _log.error("a request failed: %s", error.summary)
        return Problem(status, "the store of the service has a problem; see its log.")
    hint = None if error.hint is None else service_hint(error.hint)
    return Problem(status, error.summary, hint, **more)


def respond(problem: Problem) -> Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": _TITLES.get(problem.status, "Refused"),
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.hint is not None:
        body["hint"] = problem.hint
    headers = {"Retry-After": "1"} if problem.status in {429, 503} else {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(
        msgspec.json.encode({**body, **problem.more}),
        status_code=problem.status,
        headers=headers,
        media_type="application/problem+json",
    )


def service_hint(hint: str) -> str:
    """Return a hint that names model settings instead of Python arguments and command-line options.

    >>> service_hint('fill values with missing="zero" (--missing on the command line)')
    'fill values with missing = "zero" (in the settings of a new model)'
    """
    hint = _ASIDE.sub("", _TEXTS.get(hint, hint))
    if hint.startswith("leave the column out"):
        return "create a model whose setting columns lists the other columns"
    rewritten = _ARGUMENT.sub(_as_setting, hint)
    return rewritten if rewritten == hint else f"{rewritten} (in the settings of a new model)"


def _as_setting(found: re.Match[str]) -> str:
    name, value = found[1], found[2].replace("'", '"')
    value = value.lower() if value in {"True", "False"} else value
    return f"{name if name in _SETTINGS else f'learner.{name}'} = {value}"
