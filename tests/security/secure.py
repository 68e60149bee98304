"""A server with every kind of listener, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.server.live import LiveServer, Raw

USER, PASSWORD = "alice", "correct-horse-battery-staple"


@dataclass(frozen=True)
class Secure:
    """A server, the authority that signed its certificate, the clients' certificates, and the log output."""

    live: LiveServer
    authority: Path
    client: Path
    stranger: Path
    log: list[str]

    def port(self, listener: str) -> int:
        return self.live.server.addresses[listener][1]

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self.port(listener)}"

    def raw(self, listener: str) -> Raw:
        return Raw(self.port(listener))
