"""Models in files: written whole or not at all, read with all checks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import stat
from functools import cache
from typing import IO, TYPE_CHECKING, Any, TypeVar

from steelyard.exceptions import DataTypeError, FileAccessError, FileFormatError, SteelyardError
from steelyard.persistence.envelope import PRELUDE_SIZE, check_beginning
from steelyard.persistence.objects import Storable, describe_bytes, from_bytes, to_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["describe", "load", "save", "write_whole"]

# Temporary files name the machine and the process that write them: who saves later can tell whether it lives.
_LEFTOVER = re.compile(r"\.steelyard-([0-9a-f]{8})-(\d{1,10})-[0-9a-f]{16}\.tmp", re.ASCII)
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS}  # nothing broke: it is not done here

PathOrFile = str | os.PathLike[str] | IO[bytes]
Result = TypeVar("Result")


def save(model: Storable, path: PathOrFile) -> None:
    """Save a model to one file.

    The file appears whole or not at all: a crash, a full disk or a power cut leaves the file that was
    there before. Nothing is pickled.

    Parameters
    ----------
    model : object
        A learner of this package, or any object of a class registered with
        :func:`~steelyard.persistence.storable`.
    path : str, os.PathLike or binary file
        Where to write. An open file is written to as it is, without the promise above.

    Raises
    ------
    DataTypeError
        When the model holds what no file can hold, such as a function; nothing is written.
    FileAccessError
        When the file cannot be written.

    Examples
    --------
    >>> import io
    >>> from sklearn.base import BaseEstimator
    >>> from steelyard.persistence import describe, load, save, storable
    >>> @storable("docs.Threshold")
    ... class Threshold(BaseEstimator):
    ...     def __init__(self, cut=0.5):
    ...         self.cut = cut
    ...
    ...     def _get_state(self):
    ...         return {}
    ...
    ...     def _set_state(self, state):
    ...         raise ValueError("a threshold learns nothing")
    >>> file = io.BytesIO()  # or a path
    >>> save(Threshold(cut=0.9), file)
    >>> _ = file.seek(0)
    >>> load(file)
    Threshold(cut=0.9)
    >>> _ = file.seek(0)
    >>> describe(file)["parameters"]
    {'cut': 0.9}
    """
    parts = to_parts(model)
    if not isinstance(path, (str, os.PathLike)) and hasattr(path, "write"):
        _write_all(path, b"".join(parts))
        return
    name = _file_name(path, "save")
    try:
        _write_atomically(os.path.realpath(name), parts)
    except (OSError, ValueError) as error:
        raise _access_error("save", name, error) from error


def write_whole(path: str | os.PathLike[str], parts: Iterable[bytes | memoryview], *, source: str) -> None:
    """Write any file whole or not at all, in folders that are made where they are missing.

    Parameters
    ----------
    path : str or os.PathLike
        Where to write; a device or a pipe that is there is written to as it is.
    parts : iterable of bytes
        The content, made while it is written; what making it raises leaves the file that was there before.
    who : str
        Who writes, for the sentence.

    Raises
    ------
    FileAccessError
        When the file cannot be written.
    """
    name = _file_name(path, source)
    target = os.path.realpath(name)
    try:
        if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):  # noqa: PTH110, PTH112, PTH113
            with open(target, "wb") as file:  # noqa: PTH123
                file.writelines(parts)
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        _write_atomically(target, parts)
    except BrokenPipeError:
        raise  # whoever read has read enough
    except SteelyardError:
        raise
    except OSError as error:
        raise FileAccessError(
            f"{name!r} cannot be written: {error.strerror or error}.", source=source
        ) from error


def load(path: PathOrFile) -> Any:
    """Load a model that :func:`save` has written.

    Only classes that the running program has registered are built; nothing that a file says is
    executed or imported.

    Parameters
    ----------
    path : str, os.PathLike or binary file
        Where to read. An open file is read to its end.

    Returns
    -------
    object
        The model: same class, same parameters, same answers, ready to go on learning.

    Raises
    ------
    FileFormatError
        When the file is damaged, foreign, of a newer format, or of a class that is not registered.
    FileAccessError
        When the file cannot be read.
    """
    return _read(path, "load", from_bytes)


def describe(path: PathOrFile) -> dict[str, Any]:
    """Tell what a file holds without building the model.

    Parameters
    ----------
    path : str, os.PathLike or binary file
        Where to read; the whole file is read and checked.

    Returns
    -------
    dict
        ``format``, ``class``, ``parameters``, ``versions`` (of the libraries that wrote it), ``arrays``
        (type and shape of each) and ``n_bytes``.

    Raises
    ------
    FileFormatError
        When the file is damaged, foreign or of a newer format.
    FileAccessError
        When the file cannot be read.
    """
    return _read(path, "describe", describe_bytes)


def _read(path: PathOrFile, caller: str, interpret: Callable[[bytes], Result]) -> Result:
    if not isinstance(path, (str, os.PathLike)) and hasattr(path, "read"):
        data = path.read()
        if not isinstance(data, bytes):
            raise DataTypeError(
                f"a binary file was expected; reading it gave {type(data).__name__}.",
                source=caller,
                hint='open the file with mode "rb"',
            )
        return interpret(data)
    name = _file_name(path, caller)
    try:
        with open(name, "rb") as file:  # noqa: PTH123  # name is text, checked above
            status = os.fstat(file.fileno())
            # A file that is not ours, or not whole, is refused before it is read into memory.
            n_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
            check_beginning(file.peek(PRELUDE_SIZE), n_bytes)
            data = file.read()
        return interpret(data)
    except FileFormatError as error:
        raise FileFormatError(f"{name}: {error.summary}", source=caller, hint=error.hint) from error
    except (OSError, ValueError) as error:
        raise _access_error(caller, name, error) from error


def _write_atomically(target: str, parts: Iterable[bytes | memoryview]) -> None:
    # Renaming onto a device or a pipe would take its place in the file system.
    if os.path.lexists(target) and not os.path.isfile(target):  # noqa: PTH113
        kind = "a folder" if os.path.isdir(target) else "not a regular file"  # noqa: PTH112
        raise OSError(f"it is {kind}")
    folder = os.path.dirname(target)  # noqa: PTH120
    _remove_leftovers(folder)
    name = f".steelyard-{_machine()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    temporary = os.path.join(folder, name)  # noqa: PTH118
    try:
        _write_beside(temporary, target, parts)
        os.replace(temporary, target)  # noqa: PTH105
    except BaseException:  # Ctrl-C too must leave nothing behind
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    _sync_folder(folder)


def _write_beside(temporary: str, target: str, parts: Iterable[bytes | memoryview]) -> None:
    """Write and sync a new file that may be read by whoever may read the one that it will replace."""
    mode = _mode_of(target)
    # Not the tempfile module, whose files only their owner may read: for a new file the umask decides. One
    # that replaces another is never, not even for a moment, open to more people than that.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        file.writelines(parts)
        file.flush()
        os.fsync(descriptor)


def _mode_of(target: str) -> int | None:
    try:
        return stat.S_IMODE(os.stat(target).st_mode)  # noqa: PTH116
    except FileNotFoundError:
        return None


def _remove_leftovers(folder: str) -> None:
    """Remove what savers that were killed have left in a folder: files of processes that are no more."""
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            writer = _LEFTOVER.fullmatch(entry.name)
            if writer is not None and writer[1] == _machine() and not _is_alive(int(writer[2])):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)  # noqa: PTH108


@cache
def _machine() -> str:
    """Tells machines apart that write to one folder over a network."""
    return hashlib.blake2b(platform.node().encode(errors="replace"), digest_size=4).hexdigest()


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere signal 0 is no question
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's, or a number that no process can have here
        return True
    return True


def _sync_folder(folder: str) -> None:
    """Make the new name itself durable, on file systems that can."""
    try:
        descriptor = os.open(folder or ".", os.O_RDONLY)
    except OSError:  # a folder that may be written to but not listed, or a system that opens no folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in _CANNOT_SYNC:
            return
        raise OSError(
            error.errno,
            "the new file is in place, but the folder could not be synced, so that it is not certain to "
            f"outlast a power cut ({error.strerror})",
        ) from error
    finally:
        os.close(descriptor)


def _write_all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:  # an unbuffered file may take less than it was given
            view = view[file.write(view) or 0 :]
    except TypeError as error:
        raise DataTypeError(
            f"a binary file was expected; {type(file).__name__} does not take bytes.",
            source="save",
            hint='open the file with mode "wb"',
        ) from error


def _file_name(path: object, caller: str) -> str:
    if isinstance(path, (str, os.PathLike)):
        return os.fsdecode(path)
    raise DataTypeError(
        f"a path or an open binary file was expected; got {type(path).__name__}.", source=caller
    )


def _access_error(caller: str, name: str, error: OSError | ValueError) -> FileAccessError:
    reason = getattr(error, "strerror", None) or str(error)
    verb = "written" if caller == "save" else "read"
    hint = "create the folder first" if caller == "save" and isinstance(error, FileNotFoundError) else None
    return FileAccessError(f"{name!r} cannot be {verb}: {reason}.", source=caller, hint=hint)
