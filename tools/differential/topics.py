"""Kinds of requests that several parts of the comparison use: create topics and append records."""

from __future__ import annotations

from typing import Any

from kcore.protocol.messages import produce
from kcore.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kcore_ext.batch.builder import BatchBuilder
from tools.differential.program import Call
from tools.differential.side import NOW_MS, Side


def create(
    side: Side, name: str, partitions: int, settings: dict[str, str] | None = None, version: int = 7, **more: Any
) -> tuple[CreateTopicsRequest, int]:
    """Makes a CreateTopics request for one topic."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()]
    factor = more.get("factor", 1)
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=configs)
    check = bool(more.get("validate_only"))
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=check), version


def learn_created(side: Side, response: CreateTopicsResponse, **_: Any) -> None:
    """Stores the ids of the created topics."""
    for topic in response.topics:
        if not topic.error_code:
            side.topic_ids[topic.name] = topic.topic_id


CREATE = Call(create, learn_created, changes_metadata=True)


def append(side: Side, topic: str, counts: list[int], partition: int = 0) -> tuple[produce.ProduceRequest, int]:
    """Builds a Produce request. Each element of `counts` is the number of records of one batch."""
    records = b""
    for count in counts:
        builder = BatchBuilder(1 << 20, base_timestamp_ms=NOW_MS)
        for number in range(count):
            builder.append(NOW_MS, None, b"v%d" % number)
        records += builder.build()
    data = [produce.PartitionProduceData(index=partition, records=records)]
    row = produce.TopicProduceData(name=topic, partition_data=data)
    return produce.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[row]), 9


APPEND = Call(append)
