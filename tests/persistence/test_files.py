"""Files are written atomically, and every failure raises an error with a message."""

from __future__ import annotations

import errno
import io
import math
import os
import pathlib
import stat
import subprocess
import sys

import pytest
from persistence_samples import Inner, Learner, learner

from steelyard.exceptions import DataTypeError, FileAccessError, FileFormatError
from steelyard.persistence import describe, files, load, save, to_bytes


def test_save_then_load_returns_equal_model(tmp_path):
    for path in (tmp_path / "a.model", str(tmp_path / "b.model")):
        save(learner(), path)
        assert to_bytes(load(path)) == to_bytes(learner()) == pathlib.Path(path).read_bytes()


def test_save_and_load_accept_open_files(tmp_path):
    with (tmp_path / "a").open("wb", buffering=0) as file:
        save(learner(), file)
    with (tmp_path / "a").open("rb") as file:
        assert to_bytes(load(file)) == to_bytes(learner())


def test_text_mode_files_raise():
    with pytest.raises(DataTypeError, match=r'expected a binary file.*\nhint: .*"wb"'):
        save(learner(), io.StringIO())
    with pytest.raises(DataTypeError, match=r'expected a binary file.*\nhint: .*"rb"'):
        load(io.StringIO("text"))


def test_object_that_is_neither_path_nor_file_raises():
    for call in (lambda: save(Inner(), 3), lambda: load(3)):
        with pytest.raises(DataTypeError, match="expected a path or an open binary file; got int"):
            call()


def test_describe_returns_summary_without_building_model(tmp_path, monkeypatch):
    save(learner(), tmp_path / "m")
    monkeypatch.setattr(Learner, "__init__", None)
    about = describe(tmp_path / "m")
    assert (about["format"], about["class"]) == (1, "tests.Learner")
    assert about["parameters"]["feature_map"] == {"class": "tests.Inner", "parameters": {"width": math.inf}}
    assert about["parameters"]["random_state"] == {"class": "Generator", "bit_generator": "PCG64"}
    assert set(about["versions"]) == {"steelyard", "python", "numpy", "scikit-learn"}
    assert about["arrays"][:2] == [("<f8", (3, 4)), ("<f4", (3, 2))]
    assert about["n_bytes"] == (tmp_path / "m").stat().st_size


def test_new_file_gets_permissions_from_umask(tmp_path):
    save(Inner(), tmp_path / "m")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "m").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_replaced_file_keeps_its_permissions(tmp_path, mode):
    save(Inner(1.0), tmp_path / "m")
    (tmp_path / "m").chmod(mode)
    save(Inner(2.0), tmp_path / "m")
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == mode
    assert load(tmp_path / "m").width == 2.0


def test_private_file_stays_private_while_it_is_written(tmp_path, monkeypatch):
    save(Inner(1.0), tmp_path / "m")
    (tmp_path / "m").chmod(0o600)
    seen = []
    sync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (seen.append(stat.S_IMODE(os.fstat(file).st_mode)), sync(file))[1]
    )
    save(Inner(2.0), tmp_path / "m")
    assert seen[0] == 0o600


def test_save_removes_temporary_files_of_dead_processes_only(tmp_path):
    script = "import os, signal; print(os.getpid(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    dead = int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).stdout)
    machine = files._machine_id()
    left = tmp_path / f".steelyard-{machine}-{dead}-{'0' * 16}.tmp"
    others = [
        tmp_path / f".steelyard-{machine}-{os.getpid()}-{'0' * 16}.tmp",
        tmp_path / f".steelyard-{'0' * 8}-{dead}-{'0' * 16}.tmp",  # written on another machine
        tmp_path / f".steelyard-{dead}.tmp",
    ]
    for path in (left, *others):
        path.write_bytes(b"half")
    save(Inner(), tmp_path / "m")
    assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / "m"])


def test_failed_folder_sync_raises_unless_unsupported(tmp_path, monkeypatch):
    sync = os.fsync

    def only_files(number):
        def call(file):
            if stat.S_ISDIR(os.fstat(file).st_mode):
                raise OSError(number, os.strerror(number))
            sync(file)

        return call

    monkeypatch.setattr(os, "fsync", only_files(errno.EIO))
    with pytest.raises(FileAccessError, match="the file was written, but syncing the folder failed"):
        save(Inner(3.0), tmp_path / "m")
    assert load(tmp_path / "m").width == 3.0
    monkeypatch.setattr(os, "fsync", only_files(errno.EINVAL))
    save(Inner(4.0), tmp_path / "m")


def test_save_to_symlink_replaces_its_target(tmp_path):
    save(Inner(1.0), tmp_path / "m")
    (tmp_path / "link").symlink_to(tmp_path / "m")
    save(Inner(2.0), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "m").width == 2.0


def fail(error):
    def raise_it(*args, **kwargs):
        raise error

    return raise_it


@pytest.mark.parametrize("step", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_failed_write_keeps_old_file_and_leaves_no_temporary_file(tmp_path, monkeypatch, step, error):
    save(Inner(1.0), tmp_path / "m")
    monkeypatch.setattr(os, step, fail(error))
    with pytest.raises(FileAccessError if isinstance(error, OSError) else KeyboardInterrupt):
        save(Inner(2.0), tmp_path / "m")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [tmp_path / "m"]
    assert load(tmp_path / "m").width == 1.0


def test_unencodable_model_keeps_old_file_and_leaves_no_temporary_file(tmp_path):
    save(Inner(1.0), tmp_path / "m")
    with pytest.raises(DataTypeError):
        save(Inner(object()), tmp_path / "m")
    assert list(tmp_path.iterdir()) == [tmp_path / "m"]
    assert load(tmp_path / "m").width == 1.0


def test_unwritable_path_is_named_in_error(tmp_path, monkeypatch):
    with pytest.raises(FileAccessError, match=r"No such file or directory\.\nhint: create the folder first"):
        save(Inner(), tmp_path / "none" / "m")
    with pytest.raises(FileAccessError, match="it is a folder"):
        save(Inner(), tmp_path)
    with pytest.raises(FileAccessError, match="not a regular file"):
        save(Inner(), os.devnull)
    with pytest.raises(FileAccessError, match="null"):
        save(Inner(), "a\0b")
    monkeypatch.setattr("builtins.open", fail(PermissionError(13, "Permission denied")))
    with pytest.raises(FileAccessError, match="cannot be written: Permission denied"):
        save(Inner(), tmp_path / "m")


def test_unreadable_path_is_named_in_error(tmp_path):
    with pytest.raises(FileAccessError, match="cannot be read: No such file"):
        load(tmp_path / "none")
    with pytest.raises(FileAccessError, match="cannot be read: Is a directory"):
        describe(tmp_path)
    with pytest.raises(FileAccessError, match="null"):
        load("a\0b")


def test_damaged_file_is_named_in_error(tmp_path):
    (tmp_path / "m").write_bytes(to_bytes(learner())[:-1])
    with pytest.raises(FileFormatError, match=r"load: .*m: The file is truncated: it has \d+ of \d+ bytes"):
        load(tmp_path / "m")


def test_endless_file_is_rejected_from_its_first_bytes():
    with pytest.raises(FileFormatError, match="not a steelyard file"):
        load("/dev/zero")
