"""Atomic saving to files, and loading with validation."""

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

# Names of temporary files contain machine and process, so that later calls can remove orphaned files.
_TEMPORARY_NAME = re.compile(r"\.steelyard-([0-9a-f]{8})-(\d{1,10})-[0-9a-f]{16}\.tmp", re.ASCII)
# Errors that file systems without fsync report.
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS}

PathOrFile = str | os.PathLike[str] | IO[bytes]
Result = TypeVar("Result")


def save(model: Storable, path: PathOrFile) -> None:
    """Save a model to one file.

    The file is replaced atomically: a crash, a full disk or a power failure leaves the previous file. Nothing
    is pickled.

    Parameters
    ----------
    model : object
        A learner of this package, or any object of a class registered with
        :func:`~steelyard.persistence.storable`.
    path : str, os.PathLike or binary file
        The destination. An open file is written to directly, not atomically.

    Raises
    ------
    DataTypeError
        If the model contains an object that cannot be saved, such as a function; nothing is written.
    FileAccessError
        If the file cannot be written.

    Examples
    --------
    >>> import io
    >>> from sklearn.base import BaseEstimator
    >>> from steelyard.persistence import describe, load, save, storable
    >>> @storable("docs.Threshold")
    ... class Threshold(BaseEstimator):
    ...     def __init__(self, value=0.5):
    ...         self.value = value
    ...
    ...     def _get_state(self):
    ...         return {}
    ...
    ...     def _set_state(self, state):
    ...         raise ValueError("a threshold has no state")
    >>> file = io.BytesIO()  # or a path
    >>> save(Threshold(value=0.9), file)
    >>> _ = file.seek(0)
    >>> load(file)
    Threshold(value=0.9)
    >>> _ = file.seek(0)
    >>> describe(file)["parameters"]
    {'value': 0.9}
    """
    parts = to_parts(model)
    if not isinstance(path, (str, os.PathLike)) and hasattr(path, "write"):
        _write_all(path, b"".join(parts))
        return
    name = _file_name(path, "save")
    try:
        _replace_file(os.path.realpath(name), parts)
    except (OSError, ValueError) as error:
        raise _access_error("written", name, "save", error) from error


def write_atomically(
    path: str | os.PathLike[str],
    parts: Iterable[bytes | memoryview],
    *,
    source: str,
    is_private: bool = False,
) -> None:
    """Write any file atomically; missing folders are created.

    An existing device or pipe is written to directly. If the iterable of parts raises an exception, the
    previous file is kept. Error messages name the ``source``. Only its owner can read a private file.
    """
    name = _file_name(path, source)
    target = os.path.realpath(name)
    try:
        if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):  # noqa: PTH110, PTH112, PTH113
            with open(target, "wb") as file:  # noqa: PTH123
                file.writelines(parts)
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        _replace_file(target, parts, is_private=is_private)
    except (BrokenPipeError, SteelyardError):
        raise  # the reader of the pipe has closed it, or the iterable of parts has failed
    except OSError as error:
        raise _access_error("written", name, source, error) from error


def load(path: PathOrFile) -> Any:
    """Load a model written by :func:`save`.

    Only objects of registered classes are created; nothing in a file is executed or imported.

    Parameters
    ----------
    path : str, os.PathLike or binary file
        The file. An open file is read to its end.

    Returns
    -------
    object
        A model with the same class, parameters and predictions, which can continue to learn.

    Raises
    ------
    FileFormatError
        If the file is damaged, foreign, of a newer format, or of a class that is not registered.
    FileAccessError
        If the file cannot be read.
    """
    return _read(path, "load", from_bytes)


def describe(path: PathOrFile) -> dict[str, Any]:
    """Return a summary of a file without creating the model.

    Parameters
    ----------
    path : str, os.PathLike or binary file
        As for :func:`load`. The file is read and validated completely.

    Returns
    -------
    dict
        ``format``, ``class``, ``parameters``, ``versions`` (of the libraries that wrote the file), ``arrays``
        (type and shape of each array) and ``n_bytes``.
    """
    return _read(path, "describe", describe_bytes)


