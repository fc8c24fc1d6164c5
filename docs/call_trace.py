"""Count the files and functions of the package that typical calls enter.

    python docs/call_trace.py           # the counts of docs/architecture.md
    python docs/call_trace.py --names   # also list the functions in call order

Comprehensions belong to their function, imports are not counted, and native functions are invisible. The last
column counts functions with more than one statement.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import io
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from textwrap import dedent
from types import CodeType, FrameType
from typing import Any, Self

import numpy as np

import steelyard
from steelyard import ProximalSVC, StreamClassifier
from steelyard.cli import main as command
from steelyard.evaluation import PrequentialEvaluator
from steelyard.tables import open_stream

PACKAGE = str(Path(steelyard.__file__).parent)
Entered = dict[tuple[str, str], CodeType]  # code objects by file and qualified name, in call order


class CallTrace:
    """Context manager that records the functions entered by this thread and threads started meanwhile."""

    def __init__(self) -> None:
        self.entered: Entered = {}

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        name = code.co_qualname
        if name == "<module>" or code.co_name in {"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"}:
            return
        if name.rpartition(".")[2].startswith("<") or "<class" in name:
            return
        self.entered[code.co_filename.removeprefix(PACKAGE + "/"), name] = code

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of files, functions, and functions with more than one statement."""
        n_files = len({file for file, _ in self.entered})
        return n_files, len(self.entered), sum(map(has_several_statements, self.entered.values()))


def has_several_statements(code: CodeType) -> bool:
    """Return whether a function has more than one statement besides its docstring."""
    (function,) = ast.parse(dedent(inspect.getsource(code))).body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    return len(function.body) - (ast.get_docstring(function) is not None) > 1


def whole_command(path: Path, *options: str) -> CallTrace:
    """Trace ``steelyard stream`` with some options, from the command line to the last output."""
    arguments = ["stream", str(path), "--target", "y", "--chunk", "100", *options]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        command(arguments, standalone_mode=False)  # the first run imports modules
        with CallTrace() as trace:
            command(arguments, standalone_mode=False)
    return trace


def default_command(path: Path) -> CallTrace:
    """Trace ``steelyard stream`` with the default model, to the report and the saved model."""
    report, model = path.with_suffix(".html"), path.with_suffix(".model")
    return whole_command(path, "--save", str(model), "--report", str(report))


def proximal_command(path: Path) -> CallTrace:
    """Trace ``steelyard stream --model proximal``, which writes no file."""
    return whole_command(path, "--model", "proximal")


def whole_chunks(path: Path, model: ProximalSVC | StreamClassifier) -> CallTrace:
    """Trace chunks of a file: read, encode, predict, measure, learn."""
    evaluator = PrequentialEvaluator({"model": model}, window=1000, explains=False)  # as without a report
    with CallTrace() as trace:  # the reader thread must start inside the trace
        chunks = iter(open_stream(path, "y", chunk=100))
        evaluator.step(next(chunks))
        evaluator.step(next(chunks))
        trace.entered.clear()
        for _ in range(20):  # covers whole windows, because metrics are computed for some chunks only
            evaluator.step(next(chunks))
        evaluator.candidates[0].tracker.records  # noqa: B018  flushes pending predictions
    chunks.close()  # type: ignore[attr-defined]
    return trace


def proximal_chunks(path: Path) -> CallTrace:
    """Trace chunks that a ProximalSVC predicts and learns."""
    return whole_chunks(path, ProximalSVC())


def default_chunks(path: Path) -> CallTrace:
    """Trace chunks that a StreamClassifier predicts and learns."""
    return whole_chunks(path, StreamClassifier())


def proximal_calls(_: Path) -> CallTrace:
    """Trace ``partial_fit``, ``forget`` and ``predict`` of a fitted ProximalSVC."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 5)), rng.integers(0, 2, size=600)
    model = ProximalSVC().partial_fit(X[:400], y[:400])
    with CallTrace() as trace:
        model.partial_fit(X[400:], y[400:])
        model.forget(X[:100], y[:100])
        model.predict(X)
    return trace


def proximal_forget(_: Path) -> CallTrace:
    """Trace ``forget`` of a ProximalSVC that has forgotten rows before."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 5)), rng.integers(0, 2, size=600)
    model = ProximalSVC().partial_fit(X, y).forget(X[:10], y[:10])
    with CallTrace() as trace:
        model.forget(X[10:100], y[10:100])
    return trace


