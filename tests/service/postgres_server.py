"""A PostgreSQL server of one's own, made for the trials and thrown away after them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{folder}'
shared_buffers = 16MB
max_connections = 60
dynamic_shared_memory_type = mmap
"""


def programs():
    """The folder of the server's programs, or None."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    found = shutil.which("initdb") or (versions[-1] if versions else None)
    return None if found is None else Path(found).parent


class Cluster:
    """Started in a temporary folder, reached by a socket in it; runs as a user who is not root."""

    def __init__(self):
        self.bin = programs()
        if self.bin is None:
            pytest.skip("no PostgreSQL server is installed (Debian: apt install postgresql)")
        if os.geteuid() == 0 and shutil.which("runuser") is None:
            pytest.skip("PostgreSQL refuses to run as root, and runuser is not there to become another user")
        # A short path: the name of a socket must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="sy-pg-", dir="/tmp"))
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")
        self._run(
            "initdb", "-D", self.folder / "data", "-U", "steelyard", "-A", "trust", "-E", "UTF8", "--no-sync"
        )
        with (self.folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS.format(folder=self.folder))
        self.start()

    def _run(self, program, *arguments):
        command = [str(self.bin / program), *map(str, arguments)]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "nobody", "--", *command]
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            done = subprocess.run(command, stdout=log, stderr=log, cwd="/", timeout=60, check=False)
        if done.returncode:
            text = Path(log.name).read_text(errors="replace")
            raise RuntimeError(f"{program} failed: {text[-2000:]}")

    def start(self):
        self._run("pg_ctl", "-D", self.folder / "data", "-l", self.folder / "server.log", "-w", "start")

    def stop(self, how="fast"):
        self._run("pg_ctl", "-D", self.folder / "data", "-m", how, "-w", "stop")

    @property
    def url(self):
        return f"postgresql://steelyard@/postgres?host={self.folder}"

    def empty(self):
        """Away with the store of the last trial, and with whoever still holds on to it."""
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
