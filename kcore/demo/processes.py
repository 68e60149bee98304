"""Consumer processes of the demonstration."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any


class Worker:
    """A consumer process, whose events a thread puts into a queue as (library, event).

    Args:
        library: the client library that the process uses.
        arguments: the arguments of the process: HOST:PORT of the server, group, topic, and pause per record in seconds.
        events: the queue for the events.
    """

    def __init__(self, library: str, arguments: Sequence[str], events: queue.Queue[tuple[str, dict[str, Any]]]) -> None:
        self.library = library
        self._events = events
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kcore.demo.worker", library, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a line truncated by SIGKILL
            self._events.put((self.library, event))
        self._events.put((self.library, {"event": "ended"}))

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self, timeout_s: float = 15.0) -> None:
        """Sends SIGTERM, and SIGKILL if the process does not end in time."""
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
