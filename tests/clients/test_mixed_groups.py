"""Groups whose members use several client libraries: kcore's members beside members of Java,
librdkafka and aiokafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import kcore
from kcore.testing import ServerProcess
from tests.clients.conftest import create_topic
from tests.clients.members import Member, expect_share
from tests.clients.test_groups import expect_received, parts_of, produce
from tests.clients.test_new_protocol import SETTINGS, expect_each_received
from tests.clients.waiting import eventually

PARTITIONS = 6
EAGER = ["kcore", "java", "confluent-kafka", "aiokafka"]
COOPERATIVE = ["kcore", "java", "confluent-kafka"]


@pytest.fixture(scope="module")
def mixed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log: Path = tmp_path_factory.mktemp("mixed") / "log"
    with ServerProcess(settings=SETTINGS, stderr=log) as running:
        yield running
    assert "Traceback" not in log.read_text()


class Mixed:
    """A group with its own topic, whose members use several libraries."""

    def __init__(self, server: ServerProcess, name: str, start_member: Callable[..., Member]) -> None:
        self.server = server
        self.name = name
        self.topic = create_topic(
            AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0}), name, PARTITIONS
        )
        self.parts = parts_of(self.topic, PARTITIONS)
        self.values: list[str] = []
        self.everyone: list[Member] = []
        self._start = start_member

    def start(self, library: str, strategy: str) -> Member:
        """Adds a member."""
        options: dict[str, Any] = {"group": self.name, "topics": [self.topic], "strategy": strategy}
        member = self._start(library, bootstrap=self.server.bootstrap, **options)
        self.everyone.append(member)
        return member

    def produce(self) -> None:
        """Adds records to every partition."""
        batch = [f"{len(self.values)}-{number}" for number in range(2 * PARTITIONS)]
        produce(self.server.bootstrap, self.topic, PARTITIONS, batch)
        self.values += batch

    def group_type(self) -> str:
        """Returns the protocol that the group has now."""
        with kcore.connect(self.server.bootstrap) as node:
            (found,) = [each for each in node.groups.list() if each.group_id == self.name]
        return found.type


@pytest.fixture
def mixed(mixed_server: ServerProcess, name: str, start_member: Callable[..., Member]) -> Mixed:
    return Mixed(mixed_server, name, start_member)


@pytest.mark.parametrize(
    ("strategy", "libraries"),
    [
        pytest.param("range", EAGER, id="eager", marks=pytest.mark.long),
        pytest.param("cooperative-sticky", COOPERATIVE, id="cooperative"),
        pytest.param("consumer", COOPERATIVE, id="consumer"),
    ],
)
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.long)], ids=["kcore-first", "java-first"])
def test_members_of_several_libraries_share_a_group(
    mixed: Mixed, strategy: str, libraries: list[str], first: int
) -> None:
    """A member of each library is the leader of a classic group once, because members leave from the oldest to the
    newest.
    """
    members: list[Member] = []
    for library in [*libraries[first:], *libraries[:first]]:
        members.append(mixed.start(library, strategy))
        expect_share(mixed.parts, *members)
        mixed.produce()
        expect_received(mixed.values, *members)
    while len(members) > 1:
        taken = [len(member.revoked) for member in members]
        members.pop(0).leave()
        expect_share(mixed.parts, *members)
        mixed.produce()
        expect_received(mixed.values, *mixed.everyone)
        if strategy == "consumer":
            assert [len(member.revoked) for member in members] == taken[1:], (
                "a member that gets more partitions gives up none"
            )
    assert [member.failures for member in mixed.everyone] == [[]] * len(mixed.everyone)


@pytest.mark.parametrize("library", [pytest.param("java", marks=pytest.mark.long), "aiokafka"])
def test_a_group_migrates_live_to_the_consumer_protocol_and_back(mixed: Mixed, library: str) -> None:
    """No record is lost, and each partition has an owner after each step."""
    classic = [mixed.start(library, "range"), mixed.start("kcore", "range")]
    expect_share(mixed.parts, *classic)
    types = [mixed.group_type()]

    def work() -> None:
        mixed.produce()
        eventually(lambda: expect_each_received(mixed.values, mixed.everyone), "the members receive everything")

    work()
    modern = [mixed.start("kcore", "consumer")]
    expect_share(mixed.parts, *classic, *modern)
    types.append(mixed.group_type())
    work()
    classic.pop(0).leave()
    if library == "java":
        modern.append(mixed.start("java", "consumer"))
    expect_share(mixed.parts, *classic, *modern)
    work()
    classic.pop(0).leave()
    expect_share(mixed.parts, *modern)
    work()
    classic = [mixed.start(library, "range"), mixed.start("kcore", "range")]
    expect_share(mixed.parts, *classic, *modern)
    work()
    for member in modern:
        member.leave()
    expect_share(mixed.parts, *classic)
    types.append(mixed.group_type())
    work()
    assert types == ["classic", "consumer", "classic"]
