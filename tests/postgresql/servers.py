"""Throw-away PostgreSQL servers for tests; without PostgreSQL the tests are skipped."""

from __future__ import annotations

import pytest

from kcore.demo import postgresql
from kcore.demo.postgresql import SETTINGS, Server, free_port, programs

__all__ = ["SETTINGS", "Server", "Servers", "free_port", "programs", "require_programs"]


def require_programs() -> None:
    """Skips the test if the server programs are missing."""
    if programs() is None:
        pytest.skip("PostgreSQL's server programs are not installed (Debian: postgresql)")


class Servers(postgresql.Servers):
    """A folder for servers, which end with the tests."""

    def __init__(self) -> None:
        require_programs()
        super().__init__()
