"""Worker process with the generators and learners of MOA. It reads jobs and writes results as lines of JSON.

    PYTHON moa_worker.py

PYTHON is a Python interpreter with capymoa (``python -m venv DIR; DIR/bin/pip install capymoa``). Java is
needed too. capymoa pins package versions that are incompatible with this package, so it runs in a separate
process: ``moa_client.py`` starts this file and sends jobs to it. Rows are exchanged as NumPy files.

A job is ``{"do": "score", "learner": ..., "rows": FILE, "scores": FILE, "chunk": n, "late": n}`` or
``{"do": "generate", "stages": [[generator, share], ...], "n_rows": n, "width": n, "seed": n, "rows": FILE}``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import numpy as np

# -- test, then train -------------------------------------------------------------------------------------


def score(job: dict[str, Any], moa: Moa) -> dict[str, Any]:
    """Return the scores of class 1, or of every class, and microseconds of processor time per row.

    Each score was given before its row was learned.
    """
    kept = np.load(job["rows"])
    X, y, kinds = kept["raw"], kept["y"], kept["kinds"]
    n_classes = max(2, int(y.max()) + 1)
    learner, rows = moa.learner(job["learner"], kinds, n_classes), moa.rows(X, y, kinds, n_classes)
    chunk, late = int(job["chunk"]), int(job["late"])
    scores, learned = np.full((len(y), n_classes), 1.0 / n_classes), 0
    began = time.process_time()
    for begin in range(0, len(y), chunk):
        end = min(begin + chunk, len(y))
        for row in range(begin, end):
            scores[row] = shares(learner.getVotesForInstance(rows[row]), n_classes)
        for row in range(learned, max(learned, end - late)):
            learner.trainOnInstance(rows[row])
        learned = max(learned, end - late)
    cost = (time.process_time() - began) / len(y) * 1e6
    np.save(job["scores"], scores[:, 1] if n_classes == 2 else scores)
    return {"us": cost}


def shares(votes: Any, n_classes: int) -> list[float]:
    """Return the share of each class among ``votes``, which may lack the last classes if they have none."""
    votes = [vote if math.isfinite(vote) and vote > 0.0 else 0.0 for vote in votes][:n_classes]
    total = sum(votes)
    votes += [0.0] * (n_classes - len(votes))
    return [vote / total for vote in votes] if total > 0.0 else [1.0 / n_classes] * n_classes


# -- generated rows ---------------------------------------------------------------------------------------


def stage_of_rows(n_rows: int, n_stages: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Return the concept of each row: concepts have equal lengths and change gradually over ``width`` rows.

    As in MOA, the probability of the next concept is ``1 / (1 + exp(-4 (row - change) / width))``.
    """
    rows = np.arange(n_rows)
    stages = np.zeros(n_rows, dtype=np.int64)
    for change in (n_rows * k / n_stages for k in range(1, n_stages)):
        far = np.clip(4.0 * (rows - change) / max(width, 1), -60.0, 60.0)
        stages += rng.random(n_rows) < 1.0 / (1.0 + np.exp(-far))
    return stages


def generate(job: dict[str, Any], moa: Moa) -> dict[str, Any]:
    """Write rows of several generators one after another, each with its own share of class 1."""
    rng = np.random.default_rng(int(job["seed"]))
    generators = [moa.generator(cli) for cli, _ in job["stages"]]
    shares = np.array([share for _, share in job["stages"]])
    stages = stage_of_rows(int(job["n_rows"]), len(generators), int(job["width"]), rng)
    labels = (rng.random(len(stages)) < shares[stages]).astype(np.int64)
    raw = np.array([_next(generators[stage], label) for stage, label in zip(stages, labels, strict=True)])
    np.savez(job["rows"], raw=raw, y=labels, kinds=np.array(moa.kinds(generators[0])))
    return {"n_columns": raw.shape[1]}


def _next(generator: Any, label: int) -> list[float]:
    for _ in range(1_000_000):
        values = generator.nextInstance().getData().toDoubleArray()
        if int(values[-1]) == label:
            return list(values[:-1])
    raise ValueError(f"the generator returned no row of class {label}")


# -- MOA --------------------------------------------------------------------------------------------------


class Moa:
    """The parts of MOA that this worker uses."""

    def __init__(self) -> None:
        import capymoa  # noqa: F401  starts Java
        from jpype import JArray, JClass, JDouble

        self._class, self._doubles = JClass, JArray(JDouble)
        self._read = JClass("moa.options.ClassOption").cliStringToObject

    def learner(self, cli: str, kinds: np.ndarray, n_classes: int) -> Any:
        learner = self._read(cli, self._class("moa.classifiers.Classifier"), None)
        learner.setModelContext(self._header(kinds, n_classes))
        learner.prepareForUse()
        return learner

    def generator(self, cli: str) -> Any:
        generator = self._read(cli, self._class("moa.streams.ExampleStream"), None)
        generator.prepareForUse()
        return generator

    def kinds(self, generator: Any) -> list[int]:
        """Return the number of categories of each column, which is 0 for numeric columns."""
        header = generator.getHeader()
        columns = [header.attribute(k) for k in range(header.numAttributes() - 1)]
        return [int(column.numValues()) if column.isNominal() else 0 for column in columns]

    def rows(self, X: np.ndarray, y: np.ndarray, kinds: np.ndarray, n_classes: int) -> list[Any]:
        header = self._header(kinds, n_classes)
        dense = self._class("com.yahoo.labs.samoa.instances.DenseInstance")
        rows = []
        for values in np.column_stack([X, y.astype(float)]):
            row = dense(1.0, self._doubles(values))
            row.setDataset(header)
            rows.append(row)
        return rows

    def _header(self, kinds: np.ndarray, n_classes: int) -> Any:
        instances = "com.yahoo.labs.samoa.instances."
        attribute, names = self._class(f"{instances}Attribute"), self._class("java.util.ArrayList")

        def column(name: str, n_categories: int) -> Any:
            if not n_categories:
                return attribute(name)
            categories = names()
            for k in range(n_categories):
                categories.add(f"v{k}")
            return attribute(name, categories)

        columns = self._class("java.util.ArrayList")()
        for k, n_categories in enumerate([*kinds.tolist(), n_classes]):
            columns.add(column(f"x{k}", n_categories))
        header = self._class(f"{instances}InstancesHeader")(
            self._class(f"{instances}Instances")("rows", columns, 0)
        )
        header.setClassIndex(len(kinds))
        return header


def main() -> None:
    moa, jobs = Moa(), {"score": score, "generate": generate}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = jobs[job["do"]](job, moa)
        except Exception as error:  # noqa: BLE001  also errors of Java; the client raises it
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
