"""Commits of results: which commit computed a section of the pages, and whether code changed since."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from papers.sections import Section

__all__ = ["current_commit", "stale_sections"]

_ROOT = Path(__file__).parents[1]


def current_commit() -> str:
    """Return the short hash of the current commit, or "" outside of a repository."""
    return _git("rev-parse", "--short", "HEAD")


def stale_sections(sections: Mapping[str, Section], modules: Mapping[str, str]) -> dict[str, str]:
    """Return the sections that may be out of date by name, each with the reason.

    A section is stale if it names no commit, or if the module of its experiment changed after that commit.
    ``modules`` are the module names by experiment.
    """
    reasons = {}
    for name, section in sections.items():
        found = re.search(r"commit ([0-9a-f]+)", section.circumstances)
        module = modules[name].replace(".", "/") + ".py"
        if found is None:
            reasons[name] = "no commit"
        elif changes := _git("log", "--format=%h", f"{found[1]}..HEAD", "--", module):
            reasons[name] = f"{module} changed in {changes.splitlines()[0]}"
    return reasons


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  fixed arguments
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
