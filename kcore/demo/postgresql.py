"""Throw-away PostgreSQL servers of this machine: a primary, synchronous standbys, crashes and promotions."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg

from kcore.errors import ConfigError, KcoreError

SETTINGS: Final = {
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
"""Settings for small machines. `fsync` and `full_page_writes` stay on, because kcore refuses a server without them."""

WAIT_S: Final = 30.0


def programs() -> Path | None:
    """Finds the folder of PostgreSQL's server programs; Debian does not put them on the path."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent  # distributions link to it
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return folders[-1].parent if folders else None


def require_programs() -> Path:
    """Returns the folder of the server programs.

    Raises:
        ConfigError: the server programs are not installed.
    """
    folder = programs()
    if folder is None:
        raise ConfigError("PostgreSQL's server programs are not installed: on Debian, `apt-get install postgresql`")
    return folder


def free_port() -> int:
    """Returns a TCP port of this machine that no process uses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _runs(pid: int) -> bool:
    """Returns True while a process runs.

    Returns False for a process that has ended, even if its parent has not read the exit status yet.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _wait_until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise KcoreError(f"PostgreSQL: no {what} within {WAIT_S:g} s")
        time.sleep(0.02)


class Server:
    """One PostgreSQL server with its own folder. If this process runs as root, the server runs as the user postgres.

    Args:
        parent: the folder in which the server's folder is made.
        name: the name of the server and of its folder.
    """

    def __init__(self, parent: Path, name: str) -> None:
        self.name = name
        self.folder = parent / name
        self.port = free_port()
        self._programs = require_programs()

    def run(self, program: str, *arguments: str, check: bool = True) -> None:
        """Runs one of PostgreSQL's programs.

        Raises:
            KcoreError: the program failed, and `check` is True.
        """
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
                raise KcoreError(f"{command}: {output.read().decode()[-2000:]}{detail}")

    def create(self, **settings: str) -> Server:
        """Creates an empty database cluster and starts the server."""
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
            synchronised = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            _wait_until(lambda: primary.query(synchronised), "synchronous standby")
        return self

    def configure(self, **settings: str) -> None:
        """Adds settings for the next start."""
        lines = [f"{key} = '{value}'\n" for key, value in settings.items()]
        lines += [f"port = {self.port}\n", "unix_socket_directories = ''\n"]
        with (self.folder / "postgresql.auto.conf").open("a") as file:
            file.writelines(lines)

    def alter(self, **settings: str) -> None:
        """Changes settings of the running server."""
        for key, value in settings.items():
            self.query(f"ALTER SYSTEM SET {key} = '{value}'")
        self.query("SELECT pg_reload_conf()")

    def start(self) -> Server:
        """Starts the server and waits until it accepts connections."""
        self.run("pg_ctl", "-D", str(self.folder), "-l", str(self.folder / "log.txt"), "-w", "start")
        return self

    def crash(self) -> None:
        """Ends all processes of the server at once."""
        with contextlib.suppress(OSError, ValueError):
            found = self._processes()
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _wait_until(lambda: not any(map(_runs, found)), "end of the server")
            (self.folder / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """Stops the server in an orderly way, which ends its connections."""
        self.run("pg_ctl", "-D", str(self.folder), "-m", "fast", "-w", "stop")

    def promote(self) -> None:
        """Makes this standby a primary."""
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
        """Sends a signal, such as SIGSTOP or SIGCONT, to all processes of this server."""
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def url(self, database: str = "postgres", user: str = "kcore") -> str:
        """Returns the URL of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def query(self, text: str, *arguments: object, database: str = "postgres") -> list[tuple[object, ...]]:
        """Runs one statement on a new connection, in autocommit mode."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(text.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []


class Servers:
    """Servers in one temporary folder. Closing this object ends the servers and removes the folder."""

    def __init__(self) -> None:
        require_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="kcore-postgresql-"))
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        self.started: list[Server] = []

    def server(self, name: str) -> Server:
        """Returns a server that is not created yet."""
        made = Server(self.folder, name)
        self.started.append(made)
        return made

    def close(self) -> None:
        """Ends all servers and removes the folder."""
        for server in self.started:
            server.crash()
        shutil.rmtree(self.folder, ignore_errors=True)
