"""Tests of the client API for topics, records, committed offsets and groups."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import kcore
from kcore import errors
from kcore.node.requests import build_batch, read_batches
from kcore.node.types import GroupDescription, GroupListing, OffsetAndMetadata, Record, RecordMetadata
from kcore.protocol.compression import CompressionType
from kcore.protocol.messages.fetch import PartitionData
from kcore.protocol.topic_partition import TopicPartition
from tests.kit import wait_until
from tests.node.share_offsets import set_start_offset


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_a_committed_offset_is_read_back(node: kcore.Node, name: str) -> None:
    node.topics.create(name, partitions=4)
    node.group(name).commit({(name, 0): 42})
    assert node.group(name).committed() == {TopicPartition(name, 0): OffsetAndMetadata(42)}


async def test_a_committed_offset_is_read_back_on_a_loop(anode: kcore.AsyncNode, name: str) -> None:
    await anode.topics.create(name, partitions=4)
    await anode.group(name).commit({(name, 0): OffsetAndMetadata(42, "note", 0)})
    assert await anode.group(name).committed() == {TopicPartition(name, 0): OffsetAndMetadata(42, "note", 0)}


def test_topics_are_created_listed_changed_and_deleted(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 2, config={"cleanup.policy": ["compact", "delete"], "retention.ms": 60_000})
    with pytest.raises(errors.TopicAlreadyExistsError):
        node.topics.create(name)
    assert node.topics.create(name, exist_ok=True).describe() == topic.describe()
    (listed,) = (each for each in node.topics.list() if each.name == name)
    assert (listed, listed.partitions, listed.internal) == (topic.describe(), 2, False)
    assert (name in node.topics, "no-such-topic" in node.topics) == (True, False)
    assert node.topics[name].config()["cleanup.policy"] == "compact,delete"
    topic.set_config({"retention.ms": None, "max.message.bytes": 2_000})
    # A broker of Kafka learns changes of settings and topics after the controller has responded.
    wait_until(lambda: topic.config()["max.message.bytes"] == "2000", "the setting")
    assert topic.config()["retention.ms"] != "60000"
    with pytest.raises(errors.InvalidConfigError):
        topic.set_config({"no.such.setting": 1})
    topic.grow(3)
    assert topic.partitions() == [TopicPartition(name, 0), TopicPartition(name, 1), TopicPartition(name, 2)]
    with pytest.raises(errors.InvalidPartitionsError):
        topic.grow(2)
    topic.delete()
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        topic.delete()
    wait_until(lambda: name not in node.topics, "the end of the topic")


def test_records_are_read_as_they_were_appended(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 2)
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    placed = topic.append(b"v", "key", headers=[("h", b"1"), ("h", None)], partition=1, timestamp=when)
    assert placed == RecordMetadata(name, 1, 0, round(when.timestamp() * 1000))
    assert placed.timestamp == when
    (record,) = topic.read(1, 0)
    assert record == Record(name, 1, 0, placed.timestamp_ms, b"key", b"v", (("h", b"1"), ("h", None)))
    assert (record.timestamp, record.topic_partition) == (when, TopicPartition(name, 1))


def test_equal_keys_share_a_partition_and_many_records_are_one_batch(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 3)
    one, other = topic.append("a", key="abc"), topic.append("b", key=b"abc")
    assert (one.partition, other.offset) == (other.partition, one.offset + 1)
    metadata = topic.append_many(["x", b"y", ("abc", "z"), ("abc", None)], compression="zstd")
    assert len({each.partition for each in metadata[:2]}) == 1
    assert [each.partition for each in metadata[2:]] == [one.partition] * 2
    everything = [record for number in range(3) for record in topic.read(number, 0)]
    assert sorted(value or b"" for value in values(everything)) == [b"", b"a", b"b", b"x", b"y", b"z"]
    assert values(topic.read(one.partition, metadata[2].offset, 1)) == [b"z"]


def test_records_without_a_key_take_the_partitions_in_turn(node: kcore.Node, name: str) -> None:
    """Records without a key go to the partitions in turn. The node counts them, because each `node.topics[name]` is a
    new object.
    """
    node.topics.create(name, 3)
    partitions = [node.topics[name].append("one").partition for _ in range(3)]
    partitions += [node.topics[name].append_many(["one", "batch"])[1].partition for _ in range(3)]
    for _ in range(3):
        with node.transaction(name) as txn:
            txn.append(name, "one")
    committed = [index for index, end in node.topics[name].end_offsets().items() if end > 3]
    assert (partitions, committed) == ([1, 2, 0, 1, 2, 0], [0, 1, 2])


async def test_records_without_a_key_take_the_partitions_in_turn_on_a_loop(anode: kcore.AsyncNode, name: str) -> None:
    await anode.topics.create(name, 3)
    partitions = [(await anode.topics[name].append("one")).partition for _ in range(3)]
    partitions += [(await anode.topics[name].append_many(["one", "batch"]))[1].partition for _ in range(3)]
    assert partitions == [1, 2, 0, 1, 2, 0]


def test_an_existing_topic_with_other_partitions_is_returned_with_a_warning(
    node: kcore.Node, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`create` finds a topic with another number of partitions. It logs a warning, and does not wait for more
    partitions.
    """

    def sleep(seconds: float) -> None:
        raise AssertionError("waits for partitions that do not exist")

    node.topics.create(name, 2)
    node.topics[name].append("leaders are known")
    monkeypatch.setattr("kcore.node._sync.topics.sleep", sleep)
    for partitions in (5, 2, None):
        assert node.topics.create(name, partitions, exist_ok=True).describe().partitions == 2
    messages = [record.getMessage() for record in caplog.records if record.name == "kcore.node._sync.topics"]
    assert messages == [f"client: topic {name!r} exists with 2 partitions instead of 5; grow() adds partitions"]


