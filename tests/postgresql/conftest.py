from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.postgresql.servers import Server, Servers

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def primary() -> Iterator[Server]:
    """Yields a primary without a standby, for all tests of this worker that do not stop it."""
    servers = Servers()
    try:
        yield servers.server("shared").create()
    finally:
        servers.close()


@pytest.fixture(scope="session")
def reused_url(primary: Server) -> str:
    """Returns the URL of a database that several tests share. Each test empties it first.

    To create a database for each test would be slow, because a database has hundreds of files.
    """
    primary.query("CREATE DATABASE reused")
    return primary.url("reused")


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Yields a folder for servers that only this test uses."""
    made = Servers()
    yield made
    made.close()


@pytest.fixture
def url(primary: Server) -> str:
    """Returns the URL of an empty database of the shared primary."""
    name = f"t{next(_NUMBERS)}"
    primary.query(f"CREATE DATABASE {name}")
    return primary.url(name)
