"""kafka-python: producing, consuming, offsets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka import codec as codecs
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import CommitFailedError, InvalidRecordError, MessageSizeTooLargeError

from tests.clients.conftest import create_topic
from tests.clients.waiting import DEADLINE_S, eventually

NewTopic = Callable[..., str]

CODECS = [None] + [codec for codec in ("gzip", "snappy", "lz4", "zstd") if getattr(codecs, f"has_{codec}")()]


@contextmanager
def consuming(bootstrap: str, group: str | None, **settings: Any) -> Iterator[KafkaConsumer]:
    """Yields a consumer that begins at the start of its partitions and does not commit automatically."""
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 100}
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **(options | settings))
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def producing(bootstrap: str, **settings: Any) -> Iterator[KafkaProducer]:
    """Yields a producer."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    try:
        yield producer
    finally:
        producer.close(timeout=10)


def read(consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    """Returns the next `count` records. Polls for a long time and without pauses, because kafka-python 3.0 loses a join
    that ends between two polls.
    """
    records: list[ConsumerRecord] = []

    def enough() -> bool:
        for some in consumer.poll(timeout_ms=10_000, max_records=count - len(records)).values():
            records.extend(some)
        return len(records) >= count

    eventually(enough, f"{count} records", pause_s=0)
    return records


def send(bootstrap: str, topic: str, values: list[Any], partition: int = 0, **settings: Any) -> list[int]:
    """Produces values in order; returns their offsets."""
    with producing(bootstrap, **settings) as producer:
        futures = [producer.send(topic, value, partition=partition) for value in values]
        return [future.get(timeout=DEADLINE_S).offset for future in futures]


def read_all(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """Returns the first `count` records of partition 0."""
    with consuming(bootstrap, None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return read(consumer, count)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_arrives_as_it_was_sent(
    codec: str | None, idempotent: bool, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    values = [b"the same words over and over %d" % number for number in range(200)]
    offsets = send(bootstrap, topic, values, compression_type=codec, enable_idempotence=idempotent, linger_ms=20)
    assert offsets == list(range(200))
    assert [(record.offset, record.value) for record in read_all(bootstrap, topic, 200)] == list(enumerate(values))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_are_stored_with_each_setting_of_acks(acks: Any, bootstrap: str, new_topic: NewTopic) -> None:
    """With acks=0 the server sends no response, and the client guesses the offset. The record is stored."""
    topic = new_topic()
    offsets = send(bootstrap, topic, [b"a", b"b", b"c"], acks=acks, enable_idempotence=False)
    assert acks == 0 or offsets == [0, 1, 2]
    assert [record.value for record in read_all(bootstrap, topic, 3)] == [b"a", b"b", b"c"]


def test_keys_headers_timestamps_and_tombstones_are_read_as_they_were_sent(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    headers = [("trace", b"\x00\x01"), ("trace", b"twice"), ("empty", b"")]
    with producing(bootstrap) as producer:
        producer.send(topic, b"value", b"key", timestamp_ms=1_500_000_000_123, headers=headers)
        producer.send(topic, None, b"key", timestamp_ms=1_500_000_000_124)
        producer.send(topic, b"", None, timestamp_ms=1_500_000_000_125)
        producer.flush(timeout=DEADLINE_S)
    seen = [
        (record.key, record.value, record.timestamp_type, record.timestamp, list(record.headers))
        for record in read_all(bootstrap, topic, 3)
    ]
    assert seen == [
        (b"key", b"value", 0, 1_500_000_000_123, headers),
        (b"key", None, 0, 1_500_000_000_124, []),
        (None, b"", 0, 1_500_000_000_125, []),
    ]


def test_large_messages_are_stored_and_too_large_ones_are_refused(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="3000000")
    large = bytes(range(256)) * 10_000
    # Its idempotent producer cannot continue after such an error.
    with producing(bootstrap, max_request_size=10_000_000, enable_idempotence=False) as producer:
        assert producer.send(topic, large).get(timeout=DEADLINE_S).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, large * 2).get(timeout=DEADLINE_S)
        assert producer.send(topic, b"after").get(timeout=DEADLINE_S).offset == 1
    assert [record.value for record in read_all(bootstrap, topic, 2)] == [large, b"after"]


def test_a_message_larger_than_a_fetch_arrives(bootstrap: str, new_topic: NewTopic) -> None:
    """The first batch of a fetch is always complete, even if it exceeds the limits (KIP-74)."""
    topic = new_topic()
    values = [b"x" * 100_000, b"y" * 100_000]
    send(bootstrap, topic, values)
    with consuming(bootstrap, None, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in read(consumer, 2)] == values


def test_a_compacted_topic_requires_keys(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(cleanup_policy="compact")
    with producing(bootstrap, enable_idempotence=False) as producer:
        assert producer.send(topic, b"value", b"key").get(timeout=DEADLINE_S).offset == 0
        with pytest.raises(InvalidRecordError):
            producer.send(topic, b"value").get(timeout=DEADLINE_S)
        assert producer.send(topic, b"value", b"key").get(timeout=DEADLINE_S).offset == 1


def test_producing_to_a_missing_topic_creates_it(bootstrap: str, name: str) -> None:
    """By default `auto.create.topics.enable` is true, as in Kafka."""
    assert send(bootstrap, name, [b"first"]) == [0]
    assert [record.value for record in read_all(bootstrap, name, 1)] == [b"first"]


def test_each_of_several_partitions_is_read_in_order(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(6)
    with producing(bootstrap, linger_ms=5) as producer:
        for number in range(600):
            producer.send(topic, b"%d" % number, partition=number % 6)
        producer.flush(timeout=DEADLINE_S)
    with consuming(bootstrap, None) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(6)])
        seen: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(6)}
        for record in read(consumer, 600):
            seen[record.partition].append((record.offset, record.value))
    assert seen == {
        partition: [(offset, b"%d" % (offset * 6 + partition)) for offset in range(100)] for partition in range(6)
    }


def test_a_consumer_seeks_to_beginning_end_offset_and_time(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    part = TopicPartition(topic, 0)
    with producing(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp_ms=1_600_000_000_000 + 1000 * number)
        producer.flush(timeout=DEADLINE_S)
    with consuming(bootstrap, None) as consumer:
        consumer.assign([part])
        assert [record.offset for record in read(consumer, 10)] == list(range(10))
        consumer.seek(part, 4)
        assert [record.offset for record in read(consumer, 6)] == [4, 5, 6, 7, 8, 9]
        consumer.seek_to_beginning(part)
        assert [record.offset for record in read(consumer, 2)] == [0, 1]
        consumer.seek_to_end(part)
        assert consumer.position(part) == 10
        assert (consumer.beginning_offsets([part]), consumer.end_offsets([part])) == ({part: 0}, {part: 10})
        found = consumer.offsets_for_times({part: 1_600_000_003_500})[part]
        assert (found.offset, found.timestamp) == (4, 1_600_000_004_000)
        assert consumer.offsets_for_times({part: 1_600_000_099_000}) == {part: None}
        assert send(bootstrap, topic, [b"new"]) == [10]
        assert [record.value for record in read(consumer, 1)] == [b"new"]


def test_commits_are_sync_async_or_manual(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    send(bootstrap, topic, [b"%d" % number for number in range(10)])
    with consuming(bootstrap, name) as consumer:
        consumer.subscribe([topic])
        assert len(read(consumer, 10)) == 10
        assert (consumer.committed(first), consumer.committed(second)) == (None, None)
        consumer.commit({first: OffsetAndMetadata(3, "", -1)})
        assert (consumer.committed(first), consumer.committed(second)) == (3, None)
        consumer.commit({first: OffsetAndMetadata(5, "a note", 0), second: OffsetAndMetadata(0, "", -1)})
        assert consumer.committed(first, metadata=True) == OffsetAndMetadata(5, "a note", 0)
        assert consumer.committed(second) == 0
        done = threading.Event()
        results: list[Any] = []

        def on_commit(offsets: Any, result: Any) -> None:
            results.append((offsets, isinstance(result, Exception)))
            done.set()

        consumer.commit_async({first: OffsetAndMetadata(7, "", -1)}, callback=on_commit)
        eventually(lambda: consumer.poll(timeout_ms=50) or done.is_set(), "the commit's callback", pause_s=0)
        assert results == [({first: OffsetAndMetadata(7, "", -1)}, False)]
        assert consumer.committed(first) == 7
    with consuming(bootstrap, name) as consumer:  # continues where the group stopped
        consumer.subscribe([topic])
        assert [record.offset for record in read(consumer, 3)] == [7, 8, 9]


def test_a_commit_of_a_fenced_member_is_refused(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    """A member that does not poll in time loses its partitions. Its commit is refused, because another member owns
    them.
    """
    topic = new_topic()
    part = TopicPartition(topic, 0)
    send(bootstrap, topic, [b"a", b"b"])
    short_timeouts = {"max_poll_interval_ms": 1_000, "session_timeout_ms": 1_000, "heartbeat_interval_ms": 100}
    with consuming(bootstrap, name, **short_timeouts) as consumer:
        consumer.subscribe([topic])
        read(consumer, 2)
        with consuming(bootstrap, name) as other:
            other.subscribe([topic])
            read(other, 2)  # the first one does not poll: it loses the partition
            with pytest.raises(CommitFailedError):
                consumer.commit({part: OffsetAndMetadata(2, "", -1)})
            assert other.committed(part) is None


def test_auto_commit_stores_the_offsets_of_polled_records(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    send(bootstrap, topic, [b"a", b"b", b"c"])
    with consuming(bootstrap, name, enable_auto_commit=True, auto_commit_interval_ms=100) as consumer:
        consumer.subscribe([topic])
        read(consumer, 3)

        def committed() -> bool:
            consumer.poll(timeout_ms=50)
            return bool(consumer.committed(TopicPartition(topic, 0)) == 3)

        assert eventually(committed, "the offset is committed in the background")


def test_a_pattern_finds_topics_that_are_created_later(
    bootstrap: str, name: str, admin: AdminClient, new_topic: NewTopic
) -> None:
    first = new_topic(suffix="-match-1")
    other = new_topic(suffix="-other")
    send(bootstrap, first, [b"first"])
    send(bootstrap, other, [b"other"])
    with consuming(bootstrap, name, metadata_max_age_ms=200, heartbeat_interval_ms=300) as consumer:
        consumer.subscribe(pattern=f"^{name}-match-.*")
        assert [record.value for record in read(consumer, 1)] == [b"first"]
        second = create_topic(admin, name + "-match-2")
        send(bootstrap, second, [b"second"])
        # Records without a commit before the rebalance may be delivered again.
        eventually(lambda: read(consumer, 1)[0].value == b"second", "a record of the topic that came", pause_s=0)
        assert consumer.subscription() == {first, second}


def test_paused_partitions_return_no_records(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consuming(bootstrap, None) as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        send(bootstrap, topic, [b"zero"], partition=0)
        send(bootstrap, topic, [b"one"], partition=1)
        assert [record.value for record in read(consumer, 1)] == [b"one"]
        consumer.resume(first)
        assert [record.value for record in read(consumer, 1)] == [b"zero"]
