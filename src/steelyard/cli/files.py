"""Files that commands write: checked before the work, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

__all__ = ["ANY_FILE", "OUT_FILE", "save_model", "written_with"]


class _OutFile(click.Path):
    """Where to write. Folders that are missing will be made; what could not be written is refused at once."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.exists() and not path.is_file():
            return path  # a device or a pipe
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            self.fail(f"'{path}' cannot be written: '{folder}' is no folder.", param, ctx)
        if not os.access(folder, os.W_OK | os.X_OK):
            self.fail(f"'{path}' cannot be written: the folder '{folder}' is not writable.", param, ctx)
        return path


OUT_FILE = _OutFile()
ANY_FILE = click.Path(dir_okay=False, path_type=Path)  # there already, or made by what it is for


def save_model(model: Any, path: Path) -> None:
    """Save a model, in a folder that is made where it is missing."""
    from steelyard.persistence.files import write_atomically
    from steelyard.persistence.objects import to_parts

    write_atomically(path, to_parts(model), source="save")


@contextmanager
def written_with(path: Path, text: str) -> Iterator[None]:
    """A text file that stands or falls with what is written inside; when that fails, all is as before."""
    from steelyard.persistence.files import write_atomically

    before = path.read_bytes() if path.is_file() else None
    write_atomically(path, [text.encode()], source="save")
    try:
        yield
    except BaseException:  # Ctrl-C too
        if before is not None:
            write_atomically(path, [before], source="save")
        elif path.is_file():
            path.unlink()
        raise