def _read(path: PathOrFile, caller: str, interpret: Callable[[bytes], Result]) -> Result:
    if not isinstance(path, (str, os.PathLike)) and hasattr(path, "read"):
        data = path.read()
        if not isinstance(data, bytes):
            raise DataTypeError(
                f"expected a binary file; reading it returned {type(data).__name__}.",
                source=caller,
                hint='open the file with mode "rb"',
            )
        return interpret(data)
    name = _file_name(path, caller)
    try:
        with open(name, "rb") as file:  # noqa: PTH123  # the name was checked above
            status = os.fstat(file.fileno())
            # Files of other formats and truncated files are rejected before they are read into memory.
            n_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
            check_beginning(file.peek(PRELUDE_SIZE), n_bytes)
            data = file.read()
        return interpret(data)
    except FileFormatError as error:
        raise FileFormatError(f"{name}: {error.summary}", source=caller, hint=error.hint) from error
    except (OSError, ValueError) as error:
        raise _access_error("read", name, caller, error) from error


def _replace_file(target: str, parts: Iterable[bytes | memoryview], *, is_private: bool = False) -> None:
    # Devices and pipes are rejected, because renaming a file would replace them.
    if os.path.lexists(target) and not os.path.isfile(target):  # noqa: PTH113
        kind = "a folder" if os.path.isdir(target) else "not a regular file"  # noqa: PTH112
        raise OSError(f"it is {kind}")
    folder = os.path.dirname(target)  # noqa: PTH120
    _remove_abandoned(folder)
    name = f".steelyard-{_machine_id()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    temporary = os.path.join(folder, name)  # noqa: PTH118
    try:
        _write_temporary(temporary, 0o600 if is_private else _mode_of(target), parts)
        os.replace(temporary, target)  # noqa: PTH105
    except BaseException:  # includes KeyboardInterrupt
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    _sync_folder(folder)


def _mode_of(path: str) -> int | None:
    """Return the permissions of a file, or None if it does not exist."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116
    except FileNotFoundError:
        return None


def _write_temporary(temporary: str, mode: int | None, parts: Iterable[bytes | memoryview]) -> None:
    """Write and sync a temporary file with the permissions ``mode`` of the file that it will replace."""
    # The tempfile module creates private files, but a new file must have the permissions given by the umask.
    # A file that replaces another one never has wider permissions, not even temporarily.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        file.writelines(parts)
        file.flush()
        os.fsync(descriptor)


def _remove_abandoned(folder: str) -> None:
    """Remove temporary files of processes that no longer exist."""
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            writer = _TEMPORARY_NAME.fullmatch(entry.name)
            if writer is not None and writer[1] == _machine_id() and not _is_alive(int(writer[2])):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)  # noqa: PTH108


@cache
def _machine_id() -> str:
    """Return an identifier of this machine, because several machines may share a network folder."""
    return hashlib.blake2b(platform.node().encode(errors="replace"), digest_size=4).hexdigest()


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # on Windows, signal 0 is Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # the process belongs to another user, or the number is not a process id
        return True
    return True


def _sync_folder(folder: str) -> None:
    """Make a new directory entry durable if the file system supports this."""
    try:
        descriptor = os.open(folder or ".", os.O_RDONLY)
    except OSError:  # the folder cannot be listed, or the system cannot open folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in _CANNOT_SYNC:
            return
        raise OSError(
            error.errno,
            "the file was written, but syncing the folder failed, so a power failure may undo the change "
            f"({error.strerror})",
        ) from error
    finally:
        os.close(descriptor)


def _write_all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:  # an unbuffered file may accept only a part of the bytes
            view = view[file.write(view) or 0 :]
    except TypeError as error:
        raise DataTypeError(
            f"expected a binary file; {type(file).__name__} does not accept bytes.",
            source="save",
            hint='open the file with mode "wb"',
        ) from error


def _file_name(path: object, caller: str) -> str:
    if isinstance(path, (str, os.PathLike)):
        return os.fsdecode(path)
    raise DataTypeError(f"expected a path or an open binary file; got {type(path).__name__}.", source=caller)


def _access_error(verb: str, name: str, source: str, error: OSError | ValueError) -> FileAccessError:
    reason = getattr(error, "strerror", None) or str(error)
    hint = "create the folder first" if source == "save" and isinstance(error, FileNotFoundError) else None
    return FileAccessError(f"{name!r} cannot be {verb}: {reason}.", source=source, hint=hint)
