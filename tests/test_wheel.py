"""The script that builds reproducible wheels, on a project without native code."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "wheel.py"
SETTINGS = """
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"
[project]
name = "tiny"
version = "1.0"
[tool.scikit-build]
wheel.cmake = false
wheel.packages = ["src/tiny"]
"""


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("scikit_build_core", reason="the wheels are built by it")
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    spec = importlib.util.spec_from_file_location("wheel_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(project, *words):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(project), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    """A project with the same commit in every run but different file times."""
    folder = tmp_path / "project"
    package = folder / "src" / "tiny"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(SETTINGS)
    for name in ("__init__.py", "b.py", "a.py"):
        (package / name).write_text(f"name = '{name}'\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Add everything")
    return folder


def test_two_builds_of_one_commit_are_byte_identical(script, project, tmp_path):
    first = script.build(project, tmp_path / "one")
    for file in (project / "src").rglob("*.py"):
        os.utime(file, (1, 1))
    (project / "scratch.txt").write_text("not committed")
    second = script.build(project, tmp_path / "two")
    assert first.read_bytes() == second.read_bytes()
    assert script.find(project, tmp_path / "one") == first


def test_wheel_of_another_commit_is_ignored_and_uncommitted_changes_raise(script, project, tmp_path):
    script.build(project, tmp_path / "out")
    (project / "src" / "tiny" / "a.py").write_text("changed = True\n")
    assert script.find(project, tmp_path / "out") is None
    with pytest.raises(SystemExit, match="not committed"):
        script.build(project, tmp_path / "out")
    git(project, "commit", "--quiet", "-am", "Change a module")
    assert script.find(project, tmp_path / "out") is None