def http_learn(_: Path) -> CallTrace:
    """Trace learning one row over HTTP, from the ASGI application to the commit."""
    from steelyard.service import SQLiteStore, Writer
    from steelyard.service.http import make_app

    app = make_app(Writer(SQLiteStore(":memory:")))
    rows = [{"a": float(i % 7), "b": float(i % 5), "y": i % 2} for i in range(400)]

    async def send(method: str, path: str, value: Any) -> None:
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps(value).encode(), "more_body": False}

        async def respond(message: Any) -> None:
            statuses.append(message.get("status", 200))

        await app(scope, receive, respond)
        assert statuses[0] in {200, 201}

    async def learn(trace: CallTrace) -> None:
        async with app.router.lifespan_context(app):
            await send("PUT", "/v1/models/m", {"target": "y"})
            for batch in (rows, rows[:1], rows[1:2]):
                await asyncio.sleep(0.1)  # the writer thread finishes the previous request
                trace.entered.clear()
                await send("POST", "/v1/models/m/learn", {"rows": batch})
            entered = list(trace.entered.items())
            commit = [name for name, _ in entered].index(("service/stores/sqlite.py", "SQLiteStore._commit"))
            to_commit.entered = dict(entered[: commit + 1])

    to_commit = CallTrace()
    with CallTrace() as trace:
        asyncio.run(learn(trace))
    return to_commit


def stream_classifier(n_rows: int) -> tuple[StreamClassifier, Any, Any]:
    """Return a StreamClassifier that has learned some chunks of 100 rows, and one more chunk."""
    rng = np.random.default_rng(0)
    y = (rng.random(n_rows) < 0.2).astype(int)
    X = rng.normal(size=(n_rows, 5)) + y[:, None]
    model = StreamClassifier()
    for begin in range(0, n_rows - 100, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
        model.predict(X[begin : begin + 100])
    return model, X[-100:], y[-100:]


def ensemble_learn(_: Path) -> CallTrace:
    """Trace ``StreamClassifier.partial_fit`` of 100 rows."""
    model, X, y = stream_classifier(3000)
    with CallTrace() as trace:
        model.partial_fit(X, y)
    return trace


def ensemble_predict(_: Path) -> CallTrace:
    """Trace ``StreamClassifier.predict`` of 100 rows."""
    model, X, _y = stream_classifier(3000)
    with CallTrace() as trace:
        model.predict(X)
    return trace


CALL_PATHS: dict[str, Callable[[Path], CallTrace]] = {
    "chunks of `steelyard stream --model proximal`: read, predict, measure, learn": proximal_chunks,
    "chunks of `steelyard stream` with the default model: read, predict, measure, learn": default_chunks,
    "`steelyard stream --model proximal` without report and saved model": proximal_command,
    "`steelyard stream` with the default model, to report and saved model": default_command,
    "StreamClassifier.partial_fit, 100 rows": ensemble_learn,
    "StreamClassifier.predict, 100 rows": ensemble_predict,
    "ProximalSVC: partial_fit, forget, predict": proximal_calls,
    "ProximalSVC.forget": proximal_forget,
    "HTTP learn, one row, to the commit": http_learn,
}


def example(folder: Path) -> Path:
    """Write a CSV file of 4,000 rows and return its path."""
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.2).astype(int)
    table = np.column_stack([rng.normal(size=(4000, 5)) + y[:, None], y])
    path = folder / "rows.csv"
    np.savetxt(path, table, ["%.4f"] * 5 + ["%d"], delimiter=",", header="a,b,c,d,e,y", comments="")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the files and functions that typical calls enter.")
    parser.add_argument("--names", action="store_true", help="list the functions in call order")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = example(Path(folder))
        print("| call | files | functions | with several statements |\n|---|---|---|---|")
        for name, trace_call in CALL_PATHS.items():
            trace = trace_call(path)
            print(f"| {name} | {' | '.join(map(str, trace.counts))} |")
            if arguments.names:
                for file, function in trace.entered:
                    print(f"    {file}: {function}")


if __name__ == "__main__":
    main()
