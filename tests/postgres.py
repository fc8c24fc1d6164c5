"""A PostgreSQL of one's own for tests: a private cluster in a temporary folder, reached by a socket there.

``address`` of :func:`running` is what a driver takes; every test may make a database of its own in it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_SETTINGS = {
    "fsync": "off",  # nothing here outlives the tests
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "40",
    "shared_buffers": "32MB",
}


def program(name):
    """The path of a program of PostgreSQL, wherever Debian or others put it; None where there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or next((str(f / name) for f in folders if (f / name).exists()), None)


def missing():
    """Why there can be no server here, in words; None where there can."""
    if program("initdb") is None or program("pg_ctl") is None:
        return "PostgreSQL (initdb and pg_ctl) is not installed here"
    if os.getuid() == 0 and _other_user() is None:
        return "PostgreSQL does not run as root, and there is no user named postgres or nobody"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg, the driver of PostgreSQL, is not installed"
    return None


def _other_user():
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


def _run(*command):
    user = {"user": _other_user().pw_uid, "group": _other_user().pw_gid} if os.getuid() == 0 else {}
    subprocess.run(
        command, check=True, capture_output=True, cwd="/", extra_groups=[] if user else None, **user
    )


@contextlib.contextmanager
def running():
    """The address of a server that runs as long as this is open."""
    folder = Path(tempfile.mkdtemp(prefix="steelyard-pg-"))  # short: a path of a socket has 107 characters
    try:
        if os.getuid() == 0:
            os.chown(folder, _other_user().pw_uid, _other_user().pw_gid)
        data = str(folder / "data")
        _run(program("initdb"), "-D", data, "-U", "steelyard", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = " ".join(f"-c {name}={value!r}" for name, value in _SETTINGS.items())
        log = str(folder / "log")
        _run(program("pg_ctl"), "-D", data, "-w", "-l", log, "-o", f"-k {folder} {options}", "start")
        try:
            yield f"postgresql://steelyard@/postgres?host={folder}"
        finally:
            _run(program("pg_ctl"), "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server():
    """The address of a server that all tests of a session share; skips where there can be none."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with running() as address:
        yield address


@pytest.fixture
def postgres(postgres_server):
    """The address of an empty database of a test's own."""
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        name = f"test_{connection.info.backend_pid}"
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres_server.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
