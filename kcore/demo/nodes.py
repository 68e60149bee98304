"""The processes of a cluster of `kcore serve --cluster` nodes, for a demonstration."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from kcore.demo.postgresql import free_port
from kcore.errors import KcoreError

START_S: Final = 60.0
SETTINGS: Final = {
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "12",
}
"""The nodes' settings: a short lease, so that a failover takes only a small part of the demonstration."""


class Nodes:
    """The node processes of a cluster whose store is a database.

    Args:
        url: the URL of the database.
        node_ids: the ids of the nodes.
        folder: the folder of their logs.
    """

    def __init__(self, url: str, node_ids: tuple[int, ...], folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.ports = {node_id: free_port() for node_id in node_ids}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, separated by commas."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def command(self, *arguments: str) -> str:
        """Runs `kcore cluster` with these arguments, and returns its output.

        Raises:
            KcoreError: the command failed.
        """
        done = subprocess.run(
            [sys.executable, "-m", "kcore", "cluster", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise KcoreError(f"kcore cluster {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def start(self, node_id: int) -> None:
        """Starts a node; its log goes to a file."""
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / f"node-{node_id}.log").open("ab") as log:
            self._processes[node_id] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kcore", "serve", "--cluster", self.url, "--node-id", str(node_id)),
                    *("--listen", f"127.0.0.1:{self.ports[node_id]}", *settings),
                ],
                stdout=log,
                stderr=log,
            )

    def pid(self, node_id: int) -> int:
        """Returns the process id of a node."""
        return self._processes[node_id].pid

    def kill(self, node_id: int) -> None:
        """Sends SIGKILL to a node, and waits for its end."""
        self._processes[node_id].kill()
        self._processes[node_id].wait()

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Sends a signal, such as SIGSTOP, to a node."""
        self._processes[node_id].send_signal(number)

    def stop(self, node_id: int, timeout_s: float = 30.0) -> int:
        """Sends SIGTERM to a node, waits for its end, and returns the exit code."""
        process = self._processes[node_id]
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def status(self) -> dict[int, dict[str, Any]]:
        """Returns the rows of `kcore cluster status` by node."""
        rows = map(json.loads, self.command("status", self.url, "--format", "json").splitlines())
        return {row["node"]: row for row in rows}

    def leading(self) -> set[int]:
        """Returns the nodes that are alive and lead partitions; an empty set while the database cannot be reached."""
        try:
            rows = self.status()
        except KcoreError:
            return set()
        return {node_id for node_id, row in rows.items() if row["leaders"] and row["state"] in ("alive", "draining")}

    def wait_leading(self, *node_ids: int) -> None:
        """Waits until exactly these nodes lead partitions, and every partition has a live leader.

        Raises:
            KcoreError: the nodes do not lead after `START_S`.
        """
        deadline_s = time.monotonic() + START_S
        while self.leading() != set(node_ids):
            if time.monotonic() > deadline_s:
                raise KcoreError(f"nodes {node_ids} do not lead all partitions; see the logs in {self.folder}")
            time.sleep(0.2)

    def close(self) -> None:
        """Ends all nodes."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
