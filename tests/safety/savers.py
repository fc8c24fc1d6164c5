"""Processes that save models to one path and are killed: the file is always a complete model."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import steelyard
from steelyard import ProximalSVC

# Program that saves two models alternately without end, and prints a line when it begins.
_SAVER = """
import sys
import numpy as np
import steelyard
from steelyard import ProximalSVC

rng = np.random.default_rng(int(sys.argv[2]))
X, y = rng.normal(size=(400, 60)), rng.integers(2, size=400)
models = [ProximalSVC().fit(X, y), ProximalSVC().fit(-X, y)]
print(*[model.digest() for model in models], flush=True)
while True:
    for model in models:
        steelyard.save(model, sys.argv[1])
"""


@dataclass
class Outcome:
    """Counts of the models found in the file after a process was killed."""

    old: int = 0  # number of times that the file contained a model of an earlier process
    new: int = 0


def _start(path: Path, seed: int) -> tuple[subprocess.Popen[str], set[str]]:
    saver = subprocess.Popen(
        [sys.executable, "-c", _SAVER, str(path), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert saver.stdout is not None
    return saver, set(saver.stdout.readline().split())


def _end(saver: subprocess.Popen[str]) -> None:
    saver.send_signal(signal.SIGKILL)
    saver.communicate()


def _first(path: Path) -> str:
    rng = np.random.default_rng(0)
    model = ProximalSVC().fit(rng.normal(size=(50, 3)), rng.integers(2, size=50))
    steelyard.save(model, path)
    return str(model.digest())


def kill_savers(folder: Path, n: int, seed: int) -> Outcome:
    """Kill saving processes at random times and assert that the file contains one of the saved models."""
    path, random_, outcome = folder / "killed", random.Random(seed), Outcome()
    before = _first(path)
    for number in range(n):
        saver, digests = _start(path, seed + number)
        time.sleep(random_.expovariate(1 / 0.02))
        _end(saver)
        found = str(steelyard.load(path).digest())
        assert found in digests | {before}, f"kill {number}: the file contains neither model"
        outcome.new += found in digests
        outcome.old += found not in digests
        before = found
    steelyard.save(ProximalSVC(), path)  # removes abandoned temporary files
    left = [other.name for other in folder.iterdir() if other != path]
    assert not left, f"temporary files remain: {left}"
    return outcome


def save_at_once(folder: Path, n_savers: int, seconds: float) -> int:
    """Read a path to which several processes save, and assert that each read returns a saved model."""
    path = folder / "shared"
    digests = {_first(path)}
    started = [_start(path, seed) for seed in range(n_savers)]
    for _, of_one in started:
        digests |= of_one
    n_read, deadline = 0, time.monotonic() + seconds
    try:
        while not n_read or time.monotonic() < deadline:
            found = str(steelyard.load(path).digest())
            assert found in digests, f"reading {n_read}: the file contains no saved model"
            n_read += 1
    finally:
        for saver, _ in started:
            _end(saver)
    assert str(steelyard.load(path).digest()) in digests
    return n_read
