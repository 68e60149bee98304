"""Processes of `kcore serve --cluster` over one database, for tests and benchmarks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kit import wait_until
from tests.postgresql.servers import free_port

ENDS_S = 60


class NodeProcesses:
    """Processes of nodes over one database. The constructor creates the tables.

    Args:
        url: the database.
        folder: the folder for the log output of the processes.
        count: the number of nodes; their ids begin with 1.
        settings: further settings.
        listener: the beginning of the listeners, such as "SASL_PLAINTEXT://".
    """

    def __init__(
        self, url: str, folder: Path, count: int = 3, settings: Mapping[str, str] | None = None, listener: str = ""
    ) -> None:
        self.url = url
        self.folder = folder
        self.ports = {node_id: free_port() for node_id in range(1, count + 1)}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.settings = dict(settings or {})
        self._listener = listener
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.command("init", url)

    @property
    def bootstrap(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.ports.values()]

    def command(self, *arguments: str) -> str:
        """Runs `kcore cluster`. Returns its output."""
        done = subprocess.run(
            [sys.executable, "-m", "kcore", "cluster", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, node_id: int) -> None:
        """Starts a node without waiting for it."""
        command = [sys.executable, "-m", "kcore", "serve", "--cluster", self.url, "--node-id", str(node_id)]
        command += ["--listen", f"{self._listener}127.0.0.1:{self.ports[node_id]}"]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / f"{node_id}.log").open("ab") as log:
            self.processes[node_id] = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)

    def status(self) -> dict[int, dict[str, Any]]:
        """Returns the rows of `kcore cluster status` by node."""
        rows = map(json.loads, self.command("status", self.url, "--format", "json").splitlines())
        return {row["node"]: row for row in rows}

    def __enter__(self) -> Self:
        for node_id in self.ports:
            self.start(node_id)
        wait_until(self._all_alive, f"the nodes are alive: {self.folder}", ENDS_S)
        wait_until(self._all_listen, f"the nodes listen: {self.folder}", ENDS_S)
        return self

    def _all_alive(self) -> bool:
        return [row["state"] for row in self.status().values()] == ["alive"] * len(self.ports)

    def _all_listen(self) -> bool:
        """Returns True once all nodes accept connections. A node is alive shortly before it listens."""
        for port in self.ports.values():
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)):
                    return False
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends all nodes."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(ENDS_S)
