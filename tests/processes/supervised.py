"""`kcore serve --processes` as a real process with its children, for tests."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit import wait_until

ENDS_S = 60.0
ATTEMPTS = 10
FIRST_PORT = 15_000
PORTS = 1_000
"""Number of ports reserved for each pytest worker. All are below the system's range of ephemeral ports."""


class Supervised:
    """The supervisor and its processes.

    Args:
        folder: the folder for the data and the log.
        processes: the number of processes.
        settings: further settings.
        listener: the beginning of the listener, such as "SASL_PLAINTEXT://".

    Attributes:
        data: the data folder.
        ports: the ports of the nodes; the first start selects them.
        log: the output of all processes.
    """

    def __init__(
        self, folder: Path, processes: int, settings: Mapping[str, str] | None = None, listener: str = ""
    ) -> None:
        self.data = folder / "data"
        self.log = folder / "output.log"
        self.processes = processes
        self.ports: list[int] = []
        self.settings = dict(settings or {})
        self._listener = listener
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def supervisor(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start it first"
        return self._process

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            for pid in self.pids().values():
                os.kill(pid, signal.SIGCONT)
            self.stop()
        if error is not None:
            print(self.log.read_text(errors="replace")[-20_000:])

    def start(self) -> None:
        """Starts the supervisor and waits until all processes serve. At the first start, tries further ports if some
        are in use.
        """
        for ports in [self.ports] if self.ports else free_ports(self.processes):
            self.ports = ports
            self.launch()
            wait_until(self.has_begun, f"{self.processes} processes serve: {self.log}", ENDS_S)
            if self.supervisor.poll() is None:
                return
            assert "Address already in use" in self.log.read_text(), self.log.read_text()
        raise AssertionError("no free ports")

    def launch(self) -> None:
        """Starts the supervisor with the chosen ports."""
        command = [sys.executable, "-m", "kcore", "serve", "--processes", str(self.processes)]
        listener = f"{self._listener}127.0.0.1:{self.ports[0]}"
        command += ["--data", str(self.data), "--listen", listener, "--log-level", "info"]
        for name, value in {"kcore.reserve.bytes": "0", **self.settings}.items():
            command += ["-c", f"{name}={value}"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def has_begun(self) -> bool:
        """Returns True once all processes serve, or the supervisor has ended."""
        lines = self.log.read_text(errors="replace")
        return re.search(r"process(es serve| serves) ", lines) is not None or self.supervisor.poll() is not None

    def child(self) -> int:
        """Waits until the supervisor has started a process. Returns the id of this process, which may not serve yet."""
        path = Path(f"/proc/{self.supervisor.pid}/task/{self.supervisor.pid}/children")
        wait_until(lambda: any(lives(int(pid)) for pid in path.read_text().split()), "a process was started", ENDS_S)
        return next(int(pid) for pid in path.read_text().split() if lives(int(pid)))

    def pids(self) -> dict[int, int]:
        """Returns the process ids of the running nodes."""
        found = {}
        for path in (self.data / "cluster").glob("node-*/alive-*"):
            try:
                text = path.read_text().strip()
            except FileNotFoundError:  # that incarnation has ended just now
                continue
            if text and lives(int(text)):
                found[int(path.parent.name.removeprefix("node-"))] = int(text)
        return found

    def pid(self, node_id: int) -> int:
        """Returns the process id of a node, once it runs."""
        return int(wait_until(lambda: self.pids().get(node_id), f"node {node_id} lives", ENDS_S))

    def send(self, node_id: int, number: int) -> int:
        """Sends a signal to the process of a node. Returns the process id."""
        pid = self.pid(node_id)
        os.kill(pid, number)
        return pid

    def wait_replaced(self, node_id: int, pid: int) -> None:
        """Waits until a node has a process other than `pid`."""
        wait_until(lambda: self.pids().get(node_id, pid) != pid, f"node {node_id} was started again", ENDS_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends all processes. Returns the exit status of the supervisor."""
        self.supervisor.send_signal(number)
        return self.supervisor.wait(ENDS_S)


def lives(pid: int) -> bool:
    """Returns True if a process of a node has this id. A zombie process has no command line."""
    try:
        return "serve_process" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def free_ports(count: int) -> Iterator[list[int]]:
    """Yields ranges of ports that were free at the time of the check."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = FIRST_PORT + PORTS * (worker % 15) + os.getpid() % (PORTS // 2)
    for attempt in range(ATTEMPTS):
        ports = list(range(first + attempt * 3 * count, first + attempt * 3 * count + count))
        if all(map(_is_free, ports)):
            yield ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
