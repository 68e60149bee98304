"""Throw-away PostgreSQL servers for tests: a primary, synchronous standbys, promotion."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest

from tests.kit import wait_until

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "30min",
    "max_connections": "80",
    "wal_level": "replica",
    "hot_standby": "on",
    "wal_keep_size": "64MB",
    "log_min_messages": "warning",
    "autovacuum_naptime": "10min",
    "wal_receiver_status_interval": "1s",
}
"""The server accepts small machines, but keeps `fsync` and `full_page_writes`: kcore refuses a server without them."""


def programs() -> Path | None:
    """Finds the folder of PostgreSQL's server programs; Debian does not put them on the path."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent  # distributions link to it
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return folders[-1].parent if folders else None


def require_programs() -> Path:
    """Returns the folder of the server programs, or skips the test."""
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL's server programs are not installed (Debian: postgresql)")
    return folder


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _runs(pid: int) -> bool:
    """Returns True unless a process has ended; its parent may not have noticed yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Server:
    """One PostgreSQL server in a folder of its own. As root, it runs as user postgres."""

    def __init__(self, parent: Path, name: str) -> None:
        self.name = name
        self.folder = parent / name
        self.port = free_port()
        self._programs = require_programs()

    def run(self, program: str, *arguments: str, check: bool = True) -> None:
        command = [str(self._programs / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        # Output goes to a file: a started server inherits it, and a pipe would stay open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                command, check=False, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=60
            )
            if check and done.returncode:
                output.seek(0)
                log = self.folder / "log.txt"
                detail = log.read_text()[-2000:] if log.exists() else ""
                raise AssertionError(f"{command}: {output.read().decode()[-2000:]}{detail}")

    def create(self, **settings: str) -> Server:
        self.run("initdb", "-D", str(self.folder), "-A", "trust", "-U", "kcore", "--no-sync", "--data-checksums")
        self.configure(**{**SETTINGS, **settings})
        return self.start()

    def copy_of(self, primary: Server, synchronous: bool = True) -> Server:
        """Makes this server a standby of `primary`."""
        source = f"host=127.0.0.1 port={primary.port} user=kcore application_name={self.name}"
        self.run("pg_basebackup", "-D", str(self.folder), "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self.configure(synchronous_standby_names="")
        self.start()
        if synchronous:
            primary.alter(synchronous_standby_names=self.name)
            wait_until(lambda: primary.query("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"), "standby")
        return self

    def configure(self, **settings: str) -> None:
        lines = [f"{key} = '{value}'\n" for key, value in settings.items()]
        lines += [f"port = {self.port}\n", "unix_socket_directories = ''\n"]
        with (self.folder / "postgresql.auto.conf").open("a") as file:
            file.writelines(lines)

    def alter(self, **settings: str) -> None:
        for key, value in settings.items():
            self.query(f"ALTER SYSTEM SET {key} = '{value}'")
        self.query("SELECT pg_reload_conf()")

    def start(self) -> Server:
        self.run("pg_ctl", "-D", str(self.folder), "-l", str(self.folder / "log.txt"), "-w", "start")
        return self

    def crash(self) -> None:
        """Ends all processes of the server at once."""
        with contextlib.suppress(OSError, ValueError):
            found = self._processes()
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not any(map(_runs, found)), "end of the server")
            (self.folder / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """Stops the server in an orderly way, which ends its connections."""
        self.run("pg_ctl", "-D", str(self.folder), "-m", "fast", "-w", "stop")

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.folder), "-w", "promote")

    def _processes(self) -> list[int]:
        main = int((self.folder / "postmaster.pid").read_text().split()[0])
        found = [main]
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(path.read_text().rsplit(")", 1)[1].split()[1]) == main:
                    found.append(int(path.parent.name))
        return found

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all processes of this server: SIGSTOP and SIGCONT."""
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def url(self, database: str = "postgres", user: str = "kcore") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def query(self, text: str, *arguments: object, database: str = "postgres") -> list[tuple[object, ...]]:
        """Runs one statement on a connection of its own, in autocommit."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(text.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []


class Servers:
    """A folder for servers, which end with the tests."""

    def __init__(self) -> None:
        require_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="kcore-postgresql-"))
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        self.started: list[Server] = []

    def server(self, name: str) -> Server:
        made = Server(self.folder, name)
        self.started.append(made)
        return made

    def close(self) -> None:
        for server in self.started:
            server.crash()
        shutil.rmtree(self.folder, ignore_errors=True)
