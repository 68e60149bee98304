"""Histories of groups, and assertions about them."""

from __future__ import annotations

import itertools

import pytest

from kcore.protocol.topic_partition import TopicPartition
from kcore.testing import Broker, Event, History
from kcore.testing.checks import position_of
from tests.testing.clients import confluent_consumer, fill, poll, poll_until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.kcore(topics={"t": 2})
def test_a_classic_group_has_a_history(kcore_broker: Broker) -> None:
    one = confluent_consumer(kcore_broker, client_id="one")
    one.subscribe(["t"])
    group = kcore_broker.groups["g"]
    poll_until(one, lambda: len(one.assignment()) == 2)
    two = confluent_consumer(kcore_broker, client_id="two")
    two.subscribe(["t"])
    poll_until(one, lambda: two.poll(0.01) is None and len(one.assignment()) == len(two.assignment()) == 1)
    first, second = group.member("one").member_id, group.member("two").member_id
    fill(kcore_broker, "t", 1, partition=next(iter(group.member("two").partitions)).partition)
    (record,) = poll(two, 1)
    two.commit(message=record, asynchronous=False)
    two.close()
    poll_until(one, lambda: len(one.assignment()) == 2)
    one.close()
    history = kcore_broker.history("g")
    assert [(event.member_id, event.kind) for event in history.of("joined", "left")] == [
        (first, "joined"), (second, "joined"), (second, "left"), (first, "left"),
    ]  # fmt: skip
    assert [event.epoch for event in history.of("generation")] == [0, 1, 2, 3, 4]
    moved = TopicPartition("t", record.partition())
    assert [row.member_id for row in history.ownership(moved)] == [first, second, first]
    assert [row.until is None for row in history.ownership()] == [False] * 4
    assert history.ownership(moved)[1].ended_by.startswith("LeaveGroup of two")
    assert history.commits(moved) == [1]
    (commit,) = history.of("committed")
    assert (commit.member_id, commit.epoch, commit.cause) == (second, 2, "OffsetCommit of two")
    assert all(earlier.at <= later.at for earlier, later in itertools.pairwise(history))


@pytest.mark.kcore(topics={"t": 2})
def test_a_kip_848_group_has_a_history(kcore_broker: Broker) -> None:
    node = kcore_broker.node
    with node.group("g").join(["t"]) as member:
        kcore_broker.wait_for(lambda b: len(member.assignment) == 2)
        member.commit({("t", 0): 4})
    kinds = [event.kind for event in kcore_broker.history("g")]
    assert [kind for kind in kinds if kind != "state"] == [
        "joined", "generation", "assigned", "committed", "revoked", "left", "generation",
    ]  # fmt: skip


def test_a_history_is_printed_as_a_table() -> None:
    history = History(
        "g",
        [
            Event(
                0.5, "joined", "worker-00000000-0000-0000-0000-000000000000", "worker", 1, cause="JoinGroup of worker"
            ),
            Event(12.25, "committed", "", "worker", 1, offsets={T1: 7, T0: 5}, cause="OffsetCommit of worker"),
            Event(13.0, "fenced", "", "worker", 1, detail="UNKNOWN_MEMBER_ID", cause="Heartbeat of worker"),
        ],
    )
    assert str(history).splitlines() == [
        "history of group g",
        "seconds  event      member                        epoch  what               cause",
        "0.500    joined     worker-00000000-000…00000000  1                         JoinGroup of worker",
        "12.250   committed  worker                        1      t-0=5 t-1=7        OffsetCommit of worker",
        "13.000   fenced     worker                        1      UNKNOWN_MEMBER_ID  Heartbeat of worker",
    ]
    assert history.commits(("t", 1)) == [7]
    assert repr(history) == "<History of g: 3 events>"


def test_ownership_ends_with_its_cause() -> None:
    history = History(
        "g",
        [
            Event(1, "assigned", "a", partitions=(T0, T1)),
            Event(2, "revoked", "a", partitions=(T1,), cause="session of a expired"),
            Event(3, "assigned", "b", partitions=(T1,)),
        ],
    )
    rows = [(row.partition, row.member_id, row.since, row.until, row.ended_by) for row in history.ownership()]
    assert rows == [(T0, "a", 1, None, ""), (T1, "a", 1, 2, "session of a expired"), (T1, "b", 3, None, "")]


@pytest.mark.kcore(topics={"t": 2})
def test_assert_committed_names_each_difference(kcore_broker: Broker) -> None:
    kcore_broker.node.group("g").commit({T0: 3})
    kcore_broker.assert_committed("g", {T0: 3})
    expected = r"t-0: expected 4, committed 3; t-1: expected 0, committed none[\s\S]*history of group g"
    with pytest.raises(AssertionError, match=expected):
        kcore_broker.assert_committed("g", {T0: 4, T1: 0})


@pytest.mark.kcore(topics={"t": 2})
def test_assertions_find_records_processed_twice_or_skipped(kcore_broker: Broker) -> None:
    fill(kcore_broker, "t", 3)
    records = kcore_broker.node.topics["t"].read(0, 0)
    kcore_broker.node.group("g").commit({T0: 3})
    kcore_broker.assert_no_double_processing(records, "g")
    kcore_broker.assert_nothing_skipped(records, "g")
    with pytest.raises(AssertionError, match="1 record was processed more than once: t-0@1"):
        kcore_broker.assert_no_double_processing([*records, ("t", 0, 1)], "g")
    with pytest.raises(AssertionError, match="2 records were committed in group g but not processed: t-0@0, t-0@2"):
        kcore_broker.assert_nothing_skipped([("t", 0, 1)], "g")


def test_records_of_each_client_library_have_a_position() -> None:
    class Message:
        def topic(self) -> str:
            return "t"

        def partition(self) -> int:
            return 1

        def offset(self) -> int:
            return 2

    class Record:
        topic, partition, offset = "t", 1, 2

    assert position_of(Message()) == position_of(Record()) == position_of(("t", 1, 2)) == ("t", 1, 2)
    with pytest.raises(TypeError, match="is neither a record nor"):
        position_of("t-1@2")
