"""A real process, killed without warning while it works: nothing that it acknowledged is lost or doubled."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_kill_9_under_load_loses_nothing_that_was_acknowledged(kind, request):
    # In a process of its own, because it forks; many more kills by `make torture-service`.
    command = [sys.executable, "-m", "tests.service.torture", "--kills", "3", "--seed", "5"]
    if kind == "postgresql":
        command += ["--store", request.getfixturevalue("cluster").empty()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("3 kills, ")
