"""Public names, wheel contents, import time and dependency bounds of the package."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import steelyard


def test_version_equals_pyproject_version():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert steelyard.__version__ == project["version"]


def test_every_name_in_dunder_all_exists():
    assert all(hasattr(steelyard, name) for name in steelyard.__all__)


@pytest.fixture(scope="module")
def wheel_files(tmp_path_factory):
    """Return the names of the files of a wheel, without the compiled module, which would take minutes."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys, scikit_build_core.build as b; b.build_wheel(sys.argv[1], {'wheel.cmake': 'false'})"
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=root, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as archive:
        return archive.namelist()


def test_wheel_contains_only_the_package(wheel_files):
    folders = {name.split("/")[0] for name in wheel_files}
    assert folders == {"steelyard", f"steelyard-{steelyard.__version__}.dist-info"}
    assert "steelyard/__init__.py" in wheel_files
    assert "steelyard/proximal/estimator.py" in wheel_files


def test_wheel_does_not_contain_paper_experiments(wheel_files):
    assert not [name for name in wheel_files if "papers" in name.split("/")]


def test_import_does_not_load_slow_dependencies():
    """The package does not import scikit-learn until a learner is first used."""
    code = (
        "import sys, steelyard\n"
        "slow = {'sklearn', 'scipy.stats', 'pandas', 'pyarrow'}\n"
        "print(sorted(slow & set(sys.modules)))\n"
        "steelyard.ProximalSVC\n"
        "print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]


# -- the lock file of CI -----------------------------------------------------------------------------------

ROOT = Path(__file__).parents[1]


def locked():
    text = (ROOT / ".ci" / "requirements.lock").read_text(encoding="utf-8")
    return text, {
        name.replace("_", "-").lower(): version
        for name, version in re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==([^ ;\\]+)", text, re.MULTILINE)
    }


def wanted(extra, extras):
    """Return the requirements of an extra, including those of nested extras."""
    for line in extras[extra]:
        inner = re.fullmatch(r"steelyard\[(.+)\]", line)
        if inner:
            for other in inner[1].split(","):
                yield from wanted(other.strip(), extras)
        else:
            yield line


def test_lock_file_has_every_dependency_within_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    _, versions = locked()
    lines = [*project["dependencies"], *wanted("dev", project["optional-dependencies"])]
    for need in map(Requirement, lines):
        name = need.name.replace("_", "-").lower()
        assert name in versions, f"{name} is not locked: make lock"
        assert need.specifier.contains(versions[name], prereleases=True), (
            f"{need}: {versions[name]}: make lock"
        )


def test_lock_file_has_hashes_and_no_index():
    text, versions = locked()
    assert not re.search(r"https?://|file:|--(extra-)?index-url|--find-links", text)
    for block in re.split(r"\n(?=\S)", text.strip()):
        if "==" in block:
            assert "--hash=sha256:" in block, block
    assert len(versions) > 50


# -- the lower bounds ----------------------------------------------------------------------------------------


def lower_bounds():
    """Return the lower bounds of all dependencies, and the names of the packages that tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    bounds, needed = {}, set()
    for line in [*project["dependencies"], *wanted("dev", extras)]:
        need = Requirement(line)
        (bound,) = need.specifier
        bounds[need.name] = bound.version
        if line not in extras["dev"]:  # the other requirements of dev are tools
            needed.add(need.name)
    return bounds, needed


def lowest():
    text = (ROOT / "tests" / "lowest-requirements.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==(\S+)$", text, re.MULTILINE))


def test_lowest_tested_versions_equal_lower_bounds():
    bounds, _ = lower_bounds()
    for name, tried in lowest().items():
        if name in bounds:
            assert Version(tried) == Version(bounds[name]), f"tests/lowest-requirements.txt: {name}"


def test_every_lower_bound_of_a_dependency_is_tested():
    _, needed = lower_bounds()
    assert sorted(needed - set(lowest())) == []
