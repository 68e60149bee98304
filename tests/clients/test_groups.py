"""Groups of each client library: members join, leave, crash and return."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.clients.members import Member, Part, expect_share, wait_until
from tests.clients.waiting import eventually

LIBRARIES = ["confluent-kafka", "kafka-python", "aiokafka"]
STRATEGIES = [
    pytest.param("confluent-kafka", "range", marks=pytest.mark.long),
    pytest.param("confluent-kafka", "roundrobin", marks=pytest.mark.long),
    ("confluent-kafka", "cooperative-sticky"),
    ("kafka-python", "range"),
    pytest.param("kafka-python", "roundrobin", marks=pytest.mark.long),
    pytest.param("kafka-python", "cooperative-sticky", marks=pytest.mark.long),
    pytest.param("aiokafka", "range", marks=pytest.mark.long),
    pytest.param("aiokafka", "roundrobin", marks=pytest.mark.long),
    ("aiokafka", "sticky"),
]
SHORT_SESSION_MS = 1_500


def parts_of(topic: str, count: int) -> set[Part]:
    return {(topic, partition) for partition in range(count)}


def produce(bootstrap: str, topic: str, partitions: int, values: Sequence[str]) -> None:
    """Produces value n to partition n modulo `partitions`."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(30) == 0


def expect_received(values: Sequence[str], *members: Member) -> None:
    """Waits until the members have received and committed exactly `values`, each once."""
    wanted = sorted(values)

    def complete() -> bool:
        return sum(len(member.records) - member.uncommitted for member in members) >= len(wanted)

    wait_until(complete, f"{len(wanted)} records committed", members)
    assert sorted(record[3] for member in members for record in member.records) == wanted


@pytest.mark.parametrize(("library", "strategy"), STRATEGIES)
def test_members_join_leave_crash_and_return(
    library: str,
    strategy: str,
    name: str,
    bootstrap: str,
    new_topic: Callable[..., str],
    start_member: Callable[..., Member],
) -> None:
    """After every change each partition has one owner. No committed record is delivered again."""
    topic = new_topic(4)
    parts = parts_of(topic, 4)
    options = {"group": name, "topics": [topic], "strategy": strategy}

    first = start_member(library, **options)
    expect_share(parts, first)
    taken_before = len(first.revoked)
    second = start_member(library, **options)
    expect_share(parts, first, second)
    taken = frozenset().union(*first.revoked[taken_before:])
    if strategy == "cooperative-sticky":  # KIP-429: a member's remaining partitions are never revoked
        assert taken == second.owned
    else:
        assert taken == parts

    values = [f"both-{number}" for number in range(40)]
    produce(bootstrap, topic, 4, values)
    expect_received(values, first, second)

    second.leave()  # its session is longer than the deadline: only the leave request frees its partitions
    expect_share(parts, first)

    third = start_member(library, **options, session_timeout_ms=SHORT_SESSION_MS)
    expect_share(parts, first, third)
    more = [f"third-{number}" for number in range(40)]
    produce(bootstrap, topic, 4, more)
    expect_received(values + more, first, second, third)
    third.kill()
    expect_share(parts, first)

    fourth = start_member(library, **options)
    expect_share(parts, first, fourth)
    last = [f"fourth-{number}" for number in range(40)]
    produce(bootstrap, topic, 4, last)
    expect_received(values + more + last, first, second, third, fourth)
    assert [member.failures for member in (first, second, third, fourth)] == [[], [], [], []]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_static_member_restarts_without_a_rebalance(
    library: str,
    name: str,
    bootstrap: str,
    new_topic: Callable[..., str],
    start_member: Callable[..., Member],
) -> None:
    """A member that returns with its instance id gets its partitions back without a rebalance (KIP-345)."""
    topic = new_topic(4)
    parts = parts_of(topic, 4)
    options = {"group": name, "topics": [topic], "session_timeout_ms": 30_000}
    stays = start_member(library, **options, instance_id="stays")
    expect_share(parts, stays)
    restarts = start_member(library, **options, instance_id="restarts")
    expect_share(parts, stays, restarts)
    taken_before = len(stays.revoked)
    had = restarts.owned

    restarts.kill()
    again = start_member(library, **options, instance_id="restarts")
    wait_until(lambda: again.owned == had, "the restarted member has its partitions back", [stays, again])
    values = [f"after-{number}" for number in range(20)]
    produce(bootstrap, topic, 4, values)
    expect_received(values, stays, again)
    assert stays.revoked[taken_before:] == []


@pytest.mark.parametrize("library", ["confluent-kafka", "aiokafka"])
def test_a_group_assigns_added_partitions(
    library: str,
    name: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    start_member: Callable[..., Member],
) -> None:
    """The group's leader sees the added partitions in its metadata and rejoins. The members share all partitions."""
    topic = new_topic(2)
    members = [start_member(library, group=name, topics=[topic]) for _ in range(2)]
    expect_share(parts_of(topic, 2), *members)
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
    expect_share(parts_of(topic, 6), *members)


def test_many_members_join_at_once(name: str, bootstrap: str, new_topic: Callable[..., str]) -> None:
    """A dozen members that join at the same time end in one generation, with one owner for each partition."""
    topic = new_topic(24)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "session.timeout.ms": 60_000,
        "heartbeat.interval.ms": 200,
        "log_level": 0,
    }
    consumers = [Consumer(settings) for _ in range(12)]
    try:
        for consumer in consumers:
            consumer.subscribe([topic])

        def owned() -> list[list[Part]]:
            for consumer in consumers:
                consumer.poll(0)
            return [[(part.topic, part.partition) for part in consumer.assignment()] for consumer in consumers]

        def shared() -> bool:
            each = owned()
            return sorted(itertools.chain(*each)) == sorted(parts_of(topic, 24)) and {len(some) for some in each} == {2}

        assert eventually(shared, "24 partitions for 12 members, two each")
    finally:
        for consumer in consumers:
            consumer.close()


def test_three_libraries_share_a_group(
    name: str,
    bootstrap: str,
    new_topic: Callable[..., str],
    start_member: Callable[..., Member],
) -> None:
    """Each library's leader computes assignments that the other libraries can read. Members of one library replace
    those of another.
    """
    topic = new_topic(6)
    parts = parts_of(topic, 6)
    options = {"group": name, "topics": [topic], "strategy": "range"}
    members = {library: start_member(library, **options, session_timeout_ms=SHORT_SESSION_MS) for library in LIBRARIES}
    expect_share(parts, *members.values())
    values = [f"three-{number}" for number in range(60)]
    produce(bootstrap, topic, 6, values)
    expect_received(values, *members.values())

    lost: list[Member] = []
    for library in LIBRARIES:  # each of them leads once, and each is killed once
        lost.append(members.pop(library))
        lost[-1].kill()
        expect_share(parts, *members.values())
        members[library] = start_member(library, **options, session_timeout_ms=SHORT_SESSION_MS)
        expect_share(parts, *members.values())
        more = [f"after-{library}-{number}" for number in range(30)]
        produce(bootstrap, topic, 6, more)
        values += more
        expect_received(values, *lost, *members.values())
