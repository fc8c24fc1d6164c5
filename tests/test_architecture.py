"""docs/architecture.md names every package and only files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="tests of an installed wheel have no docs folder")


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


def test_every_file_named_on_architecture_page_exists(page):
    existing = [
        f"/{path.relative_to(ROOT)}" for folder in ("src", "docs") for path in (ROOT / folder).rglob("*.*")
    ]
    named = set(re.findall(r"[\w/]+\.(?:py|cpp|hpp)\b", page))
    assert len(named) > 60
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in existing)] == []


def test_architecture_page_lists_every_package(page):
    components = page.split("## Four calls")[0]
    package = ROOT / "src" / "steelyard"
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert [name for name in sorted(folders | modules) if name not in components] == []
