"""What `import steelyard` offers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import steelyard


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert steelyard.__version__ == project["version"]


def test_every_public_name_is_there():
    assert all(hasattr(steelyard, name) for name in steelyard.__all__)
