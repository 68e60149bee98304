"""Fixtures with one server per worker process; each test has its own topics and groups."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kcore.testing import ServerProcess
from tests.clients.members import Member

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # hundreds of kafka-python's, at its import
    import kafka  # noqa: F401

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "8",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Adds the marker `clients` to all tests of this folder, because they need client libraries."""
    for item in items:
        if item.nodeid.startswith("tests/clients/"):
            item.add_marker(pytest.mark.clients)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Runs a server on a data folder, with fsync durability as in production."""
    folder = tmp_path_factory.mktemp("server")
    with ServerProcess(folder / "data", SETTINGS, stderr=folder / "log") as running:
        yield running
        assert running.stop() == 0
    assert "Traceback" not in (folder / "log").read_text()


@pytest.fixture(scope="session")
def bootstrap(server: ServerProcess) -> str:
    """Returns the server's HOST:PORT."""
    return server.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """Returns an admin client for preparing and checking tests."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """Returns a name that no other test uses: for groups, and as a prefix of topics."""
    return f"t{os.getpid()}-{next(_numbers)}"


def create_topic(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> str:
    """Creates a topic. Keywords are names of settings, with underscores in place of dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)
    return topic


@pytest.fixture
def new_topic(admin: AdminClient, name: str) -> Callable[..., str]:
    """Returns a function that creates a topic and returns its name: `new_topic(partitions=1, suffix="",
    **settings)`.
    """

    def create(partitions: int = 1, suffix: str = "", **config: str) -> str:
        return create_topic(admin, name + suffix, partitions, **config)

    return create


@pytest.fixture
def start_member(bootstrap: str) -> Iterator[Callable[..., Member]]:
    """Returns a function that starts a group member in its own process; ends remaining members afterwards."""
    members: list[Member] = []

    def start(library: str, **options: Any) -> Member:
        members.append(Member(library, bootstrap=options.pop("bootstrap", bootstrap), **options))
        return members[-1]

    yield start
    for member in members:
        member.kill()
