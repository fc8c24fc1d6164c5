"""Client of ``moa_worker.py``, which runs with another Python interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

WORKER = Path(__file__).with_name("moa_worker.py")


class MoaError(RuntimeError):
    """Error of MOA or of the worker process."""


class MoaClient:
    """Client of one worker process, which is started by the first job and runs all jobs.

    Parameters
    ----------
    python : path
        Python interpreter with capymoa.
    worker : path, optional
        Script of the worker process.
    """

    def __init__(self, python: str | Path, worker: Path = WORKER) -> None:
        self._command = [str(python), str(worker)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> int | None:
        """End the worker process. Return its exit code, or None if there is no worker."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        code = process.wait()
        process.stdout.close()
        return code

    def ask(self, **job: Any) -> dict[str, Any]:
        """Run a job and return its result. Raise MoaError if it fails."""
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        answer = self._answer(process)
        if "failed" in answer:
            raise MoaError(answer["failed"])
        return answer

    def scores(self, learner: str, rows: Path, chunk: int, late: int) -> tuple[NDArray[np.float64], float]:
        """Return scores (of class 1, or of all classes if more than two) and microseconds per row."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "scores.npy")
            answer = self.ask(
                do="score", learner=learner, rows=str(rows), scores=str(file), chunk=chunk, late=late
            )
            return np.load(file), float(answer["us"])

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            serial = os.environ.get("CAPYMOA_JVM_ARGS", "-Xmx4g -Xss10M -XX:+UseSerialGC")
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "CAPYMOA_JVM_ARGS": serial},
            )
            self._answer(self._process)
        return self._process

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):  # MOA may print other lines
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise MoaError(f"the worker process ended with code {self._end()}")
