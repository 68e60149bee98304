"""Real consumers with `group.protocol=consumer` (KIP-848) join, leave and are killed. The server is killed, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import kcore
from kcore.client import Connection
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.testing import ServerProcess
from tests.clients.conftest import create_topic
from tests.clients.members import Member, Part, expect_share, wait_until
from tests.clients.test_groups import expect_received, parts_of, produce
from tests.clients.waiting import eventually
from tests.kit import committed

SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "150",
    "group.consumer.assignment.interval.ms": "0",
}
PARTITIONS = 6
LIBRARIES = ["confluent-kafka", "java"]
JAVA_IS_LONG = ["confluent-kafka", pytest.param("java", marks=pytest.mark.long)]
GROUP_RESOURCE, SET = 32, 0  # a resource type, and an operation on its setting


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Yields a server with a short heartbeat interval. The tests may kill this server."""
    with ServerProcess(tmp_path / "data", SETTINGS, stderr=tmp_path / "log") as running:
        yield running
        running.stop()
    errors = [line for line in (tmp_path / "log").read_text().splitlines() if "Traceback" in line]
    assert errors == []


@pytest.fixture
def topic(new_server: ServerProcess, name: str) -> str:
    """Creates a topic with six partitions on that server."""
    return create_topic(AdminClient({"bootstrap.servers": new_server.bootstrap, "log_level": 0}), name, PARTITIONS)


@pytest.fixture
def start(new_server: ServerProcess, name: str, topic: str, start_member: Callable[..., Member]) -> Any:
    """Starts a member of the test's group; `strategy` selects its protocol."""

    def member(strategy: str = "consumer", library: str = "confluent-kafka", **more: Any) -> Member:
        options = {"group": name, "topics": [topic], "strategy": strategy, **more}
        return start_member(library, bootstrap=new_server.bootstrap, **options)

    return member


def expect_each_received(values: list[str], members: list[Member]) -> bool:
    """Returns True once the members have received all values.

    Raises:
        AssertionError: a member received a record with another value.
    """
    received = {record[3] for member in members for record in member.records}
    assert received <= set(values)
    return len(received) == len(values)


def committed_offsets(server: ServerProcess, group: str) -> dict[Part, int]:
    with Connection.to(server.bootstrap) as connection:
        return committed(connection, group)


def described(server: ServerProcess, group: str) -> Any:
    with Connection.to(server.bootstrap) as connection:
        (found,) = connection.send(ConsumerGroupDescribeRequest(group_ids=[group])).groups
    return found


@pytest.mark.parametrize("strategy", ["consumer", pytest.param("consumer:range", marks=pytest.mark.long)])
@pytest.mark.parametrize("library", JAVA_IS_LONG)
def test_three_consumers_join_leave_and_are_killed(
    library: str, strategy: str, new_server: ServerProcess, name: str, topic: str, start: Callable[..., Member]
) -> None:
    """After every change each partition has one owner, the remaining members keep their partitions, and no committed
    record is delivered again.
    """
    parts = parts_of(topic, PARTITIONS)
    first = start(strategy, library)
    expect_share(parts, first)
    second = start(strategy, library)
    expect_share(parts, first, second)
    third = start(strategy, library)
    expect_share(parts, first, second, third)
    values = [f"three-{number}" for number in range(60)]
    produce(new_server.bootstrap, topic, PARTITIONS, values)
    expect_received(values, first, second, third)

    taken_before = len(first.revoked)
    third.leave()
    expect_share(parts, first, second)
    if strategy == "consumer":
        assert first.revoked[taken_before:] == [], "a member that gets more partitions gives up none"
    second.kill()
    expect_share(parts, first)
    more = [f"one-{number}" for number in range(60)]
    produce(new_server.bootstrap, topic, PARTITIONS, more)
    expect_received(values + more, first, second, third)
    assert [member.failures for member in (first, second, third)] == [[], [], []]
    group = described(new_server, name)
    assert (group.assignor_name, group.group_state) == ("range" if ":" in strategy else "uniform", "Stable")


