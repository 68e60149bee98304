"""confluent-kafka (librdkafka): producing, consuming, offsets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import create_topic
from tests.clients.waiting import DEADLINE_S, eventually

NewTopic = Callable[..., str]


@contextmanager
def consuming(bootstrap: str, group: str, **settings: Any) -> Iterator[Consumer]:
    """Yields a consumer that begins at the start and does not commit automatically. Keywords are settings, with
    underscores in place of dots.
    """
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "log_level": 0,
    }
    options |= {key if key == "on_commit" else key.replace("_", "."): value for key, value in settings.items()}
    consumer = Consumer(options)
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[Message]:
    """Returns the next `count` messages."""
    messages: list[Message] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(messages), timeout=0.2):
            assert message.error() is None, message.error()
            messages.append(message)
        return len(messages) >= count

    eventually(enough, f"{count} messages")
    return messages


def send(bootstrap: str, topic: str, values: list[Any], partition: int = 0, **settings: Any) -> list[Message]:
    """Produces values in order; returns the offsets or errors of the delivery reports."""
    reports: list[Message] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        reports.append(message)

    options = {"bootstrap.servers": bootstrap, "log_level": 0}
    options |= {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer(options)
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    return reports


def read_all(bootstrap: str, group: str, topic: str, count: int, partition: int = 0) -> list[Message]:
    """Returns the first `count` messages of a partition."""
    with consuming(bootstrap, group) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        return read(consumer, count)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_arrives_as_it_was_sent(
    codec: str, idempotent: bool, bootstrap: str, name: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    values = [b"the same words over and over %d" % number for number in range(200)]
    reports = send(bootstrap, topic, values, compression_type=codec, enable_idempotence=idempotent, linger_ms=20)
    assert [report.offset() for report in reports] == list(range(200))
    messages = read_all(bootstrap, name, topic, 200)
    assert [(message.offset(), message.value()) for message in messages] == list(enumerate(values))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_are_stored_with_each_setting_of_acks(
    acks: Any, bootstrap: str, name: str, new_topic: NewTopic
) -> None:
    """With acks=0 the client gets no offset, but the record is stored."""
    topic = new_topic()
    reports = send(bootstrap, topic, [b"a", b"b", b"c"], acks=acks)
    assert [report.offset() for report in reports] == ([None, None, None] if acks == 0 else [0, 1, 2])
    assert [message.value() for message in read_all(bootstrap, name, topic, 3)] == [b"a", b"b", b"c"]


def test_keys_headers_timestamps_and_tombstones_are_read_as_they_were_sent(
    bootstrap: str, name: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    headers = [("trace", b"\x00\x01"), ("trace", b"twice"), ("empty", b""), ("null", None)]
    producer.produce(topic, b"value", b"key", timestamp=1_500_000_000_123, headers=headers)
    producer.produce(topic, None, b"key", timestamp=1_500_000_000_124)
    producer.produce(topic, b"", None, timestamp=1_500_000_000_125)
    assert producer.flush(DEADLINE_S) == 0
    seen = [
        (message.key(), message.value(), message.timestamp(), message.headers())
        for message in read_all(bootstrap, name, topic, 3)
    ]
    assert seen == [
        (b"key", b"value", (TIMESTAMP_CREATE_TIME, 1_500_000_000_123), headers),
        (b"key", None, (TIMESTAMP_CREATE_TIME, 1_500_000_000_124), None),
        (None, b"", (TIMESTAMP_CREATE_TIME, 1_500_000_000_125), None),
    ]


def test_a_topic_with_log_append_time_sets_timestamps(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    """The topic has message.timestamp.type=LogAppendTime."""
    topic = new_topic(message_timestamp_type="LogAppendTime")
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, b"value", timestamp=1_500_000_000_123)
    assert producer.flush(DEADLINE_S) == 0
    [message] = read_all(bootstrap, name, topic, 1)
    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert timestamp_ms > 1_700_000_000_000


def test_large_messages_are_stored_and_too_large_ones_are_refused(
    bootstrap: str, name: str, new_topic: NewTopic
) -> None:
    topic = new_topic(max_message_bytes="3000000")
    large = bytes(range(256)) * 10_000
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "message.max.bytes": 10_000_000})
    errors: list[KafkaError | None] = []
    for value in (large, large * 2, b"after"):
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
    assert [error and error.code() for error in errors] == [None, KafkaError.MSG_SIZE_TOO_LARGE, None]
    assert [message.value() for message in read_all(bootstrap, name, topic, 2)] == [large, b"after"]


def test_a_message_larger_than_a_fetch_arrives(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    """The first batch of a fetch is always complete, even if it exceeds the limits (KIP-74)."""
    topic = new_topic()
    values = [b"x" * 100_000, b"y" * 100_000]
    send(bootstrap, topic, values)
    with consuming(bootstrap, name, max_partition_fetch_bytes=1_000) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert [message.value() for message in read(consumer, 2)] == values


def test_a_compacted_topic_requires_keys(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0})
    errors: list[KafkaError | None] = []
    for key in (b"key", None, b"key"):
        producer.produce(topic, b"value", key, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
    assert [error and error.code() for error in errors] == [None, KafkaError.INVALID_RECORD, None]


def test_producing_to_a_missing_topic_creates_it(bootstrap: str, name: str) -> None:
    """By default `auto.create.topics.enable` is true, as in Kafka."""
    send(bootstrap, name, [b"first"])
    assert [message.value() for message in read_all(bootstrap, name, name, 1)] == [b"first"]


def test_each_of_several_partitions_is_read_in_order(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    topic = new_topic(6)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5})
    for number in range(600):
        producer.produce(topic, b"%d" % number, partition=number % 6)
    assert producer.flush(DEADLINE_S) == 0
    with consuming(bootstrap, name) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(6)])
        seen: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(6)}
        for message in read(consumer, 600):
            seen[message.partition()].append((message.offset(), message.value()))
    assert seen == {
        partition: [(offset, b"%d" % (offset * 6 + partition)) for offset in range(100)] for partition in range(6)
    }


def test_a_consumer_seeks_to_beginning_end_offset_and_time(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=1_600_000_000_000 + 1000 * number)
    assert producer.flush(DEADLINE_S) == 0
    with consuming(bootstrap, name, enable_partition_eof=True) as consumer:

        def at(offset: int) -> int | str:
            """Seeks to an offset. Returns the offset of the next message."""
            consumer.seek(TopicPartition(topic, 0, offset))
            message = eventually(lambda: consumer.poll(0.5), "a message or the end")
            if message.error() is None:
                return message.offset()
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            return f"end at {message.offset()}"

        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        read(consumer, 10)
        assert at(4) == 4
        assert at(OFFSET_BEGINNING) == 0
        assert at(OFFSET_END) == "end at 10"
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 10)
        requested = [TopicPartition(topic, 0, 1_600_000_003_500), TopicPartition(topic, 0, 1_600_000_099_000)]
        assert [consumer.offsets_for_times([each], timeout=30)[0].offset for each in requested] == [4, OFFSET_END]
        assert at(9) == 9


def test_commits_are_sync_async_or_manual(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    send(bootstrap, topic, [b"%d" % number for number in range(10)])
    committed_async: list[tuple[KafkaError | None, list[TopicPartition]]] = []
    arrived = threading.Event()

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        committed_async.append((error, partitions))
        arrived.set()

    with consuming(bootstrap, name, on_commit=on_commit) as consumer:

        def committed() -> list[int]:
            requested = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            return [part.offset for part in consumer.committed(requested, timeout=30)]

        consumer.subscribe([topic])
        messages = read(consumer, 10)
        assert committed() == [OFFSET_INVALID, OFFSET_INVALID]
        [result] = consumer.commit(messages[2], asynchronous=False)
        assert (result.offset, result.error) == (3, None)
        assert committed() == [3, OFFSET_INVALID]
        consumer.commit(
            offsets=[TopicPartition(topic, 0, 5, "a note"), TopicPartition(topic, 1, 0)], asynchronous=False
        )
        assert committed() == [5, 0]
        [part] = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        assert part.metadata == "a note"
        arrived.clear()
        committed_async.clear()
        consumer.commit(messages[6], asynchronous=True)
        eventually(lambda: consumer.poll(0.05) is not None or arrived.is_set(), "the commit's callback")
        assert [(error, [(part.partition, part.offset) for part in parts]) for error, parts in committed_async] == [
            (None, [(0, 7)])
        ]
        assert committed() == [7, 0]
    with consuming(bootstrap, name) as consumer:  # continues where the group stopped
        consumer.subscribe([topic])
        assert [message.offset() for message in read(consumer, 3)] == [7, 8, 9]


def test_a_commit_of_a_fenced_member_is_refused(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    """A member that does not poll in time loses its partitions. Its commit is refused, because another member owns
    them.
    """
    topic = new_topic()
    send(bootstrap, topic, [b"a", b"b"])
    with consuming(bootstrap, name, max_poll_interval_ms=1_000, session_timeout_ms=1_000) as consumer:
        consumer.subscribe([topic])
        read(consumer, 2)
        with consuming(bootstrap, name) as other:
            other.subscribe([topic])
            read(other, 2)  # the first one does not poll: it loses the partition
            with pytest.raises(KafkaException) as failure:
                consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
            assert failure.value.args[0].code() in {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}
            assert other.committed([TopicPartition(topic, 0)], timeout=30)[0].offset == OFFSET_INVALID


def test_a_member_is_fenced_when_another_one_uses_its_instance_id(
    bootstrap: str, name: str, new_topic: NewTopic
) -> None:
    """Of two processes with one instance id, the later one replaces the earlier one (KIP-345)."""
    topic = new_topic()
    send(bootstrap, topic, [b"a"])
    static = {"group_instance_id": "one", "heartbeat_interval_ms": 200}
    with consuming(bootstrap, name, **static) as consumer:
        consumer.subscribe([topic])
        read(consumer, 1)
        with consuming(bootstrap, name, **static) as other:
            other.subscribe([topic])
            read(other, 1)
            failed = eventually(lambda: consumer.poll(0.5), "the fenced one is told")
            assert failed.error().code() == KafkaError._FATAL
            assert "group.instance.id" in failed.error().str()


def test_auto_commit_stores_the_offsets_of_polled_records(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    send(bootstrap, topic, [b"a", b"b", b"c"])
    with consuming(bootstrap, name, enable_auto_commit=True, auto_commit_interval_ms=100) as consumer:
        consumer.subscribe([topic])
        read(consumer, 3)

        def committed() -> bool:
            consumer.poll(0.05)
            return consumer.committed([TopicPartition(topic, 0)], timeout=30)[0].offset == 3

        assert eventually(committed, "the offset is committed in the background")


def test_a_pattern_finds_topics_that_are_created_later(
    bootstrap: str, name: str, admin: AdminClient, new_topic: NewTopic
) -> None:
    first = new_topic(suffix="-match-1")
    new_topic(suffix="-other")
    with consuming(bootstrap, name, topic_metadata_refresh_interval_ms=200) as consumer:
        consumer.subscribe([f"^{name}-match-.*"])

        def assigned() -> list[str]:
            consumer.poll(0.05)
            return sorted(part.topic for part in consumer.assignment())

        assert eventually(lambda: assigned() == [first], "the topic that is there")
        second = create_topic(admin, name + "-match-2")
        assert eventually(lambda: assigned() == [first, second], "the topic that came")
        admin.delete_topics([first])[first].result(30)
        assert eventually(lambda: assigned() == [second], "the topic that went is forgotten")


def test_paused_partitions_return_no_records(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with consuming(bootstrap, name) as consumer:
        parts = [TopicPartition(topic, 0, OFFSET_BEGINNING), TopicPartition(topic, 1, OFFSET_BEGINNING)]
        consumer.assign(parts)
        consumer.pause(parts[:1])
        send(bootstrap, topic, [b"zero"], partition=0)
        send(bootstrap, topic, [b"one"], partition=1)
        assert [message.value() for message in read(consumer, 1)] == [b"one"]
        consumer.resume(parts[:1])
        assert [message.value() for message in read(consumer, 1)] == [b"zero"]
