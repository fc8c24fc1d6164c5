"""Files of ``deploy/``: the systemd unit and its sandbox, the container file and its locked requirements."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from steelyard.cli.serve import serve_command

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "steelyard.service"
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text()
MAX_EXPOSURE = 3.0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_unit_has_low_security_exposure():
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Overall exposure" not in said.stdout:
        pytest.skip(f"this systemd-analyze cannot rate a file: {said.stderr.strip()[:200]}")
    assert float(re.search(r"Overall exposure level.*: ([\d.]+)", said.stdout).group(1)) <= MAX_EXPOSURE


def options_of(command):
    return set(re.findall(r"(--[a-z-]+)", command))


def test_systemd_unit_and_container_use_existing_command_options():
    known = {name for parameter in serve_command.params for name in parameter.opts}
    start = re.search(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE).group(1)
    assert options_of(start) <= known
    assert options_of(CONTAINER[CONTAINER.index("ENTRYPOINT") :]) <= known


def test_container_has_health_check_numeric_user_and_pinned_base():
    assert re.search(r"^USER \d+:\d+$", CONTAINER, re.MULTILINE)
    assert re.search(r"^ARG BASE=\S+:\d+\.\d+\.\d+", CONTAINER, re.MULTILINE)
    assert "HEALTHCHECK" in CONTAINER
    assert "/health/ready" in CONTAINER
    assert "--require-hashes" in CONTAINER


def test_locked_requirements_list_every_service_dependency_with_hashes():
    lines = (ROOT / "deploy" / "requirements.txt").read_text().replace("\\\n", " ").splitlines()
    locked = {}
    for line in lines:
        if not line.startswith("#"):
            found = re.fullmatch(r"(\S+)==(\S+)(?:\s+--hash=sha256:[0-9a-f]{64})+\s*", line)
            assert found, line
            locked[found.group(1).replace("_", "-")] = found.group(2)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = list(project["dependencies"])
    for extra in ("service", "postgresql", "tables"):
        needed += project["optional-dependencies"][extra]
    names = {re.match(r"[A-Za-z0-9._-]+", requirement).group().lower() for requirement in needed}
    assert names <= set(locked)