def test_a_topic_has_start_and_end_offsets_and_offsets_at_a_time(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 2)
    topic.append("old", partition=0, timestamp=1_000.0)
    topic.append("new", partition=0, timestamp=2_000.0)
    assert (topic.start_offsets(), topic.end_offsets()) == ({0: 0, 1: 0}, {0: 2, 1: 0})
    assert topic.offsets_at(1_500.0) == {0: 1, 1: None}
    assert topic.offsets_at(datetime.fromtimestamp(500, UTC)) == {0: 0, 1: None}


def test_a_read_outside_of_the_log_is_an_error_and_a_read_at_its_end_is_empty(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1)
    assert topic.read(0, 0) == topic.read(0, 0, wait=0.01) == []
    with pytest.raises(errors.OffsetOutOfRangeError) as caught:
        topic.read(0, 5)
    assert caught.value.partitions == (TopicPartition(name, 0),)


def test_the_error_of_a_missing_topic_names_it(node: kcore.Node) -> None:
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="no-such-topic"):
        node.topics["no-such-topic"].append("v")
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="no-such-topic-0"):
        node.group("g").commit({("no-such-topic", 0): 1})


def test_a_commit_that_fails_in_part_names_the_partitions(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    with pytest.raises(errors.PartitionErrors) as caught:
        node.group(name).commit({(name, 0): 7, ("no-such-topic", 0): 1})
    assert {key: type(error) for key, error in caught.value.errors.items()} == {
        TopicPartition("no-such-topic", 0): errors.UnknownTopicOrPartitionError
    }
    assert node.group(name).committed() == {TopicPartition(name, 0): OffsetAndMetadata(7)}


def test_the_lag_follows_committed_offsets(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 3)
    topic.append_many(list("abc"), partition=0)
    group = node.group(name)
    group.commit({})
    assert (group.committed(), group.lag()) == ({}, {})
    group.commit({(name, 0): 1, (name, 1): 0})
    assert group.lag() == {TopicPartition(name, 0): 2, TopicPartition(name, 1): 0}
    assert group.committed([(name, 0), (name, 2)], stable=True) == {TopicPartition(name, 0): OffsetAndMetadata(1)}
    group.delete_offsets([(name, 0)])
    assert group.committed() == {TopicPartition(name, 1): OffsetAndMetadata(0)}
    group.commit({(name, 1): 4})
    assert group.lag() == {TopicPartition(name, 1): 0}, "the offset is after the end of the log"


def test_the_lag_leaves_out_topics_that_were_deleted(
    node: kcore.Node, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in (name, f"{name}-gone"):
        node.topics.create(topic, 1).append_many(["a", "b"], partition=0)
    group = node.group(name)
    group.commit({(name, 0): 1, (f"{name}-gone", 0): 1})
    assert group.lag() == {(name, 0): 1, (f"{name}-gone", 0): 1}
    committed = group.committed()
    node.topics[f"{name}-gone"].delete()
    monkeypatch.setattr(group, "committed", lambda: committed)  # the topic is deleted after this request of `lag`
    assert group.lag() == {(name, 0): 1}


def test_groups_are_listed_described_and_deleted(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    group = node.groups[name]
    with pytest.raises(errors.GroupIdNotFoundError):
        group.describe()
    group.commit({(name, 0): 1})
    assert group.describe() == GroupDescription(name, "classic", "Empty")
    mine = [each for each in node.groups.list(types=["classic"], states=["Empty"]) if each.group_id == name]
    assert mine == [GroupListing(name, "classic", "Empty")]
    assert not [each for each in node.groups.list(states=["Stable"]) if each.group_id == name]
    with pytest.raises(errors.UnknownMemberIdError):
        group.remove_members(member_ids=["no-such-member"])
    group.delete()
    with pytest.raises(errors.GroupIdNotFoundError):
        group.delete()


def test_a_damaged_batch_is_not_returned() -> None:
    partition = TopicPartition("t", 0)
    batch = bytearray(build_batch([(0, None, b"value", ())], CompressionType.NONE))
    whole = PartitionData(partition_index=0, records=bytes(batch))
    assert values(read_batches(partition, whole, 0, True)[0]) == [b"value"]
    batch[-3] ^= 1
    with pytest.raises(errors.CorruptMessageError, match="t-0"):
        read_batches(partition, PartitionData(partition_index=0, records=bytes(batch)), 0, True)


def test_the_lag_of_a_share_group_is_reported_by_its_coordinator(node: kcore.Node, name: str) -> None:
    """A share group has no committed offsets. Its coordinator computes the lag from the start offset."""
    node.topics.create(name, 2).append_many(list("abcdefghij"), partition=0)
    set_start_offset(node, name, name, 4)
    assert node.group(name).lag() == {TopicPartition(name, 0): 6}


def test_a_wrong_partition_or_offset_of_a_commit_is_named() -> None:
    partition = "{} is not a partition; valid: ('jobs', 0) or TopicPartition('jobs', 0)"
    offset = "the offset to commit is '1'; valid: an int or an OffsetAndMetadata"
    cases: list[tuple[Any, str]] = [
        ({"jobs": 1}, partition.format("'jobs'")),
        ({"ab": 1}, partition.format("'ab'")),
        ({("jobs", "0"): 1}, partition.format("('jobs', '0')")),
        ({("jobs", 0): 1, "jobs": 1}, partition.format("'jobs'")),
        ({("jobs", 0): "1"}, offset),
    ]
    with kcore.open() as node:
        node.topics.create("jobs", 1)
        group = node.group("workers")
        for offsets, message in cases:
            with pytest.raises(TypeError) as refused:
                group.commit(offsets)
            assert str(refused.value) == message
            with pytest.raises(TypeError) as refused, node.transaction("copy") as transaction:
                transaction.commit_offsets(group, offsets)
            assert str(refused.value) == message
        with group.join("jobs") as member:
            for offsets, message in cases:
                with pytest.raises(TypeError) as refused:
                    member.commit(offsets)
                assert str(refused.value) == message
            for offset in (-1, OffsetAndMetadata(-4)):
                with pytest.raises(ValueError, match="0 or more"):
                    member.commit({("jobs", 0): offset})
        for offset in (-1, OffsetAndMetadata(-4)):
            with pytest.raises(ValueError, match="0 or more"):
                group.commit({("jobs", 0): offset})
            with pytest.raises(ValueError, match="0 or more"), node.transaction("copy") as transaction:
                transaction.commit_offsets(group, {("jobs", 0): offset})
        with pytest.raises(TypeError, match=r"^'jobs' is not a partition"):
            group.committed(["jobs"])  # type: ignore[list-item]
        assert group.committed() == {}


def test_a_value_that_is_neither_bytes_nor_text_is_refused() -> None:
    """The producer refuses the value at once, so that the other records of its batch are stored."""
    wrong: Any = {"a": 1}
    value = "a key or value of type dict; valid: bytes, str or None"
    header = "('h', 'text') is not a header; valid: a pair of a name (str) and a value (bytes or None)"
    headers: Any = [("h", "text")]
    with kcore.open() as node:
        topic = node.topics.create("jobs", 1)
        with pytest.raises(TypeError) as refused:
            topic.append(wrong)
        assert str(refused.value) == value
        with pytest.raises(TypeError) as refused:
            topic.append_many(["before", ("key", wrong)])
        assert str(refused.value) == value
        with node.producer(linger=0.05) as producer, node.transaction("copy") as transaction:
            for add in (producer.append, transaction.append):
                add("jobs", "before")
                with pytest.raises(TypeError) as refused:
                    add("jobs", wrong)
                assert str(refused.value) == value
                with pytest.raises(TypeError) as refused:
                    add("jobs", "value", key=wrong)
                assert str(refused.value) == value
                with pytest.raises(TypeError) as refused:
                    add("jobs", "value", headers=headers)
                assert str(refused.value) == header
                add("jobs", bytearray(b"after"))
        assert sorted(values(topic.read(0, 0))) == [b"after", b"after", b"before", b"before"]


def test_a_wrong_position_or_isolation_of_a_consumer_is_refused() -> None:
    begin: Any = "begin"
    with kcore.open() as node:
        with pytest.raises(errors.ConfigError) as refused:
            node.group("workers").consume("jobs", reset=begin)
        assert str(refused.value) == "reset='begin'; valid: 'earliest', 'latest', 'none'"
        with pytest.raises(errors.ConfigError) as refused:
            node.group("workers").consume("jobs", isolation=begin)
        assert str(refused.value) == "isolation='begin'; valid: 'read_committed', 'read_uncommitted'"


def test_a_wrong_isolation_of_a_read_is_refused() -> None:
    isolation: Any = "READ_COMMITTED"
    with kcore.open() as node:
        topic = node.topics.create("jobs", 1)
        for read in (
            lambda: topic.read(0, 0, isolation=isolation),
            lambda: topic.end_offsets(isolation),
            lambda: node.topics.end_offsets([("jobs", 0)], isolation),
        ):
            with pytest.raises(errors.ConfigError) as refused:
                read()
            assert str(refused.value) == "isolation='READ_COMMITTED'; valid: 'read_committed', 'read_uncommitted'"


def test_the_settings_of_a_missing_topic_are_an_error_that_names_it(node: kcore.Node, name: str) -> None:
    """The server sends no text with this error. Before, the error ended after the name of its code."""
    with pytest.raises(errors.UnknownTopicOrPartitionError, match=f"topic '{name}': .*no such topic or partition"):
        node.topics[name].config()


def test_settings_that_would_commit_always_or_read_nothing_are_refused() -> None:
    with kcore.open() as node:
        group = node.group("workers")
        for seconds in (False, True, -1):
            with pytest.raises(errors.ConfigError) as refused:
                group.consume("jobs", auto_commit=seconds)
            assert str(refused.value) == (
                f"auto_commit={seconds!r}; valid: None (only commit() commits), or seconds, 0 or more"
            )
        for count in (0, -1):
            with pytest.raises(errors.ConfigError) as refused:
                group.consume("jobs", max_records=count)
            assert str(refused.value) == f"max_records={count}; valid: 1 to 2147483647"
        group.consume("jobs", auto_commit=0, max_records=1).close()


def test_a_position_of_something_that_is_no_partition_is_refused() -> None:
    number: Any = 0
    with kcore.open() as node:
        node.topics.create("jobs", 1)
        with node.group("workers").consume("jobs") as consumer:
            for use in (lambda: consumer.seek(number, 1), lambda: consumer.pause(number)):
                with pytest.raises(TypeError, match=r"^0 is not a partition; valid: \('jobs', 0\)"):
                    use()


def test_a_client_with_tls_at_a_listener_without_it_gets_the_cause() -> None:
    with kcore.open() as node:
        bootstrap = node.listen().bootstrap
        with pytest.raises(errors.ConnectionClosedError) as refused:
            kcore.connect(bootstrap, security={"security.protocol": "SSL"})
        cause = "the server closed the connection during the TLS handshake; its listener may not use TLS"
        assert str(refused.value) == f"cannot connect to {bootstrap}: {cause}"
