"""Encoding and decoding of whole messages, compared with kio and kafka-python in the same run.

    python -m pytest bench/test_codec.py --benchmark-columns=min,median,ops

A row encodes an existing message or decodes existing bytes, and so measures only the codec. The objects of the other
codecs are decoded from kcore's bytes. Every codec must reproduce these bytes before it is measured.
"""

import io
import time
from collections.abc import Callable
from typing import Any

import kafka.protocol.consumer as kafka_python
import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kcore.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.schema import Message

# The machine is shared, so this clock counts processor time; reading it takes half a microsecond.
pytestmark = pytest.mark.benchmark(timer=time.process_time, min_time=0.0005)

Codec = tuple[Callable[[], bytes], Callable[[], Any]]
"""Type of a measured codec: (function that encodes a message, function that decodes its bytes)."""

MEMBER_ID = "consumer-app-1-0f8fad5b-d9cb-469f-a165-70867728950e"

MESSAGES: dict[str, tuple[Message, int]] = {
    "heartbeat-v4-request": (HeartbeatRequest(group_id="orders-app", generation_id=42, member_id=MEMBER_ID), 4),
    "heartbeat-v4-response": (HeartbeatResponse(), 4),
    "offset-commit-v9-10-partitions": (
        OffsetCommitRequest(
            group_id="orders-app",
            generation_id_or_member_epoch=42,
            member_id=MEMBER_ID,
            topics=[
                OffsetCommitRequestTopic(
                    name="orders",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=i,
                            committed_offset=1_000_000 + i,
                            committed_leader_epoch=5,
                            committed_metadata="",
                        )
                        for i in range(10)
                    ],
                )
            ],
        ),
        9,
    ),
    "join-group-v9-response-50-members": (
        JoinGroupResponse(
            generation_id=42,
            protocol_type="consumer",
            protocol_name="range",
            leader=MEMBER_ID,
            member_id=MEMBER_ID,
            members=[
                JoinGroupResponseMember(member_id=f"{MEMBER_ID[:-2]}{i:02}", metadata=b"m" * 40) for i in range(50)
            ],
        ),
        9,
    ),
    "consumer-group-heartbeat-v1-steady": (
        ConsumerGroupHeartbeatRequest(group_id="group-123", member_id="0f8fad5bd9cb469fa16570", member_epoch=7),
        1,
    ),
    "consumer-group-heartbeat-v1": (
        ConsumerGroupHeartbeatRequest(
            group_id="orders-app",
            member_id="0f8fad5bd9cb469fa16570",
            member_epoch=7,
            topic_partitions=[TopicPartitions(topic_id=bytes(range(16)), partitions=[0, 1, 2, 3])],
        ),
        1,
    ),
    "fetch-v12-response-10x1KiB": (
        FetchResponse(
            session_id=7,
            responses=[
                FetchableTopicResponse(
                    topic="orders",
                    partitions=[
                        PartitionData(
                            partition_index=i,
                            high_watermark=10**6,
                            last_stable_offset=10**6,
                            log_start_offset=0,
                            records=bytes(1024),
                        )
                        for i in range(10)
                    ],
                )
            ],
        ),
        12,
    ),
}


def _kcore(message: Message, version: int, data: bytes) -> Codec:
    decode = type(message).decode
    return lambda: message.encode(version), lambda: decode(data, version)


def _kio(message: Message, version: int, data: bytes) -> Codec:
    load = load_request_schema if type(message).__name__.endswith("Request") else load_response_schema
    cls: Any = load(message.API_KEY, version)
    read, write = entity_reader(cls), entity_writer(cls)
    entity, _ = read(data, 0)

    def encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    return encode, lambda: read(data, 0)


def _kafka_python(message: Message, version: int, data: bytes) -> Codec:
    cls = getattr(kafka_python, type(message).__name__, None)
    if cls is None:
        pytest.skip("kafka-python has no such message")
    entity = cls.decode(data, version=version)
    entity._header = None  # decoding does not set this attribute, and encoding reads it
    return lambda: entity.encode(version=version), lambda: cls.decode(data, version=version)


CODECS = {"kcore": _kcore, "kio": _kio, "kafka-python": _kafka_python}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", MESSAGES)
def test_encode(benchmark: Any, name: str, codec: str) -> None:
    message, version = MESSAGES[name]
    data = message.encode(version)
    encode, _ = CODECS[codec](message, version, data)
    assert bytes(encode()) == data
    benchmark.group = f"encode {name}"
    benchmark(encode)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", MESSAGES)
def test_decode(benchmark: Any, name: str, codec: str) -> None:
    message, version = MESSAGES[name]
    data = message.encode(version)
    encode, decode = CODECS[codec](message, version, data)
    assert bytes(encode()) == data
    assert decode() is not None
    benchmark.group = f"decode {name}"
    benchmark(decode)


@pytest.mark.parametrize("name", ["heartbeat-v4-response", "heartbeat-v4-request"])
def test_construct(benchmark: Any, name: str) -> None:
    """Measures the construction of a message with keyword arguments, as in a handler."""
    cls, version = type(MESSAGES[name][0]), MESSAGES[name][1]
    values = {s.name: getattr(MESSAGES[name][0], s.name) for s in cls.FIELDS}
    benchmark.group = f"construct {name}"
    made = benchmark(lambda: cls(**values))
    assert made.encode(version) == MESSAGES[name][0].encode(version)
