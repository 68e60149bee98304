"""The server under test, and the faults that are injected into it."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.soak.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
START_S, STOP_S, VERIFY_S = 60.0, 30.0, 120.0
LONGEST_PAUSE_S = 5.0
SETTINGS = {
    "kcore.durability": "fsync",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}


WITHOUT_UVLOOP = (
    "import sys; sys.modules['uvloop'] = None; from kcore.cli import main; sys.exit(main())"  # its import then fails
)
"""Text of a Python program that runs the command `kcore` with asyncio's event loop instead of uvloop.

If uvloop 0.23 handles an exception and there is no memory for the traceback, it reads a null pointer. The version of
Cython that compiled uvloop generates no check for this case.
"""


class Server:
    """`kcore serve` in its own process, on one folder and one port.

    Args:
        folder: the folder of the data and the server's log.
        ledger: the findings and counts of the run.
        uvloop: False for asyncio's own event loop.
    """

    def __init__(self, folder: Path, ledger: Ledger, uvloop: bool = True) -> None:
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.ledger = ledger
        self._program = ["-m", "kcore"] if uvloop else ["-c", WITHOUT_UVLOOP]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> bool:
        """Starts the process and waits until it has recovered.

        Records a violation and returns False if the process does not recover in time.
        """
        command = [sys.executable, *self._program, "serve", "--data", str(self.data)]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            at = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.alive:
            if b"recovered" in self.log.read_bytes()[at:]:
                return True
            time.sleep(0.02)
        self.ledger.violation("start", f"the server does not start (status {self._process.poll()}): see {self.log}")
        return False

    def end(self, number: signal.Signals) -> None:
        """Ends the process with a signal. Records a violation if the process does not end, or ends with an unexpected
        status.
        """
        process = self._process
        assert process is not None
        process.send_signal(number)
        try:
            status = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.ledger.violation("stop", f"the server lives {STOP_S:.0f} s after {number.name}")
            process.kill()
            process.wait()
            return
        if number is signal.SIGTERM and status != 0:
            self.ledger.violation("stop", f"the server ends with status {status} after SIGTERM")

    def verify(self) -> None:
        """Runs `kcore log verify` on the folder while no server has it open."""
        command = [sys.executable, "-m", "kcore", "log", "verify", str(self.data)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=VERIFY_S, check=False)
        self.ledger.count("log verify")
        if done.returncode:
            self.ledger.violation("log verify", (done.stdout + done.stderr).strip()[-1000:])

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def limit_memory(self, limited: bool) -> None:
        """Limits the address space to its present size, or removes the limit."""
        assert self._process is not None
        pid = self._process.pid
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        soft = pages * resource.getpagesize() if limited else resource.RLIM_INFINITY
        resource.prlimit(pid, resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))


class Faults:
    """The injector of faults; a seed determines all choices of a run."""

    def __init__(self, server: Server, ledger: Ledger, rng: random.Random, kinds: list[str]) -> None:
        self.server = server
        self.ledger = ledger
        self.rng = rng
        known: dict[str, tuple[int, Callable[[], None]]] = {
            "kill": (4, self.kill),
            "term": (2, self.term),
            "pause": (2, self.pause),
            "memory": (3, self.memory),
        }
        self.choices = [known[kind][1] for kind in kinds]
        self.weights = [known[kind][0] for kind in kinds]

    def once(self) -> None:
        """Injects one fault. On return, the server runs again without a limit."""
        (fault,) = self.rng.choices(self.choices, self.weights)
        self.ledger.count(f"faults: {fault.__name__}")
        fault()

    def kill(self) -> None:
        """Sends SIGKILL and restarts the server. Sometimes kills it again during recovery."""
        self.server.end(signal.SIGKILL)
        self.restart()
        if self.rng.random() < 0.2:
            self.server.end(signal.SIGKILL)
            self.restart()

    def term(self) -> None:
        """Sends SIGTERM, which must end the server cleanly under load, and restarts it."""
        self.server.end(signal.SIGTERM)
        self.restart()

    def pause(self) -> None:
        """Sends SIGSTOP and SIGCONT. Some pauses are longer than a session."""
        self.server.signal(signal.SIGSTOP)
        self.ledger.over.wait(self.rng.uniform(0.2, LONGEST_PAUSE_S))
        self.server.signal(signal.SIGCONT)

    def memory(self) -> None:
        """Denies the process more memory for a few moments. Sometimes ends the process cleanly afterwards."""
        for _ in range(self.rng.randint(1, 4)):
            if not self.server.alive:
                break
            self.server.limit_memory(True)
            self.ledger.over.wait(self.rng.uniform(0.05, 1.0))
            if self.server.alive:
                self.server.limit_memory(False)
            self.ledger.over.wait(self.rng.uniform(0.05, 0.5))
        if self.server.alive and self.rng.random() < 0.5:
            self.ledger.count("faults: memory, then term")
            self.term()

    def restart(self) -> None:
        """Restarts the server, sometimes after a verification of the folder."""
        if self.rng.random() < 0.25:
            self.server.verify()
        self.server.start()
