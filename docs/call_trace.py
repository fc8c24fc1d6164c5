"""How many rooms a walk through the package takes: files and functions that a call enters, found by tracing.

    python docs/call_trace.py           # the counts, as in docs/architecture.md
    python docs/call_trace.py --names   # and what was entered, in order

What stands inside a function, such as a comprehension, belongs to it; what is only imported is not entered.
Native functions are not seen: each is one call of the Python function above it. A function of a single
statement is a name for what it says: it is counted as a function, and not as one that takes steps.
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
from steelyard import ProximalSVC
from steelyard.cli import main as command
from steelyard.evaluation import PrequentialEvaluator
from steelyard.tables import open_stream

PACKAGE = str(Path(steelyard.__file__).parent)
Entered = dict[tuple[str, str], CodeType]  # by file and name, in order


class Walk:
    """What is entered while it is open, by all threads that begin in its time."""

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
        """Files, functions, and those of them that take more than one step."""
        n_files = len({file for file, _ in self.entered})
        return n_files, len(self.entered), sum(map(takes_steps, self.entered.values()))


def takes_steps(code: CodeType) -> bool:
    """Whether a function is more than a single statement."""
    (function,) = ast.parse(dedent(inspect.getsource(code))).body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    return len(function.body) - (ast.get_docstring(function) is not None) > 1


def whole_command(path: Path) -> Walk:
    """``steelyard stream`` from its words to the report and the saved model."""
    words = ["stream", str(path), "--target", "y", "--model", "proximal", "--chunk", "100"]
    words += ["--save", str(path.with_suffix(".model")), "--report", str(path.with_suffix(".html"))]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        command(words, standalone_mode=False)  # once before: what happens only once is no part of the walk
        with Walk() as walk:
            command(words, standalone_mode=False)
    return walk


def one_chunk(path: Path) -> Walk:
    """Rows on their way: read, made numbers, answered, measured and learned."""
    evaluator = PrequentialEvaluator({"proximal": ProximalSVC()}, window=1000)
    with Walk() as walk:  # the thread that reads must begin in its time
        chunks = iter(open_stream(path, "y", chunk=100))
        evaluator.step(next(chunks))
        evaluator.step(next(chunks))
        walk.entered.clear()
        for _ in range(20):  # a window or two: measures are taken of some chunks only
            evaluator.step(next(chunks))
        evaluator.contenders[0].tracker.records  # noqa: B018  counts what waits
    chunks.close()  # type: ignore[attr-defined]
    return walk


def proximal_calls(_: Path) -> Walk:
    """``partial_fit``, ``forget`` and ``predict`` of a learner that has learned before."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 5)), rng.integers(0, 2, size=600)
    model = ProximalSVC().partial_fit(X[:400], y[:400])
    with Walk() as walk:
        model.partial_fit(X[400:], y[400:])
        model.forget(X[:100], y[:100])
        model.predict(X)
    return walk


def proximal_forget(_: Path) -> Walk:
    """``ProximalSVC.forget`` of a learner that has forgotten rows before."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 5)), rng.integers(0, 2, size=600)
    model = ProximalSVC().partial_fit(X, y).forget(X[:10], y[:10])
    with Walk() as walk:
        model.forget(X[10:100], y[10:100])
    return walk


def http_learn(_: Path) -> Walk:
    """One row over HTTP, from the ASGI application to the commit."""
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

    async def learn(walk: Walk) -> None:
        async with app.router.lifespan_context(app):
            await send("PUT", "/v1/models/m", {"target": "y"})
            for batch in (rows, rows[:1], rows[1:2]):
                walk.entered.clear()
                await send("POST", "/v1/models/m/learn", {"rows": batch})
            entered = list(walk.entered.items())
            commit = [name for name, _ in entered].index(("service/stores/sqlite.py", "SQLiteStore._commit"))
            to_commit.entered = dict(entered[: commit + 1])

    to_commit = Walk()
    with Walk() as walk:
        asyncio.run(learn(walk))
    return to_commit


WALKS: dict[str, Callable[[Path], Walk]] = {
    "rows of `steelyard stream` on their way": one_chunk,
    "`steelyard stream`, from its words to report and model": whole_command,
    "ProximalSVC: partial_fit, forget, predict": proximal_calls,
    "ProximalSVC.forget": proximal_forget,
    "HTTP learn, one row, to the commit": http_learn,
}


def example(folder: Path) -> Path:
    """A file of a few thousand rows."""
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.2).astype(int)
    table = np.column_stack([rng.normal(size=(4000, 5)) + y[:, None], y])
    path = folder / "rows.csv"
    np.savetxt(path, table, ["%.4f"] * 5 + ["%d"], delimiter=",", header="a,b,c,d,e,y", comments="")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the rooms of some walks through the package.")
    parser.add_argument("--names", action="store_true", help="list what was entered")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = example(Path(folder))
        print("| walk | files | functions | that take steps |\n|---|---|---|---|")
        for name, take in WALKS.items():
            walk = take(path)
            print(f"| {name} | {' | '.join(map(str, walk.counts))} |")
            if arguments.names:
                for file, function in walk.entered:
                    print(f"    {file}: {function}")


if __name__ == "__main__":
    main()
