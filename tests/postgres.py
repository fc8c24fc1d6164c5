"""Private PostgreSQL server for tests, in a temporary folder with a Unix socket."""

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
    "listen_addresses": "''",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",
}
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def programs():
    """Return the folder of the server programs, or None if PostgreSQL is not installed."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    found = shutil.which("initdb") or (versions[-1] if versions else None)
    return None if found is None else Path(found).parent


def missing():
    """Return why no server can be started, or None."""
    if programs() is None:
        return "no PostgreSQL server is installed (Debian: apt install postgresql)"
    if os.geteuid() == 0 and _other_user() is None:
        return "PostgreSQL does not run as root, and there is no user named postgres or nobody"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg, the driver of PostgreSQL, is not installed"
    return None


def _other_user():
    for name in ("nobody", "postgres"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


class Cluster:
    """PostgreSQL server in a temporary folder. If no server can be started, the test is skipped.

    A server with ``safe=True`` is durable. Other servers do not flush to disk and are faster.
    """

    def __init__(self, *, safe=False):
        if (reason := missing()) is not None:
            pytest.skip(reason)
        self.folder = Path(
            tempfile.mkdtemp(prefix="sy-pg-", dir="/tmp")
        )  # the path of a Unix socket must be short
        if os.geteuid() == 0:
            os.chown(self.folder, _other_user().pw_uid, _other_user().pw_gid)
        self.data = self.folder / "data"
        self._run("initdb", "-D", self.data, "-U", "steelyard", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = _SETTINGS | {"unix_socket_directories": f"'{self.folder}'"} | ({} if safe else _FAST)
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        self.start()

    def _run(self, program, *arguments):
        user = {}
        if os.geteuid() == 0:
            other = _other_user()
            user = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
        log = self.folder.with_name(f"{self.folder.name}.log")
        with log.open("ab") as file:
            command = [str(programs() / program), *map(str, arguments)]
            done = subprocess.run(command, stdout=file, stderr=file, cwd="/", timeout=60, check=False, **user)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {log.read_text(errors='replace')[-2000:]}")

    def start(self):
        self._run("pg_ctl", "-D", self.data, "-l", self.folder / "server.log", "-w", "start")

    def stop(self, how="fast"):
        self._run("pg_ctl", "-D", self.data, "-m", how, "-w", "stop")

    @property
    def url(self):
        return f"postgresql://steelyard@/postgres?host={self.folder}"

    def empty(self):
        """Drop the schema of the previous test, close its connections and return the URL."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'steelyard'"
            )
            db.execute("DROP SCHEMA IF EXISTS steelyard CASCADE")
        return self.url

    def remove(self):
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.with_name(f"{self.folder.name}.log").unlink(missing_ok=True)


@contextlib.contextmanager
def running(*, safe=False):
    """Run a server inside a ``with`` statement."""
    cluster = Cluster(safe=safe)
    try:
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture(scope="session")
def postgres_server():
    """URL of a server shared by all tests of a session."""
    with running() as cluster:
        yield cluster.url


@pytest.fixture
def postgres(postgres_server):
    """URL of an empty database for one test."""
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        name = f"test_{connection.info.backend_pid}"
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres_server.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
