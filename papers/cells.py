"""Cached results of tasks on disk, so that an interrupted run can resume."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["Cell", "Cells"]

Key = Mapping[str, Any]  # everything that the result depends on, as JSON


@dataclass(frozen=True)
class Cell:
    """The result of a task as JSON, and the seconds that the task took."""

    answer: Any
    seconds: float


class Cells:
    """Cache of task results in a folder, with one file per key.

    The version of the library is part of every key. Results stored by this object are always reused, so
    experiments of one run share their work. Results of earlier runs are reused only with `resume`.
    """

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        self.folder = folder
        self.resume = resume
        self._kept: set[Path] = set()

    def find(self, key: Key) -> Cell | None:
        """Return the cell of a key, or None if there is no valid one."""
        path, full_key = self._place(key)
        if not (self.resume or path in self._kept):
            return None
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return Cell(stored["answer"], stored["seconds"]) if stored["key"] == full_key else None
        except (OSError, ValueError, KeyError):
            return None

    def keep(self, key: Key, cell: Cell) -> None:
        """Write a cell atomically."""
        path, full_key = self._place(key)
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"key": full_key, "seconds": cell.seconds, "answer": cell.answer}, indent=1)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
        self._kept.add(path)

    def _place(self, key: Key) -> tuple[Path, dict[str, Any]]:
        """Return path and full key. The file name starts with the strings of the key, for readability."""
        full_key = {**key, "version": version("steelyard")}
        text = json.dumps(full_key, sort_keys=True)
        names = "-".join(value for value in key.values() if isinstance(value, str))
        readable = re.sub(r"[^\w.+]+", "_", names)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return self.folder / f"{readable}-{digest}.json", json.loads(text)
