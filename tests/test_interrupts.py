"""Ctrl-C stops a long native computation soon and leaves the learner unchanged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

# Each program would take minutes. After the interrupt it prints values that must not have changed.
LONG = {
    "a body around many rows": """
        from steelyard import EnclosingClassifier

        model = EnclosingClassifier(shape="sphere", kernel="rbf", gamma=50.0, outliers=0.1)
        model.fit(rng.normal(size=(50, 8)), ["a"] * 50)
        few = rng.normal(size=(5, 8))
        before = model.distance_ratio(few)
        model.partial_fit(rng.normal(size=(60_000, 8)), ["b"] * 60_000)
        begin()
        try:
            model.predict(few)
        except KeyboardInterrupt:
            counts = model.class_count_.tolist() == [50, 60_000]
            print(counts and np.array_equal(model.forget_class("b").distance_ratio(few), before))
    """,
    "an exact SVM": """
        from steelyard import IncrementalSVC

        model = IncrementalSVC(kernel="rbf", gamma=0.5, C=1000.0)
        model.fit(rng.normal(size=(50, 8)), rng.integers(2, size=50))
        few = rng.normal(size=(5, 8))
        before = model.decision_function(few)
        X, y = rng.normal(size=(9_000, 8)), rng.integers(2, size=9_000)
        begin()
        try:
            model.partial_fit(X, y)
        except KeyboardInterrupt:
            same = np.array_equal(model.decision_function(few), before)
            model.partial_fit(X[:5], y[:5])  # continues from the unchanged state
            print(same)
    """,
    "a matrix of sequence kernels": """
        from steelyard.kernels.sequences import GlobalAlignmentKernel

        kernel, walks = GlobalAlignmentKernel(1.0), list(rng.normal(size=(3000, 300, 1)))
        begin()
        try:
            kernel(walks, walks)
        except KeyboardInterrupt:
            print(kernel(walks[:2], walks[:2]).shape == (2, 2))
    """,
    "gradient boosting": """
        from steelyard.ensemble.experts.boosting import fit_trees

        before = fit_trees(np.eye(2), np.array([0, 1]), n_trees=20, learning_rate=0.1)
        X, y = rng.normal(size=(100_000, 9)), rng.integers(3, size=100_000)
        begin()
        try:
            fit_trees(X, y, n_trees=100_000, learning_rate=0.1)
        except KeyboardInterrupt:
            later = fit_trees(np.eye(2), np.array([0, 1]), n_trees=20, learning_rate=0.1)
            print(all(map(np.array_equal, later.forest, before.forest)))
    """,
}
# Background jobs of a shell ignore SIGINT.
PREFACE = """
import signal

import numpy as np

signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)


def begin():
    print("begins", flush=True)

"""


def _processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait_for_native_loops(pid):
    """Wait until the process has used half a second of processor time. On a busy machine this may be late."""
    if not Path("/proc").is_dir():
        time.sleep(1.0)
        return
    begin = _processor_seconds(pid)
    while _processor_seconds(pid) < begin + 0.5:
        time.sleep(0.05)


@pytest.mark.parametrize("what", LONG)
def test_interrupt_ends_long_call_soon_and_keeps_state(what):
    program = PREFACE + textwrap.dedent(LONG[what])
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        stop = threading.Timer(300, process.kill)
        stop.start()
        assert process.stdout.readline() == "begins\n"
        _wait_for_native_loops(process.pid)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        answer = process.stdout.read()
        process.wait()
        took = time.monotonic() - sent
        stop.cancel()
    assert answer == "True\n"
    assert took < 30.0  # seconds, on a busy machine; without the signal, the calls take minutes
