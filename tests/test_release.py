"""Limits of the changelog, compiler extensions of the native code, and the list of needed packages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCREEN_LINES = 45
NATIVE = sorted(path for path in (ROOT / "src" / "native").rglob("*.[ch]pp"))
EXTENSION = re.compile(
    r"__builtin_|__attribute|\[\[(gnu|clang)::|__int128|__float128|__extension__|__restrict"
    r"|__GNUC__|__clang__|#pragma (?!once)|_Pragma|\btypeof\b|__typeof|\bvector_size\b|\basm\b|\b__asm"
)


def changelog_sections() -> dict[str, str]:
    """Return the text of every version by its heading."""
    _, *sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {text.split("\n", maxsplit=1)[0]: text.strip() for text in sections}


@pytest.mark.parametrize("version", changelog_sections())
def test_changes_of_a_version_fit_on_one_screen(version):
    assert len(changelog_sections()[version].splitlines()) <= SCREEN_LINES


def test_changelog_links_existing_pages():
    pages = set(re.findall(r"\bdocs/[\w/]+\.md", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    assert pages
    assert [page for page in sorted(pages) if not (ROOT / page).exists()] == []


@pytest.mark.parametrize(
    "line",
    ["__builtin_ctz(x)", "#pragma GCC unroll 4", "[[gnu::noinline]]", 'asm("" : "+v"(x))', "__restrict"],
)
def test_compiler_extension_is_found_in_a_line(line):
    assert EXTENSION.search(line)
    assert not EXTENSION.search("#pragma once  // STEELYARD_RESTRICT, STEELYARD_VECTOR(32), constructor")


def test_compiler_extensions_occur_only_in_the_compiler_header():
    found = {
        path.relative_to(ROOT / "src" / "native").as_posix()
        for path in NATIVE
        if EXTENSION.search(path.read_text())
    }
    assert found == {"common/compiler.hpp"}


def test_needed_packages_contain_those_of_nested_extras_once(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["numpy>=1"]\n[project.optional-dependencies]\n'
        'tables = ["pandas", "numpy>=1"]\ndev = ["pytest", "steelyard[tables,docs]"]\ndocs = ["sphinx"]\n'
    )
    spec = importlib.util.spec_from_file_location("needed_script", ROOT / ".ci" / "needed.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.needed(tmp_path, []) == ["numpy>=1"]
    assert script.needed(tmp_path, ["dev"]) == ["numpy>=1", "pytest", "pandas", "sphinx"]