def test_members_continue_after_a_kill_of_the_server_during_reconciliation(
    new_server: ServerProcess, name: str, topic: str, start: Callable[..., Member]
) -> None:
    """Every response before SIGKILL stays valid after the restart. The members continue and share the partitions."""
    parts = parts_of(topic, PARTITIONS)
    first = start()
    expect_share(parts, first)
    epoch = described(new_server, name).group_epoch
    second = start()
    eventually(lambda: described(new_server, name).group_epoch > epoch, "the second member joined")
    new_server.kill()
    new_server.start()
    expect_share(parts, first, second)
    third = start()
    eventually(lambda: len(described(new_server, name).members) == 3, "the third member joined")
    new_server.kill()
    new_server.start()
    expect_share(parts, first, second, third)
    values = [f"after-{number}" for number in range(60)]
    produce(new_server.bootstrap, topic, PARTITIONS, values)
    wait_until(
        lambda: sorted({record[3] for member in (first, second, third) for record in member.records}) == sorted(values),
        "every record came",
        [first, second, third],
    )
    assert described(new_server, name).group_epoch > epoch + 1


@pytest.mark.parametrize("library", JAVA_IS_LONG)
def test_a_pattern_finds_new_topics(
    library: str, new_server: ServerProcess, name: str, start_member: Callable[..., Member]
) -> None:
    """The server resolves the pattern and finds a new topic within ten seconds."""
    admin = AdminClient({"bootstrap.servers": new_server.bootstrap, "log_level": 0})
    one = create_topic(admin, f"{name}.one", 2)
    create_topic(admin, f"other-{name}", 2)
    options = {"group": name, "topics": [f"^{name}[.].*"], "strategy": "consumer", "bootstrap": new_server.bootstrap}
    member = start_member(library, **options)
    expect_share(parts_of(one, 2), member)
    two = create_topic(admin, f"{name}.two", 3)
    expect_share(parts_of(one, 2) | parts_of(two, 3), member)


@pytest.mark.parametrize("library", JAVA_IS_LONG)
def test_a_static_member_returns(
    library: str, new_server: ServerProcess, name: str, topic: str, start: Callable[..., Member]
) -> None:
    """The member leaves temporarily, returns with its instance id, and gets its partitions back without a rebalance of
    other members. The group's session timeout allows for a restart on slow machines.
    """
    session = AlterableConfig(name="consumer.session.timeout.ms", config_operation=SET, value="60000")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configs=[session])
    with Connection.to(new_server.bootstrap) as connection:
        (done,) = connection.send(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert done.error_code == 0, done
    parts = parts_of(topic, PARTITIONS)
    stays = start(library=library, instance_id="stays")
    expect_share(parts, stays)
    restarts = start(library=library, instance_id="restarts")
    expect_share(parts, stays, restarts)
    had, taken_before = restarts.owned, len(stays.revoked)
    restarts.leave()
    again = start(library=library, instance_id="restarts")
    wait_until(lambda: again.owned == had, "its partitions are its own again", [stays, again])
    assert stays.revoked[taken_before:] == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("library", "classic"),
    [("confluent-kafka", "range"), ("confluent-kafka", "roundrobin"), ("java", "cooperative-sticky")],
)
def test_a_live_group_is_rolled_over_and_back(
    library: str, classic: str, new_server: ServerProcess, name: str, topic: str, start: Callable[..., Member]
) -> None:
    """Members are replaced one by one. Every record is delivered and committed, and every partition has an owner after
    each step.

    Java's members get every record once. A member of librdkafka may rebalance inside `consume`. Its commit then omits
    the records that `consume` is about to return, so these records are delivered again. librdkafka's cooperative-sticky
    is excluded: it adds its own data to assignments, and Kafka does not convert groups with such assignments.
    """
    parts = parts_of(topic, PARTITIONS)
    members = [start(classic, library), start(classic, library)]
    expect_share(parts, *members)
    everybody = list(members)
    values: list[str] = []

    def work(label: str) -> None:
        batch = [f"{label}-{number}" for number in range(30)]
        produce(new_server.bootstrap, topic, PARTITIONS, batch)
        values.extend(batch)
        if library == "java":
            expect_received(values, *everybody)
        received = partial(expect_each_received, values, everybody)
        ends = {(topic, index): sum(1 for _ in values[index::PARTITIONS]) for index in range(PARTITIONS)}
        eventually(lambda: received() and committed_offsets(new_server, name) == ends, f"{label} is committed")

    work("classic")
    for strategy in ("consumer", "consumer", classic, classic):
        old = members.pop(0)
        members.append(start(strategy, library))
        everybody.append(members[-1])
        expect_share(parts, old, *members)
        work(f"with-{len(everybody)}")
        old.leave()
        expect_share(parts, *members)
        work(f"without-{len(everybody)}")
    with kcore.connect(new_server.bootstrap) as node:
        (group,) = [listed for listed in node.groups.list() if listed.group_id == name]
    assert (group.type, group.state) == ("classic", "Stable")
