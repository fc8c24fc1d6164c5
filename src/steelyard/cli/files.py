"""Output files of commands. Paths are validated before the work starts; files are written atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from steelyard.exceptions import FileAccessError


class _OutFile(click.Path):
    """Path of an output file. Missing folders are created. A path that cannot be written is a usage error."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.exists() and not path.is_file():
            return path  # devices and pipes need no check
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            self.fail(f"'{path}' cannot be written: '{folder}' is not a folder.", param, ctx)
        if not os.access(folder, os.W_OK | os.X_OK):
            self.fail(f"'{path}' cannot be written: the folder '{folder}' is not writable.", param, ctx)
        return path


IN_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUT_FILE = _OutFile()
ANY_FILE = click.Path(dir_okay=False, path_type=Path)  # file that need not exist


def read_file(path: Path) -> bytes:
    """Return the bytes of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=str(path)) from error


def save_model(model: Any, path: Path) -> None:
    """Save a model atomically; missing folders are created."""
    from steelyard.persistence.files import write_atomically
    from steelyard.persistence.objects import to_parts

    write_atomically(path, to_parts(model), source="save")


@contextmanager
def rollback_on_error(path: Path, text: str) -> Iterator[None]:
    """Write a text file; restore its previous content if the body of the ``with`` statement fails."""
    from steelyard.persistence.files import write_atomically

    before = path.read_bytes() if path.is_file() else None
    write_atomically(path, [text.encode()], source="save")
    try:
        yield
    except BaseException:  # includes KeyboardInterrupt
        if before is not None:
            write_atomically(path, [before], source="save")
        elif path.is_file():
            path.unlink()
        raise
