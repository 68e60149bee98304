"""Records of groups: `message.max.bytes` limits their size; `offsets.topic.compression.codec` compresses them."""

from __future__ import annotations

from kcore.broker.metadata.image import ConfigType
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kcore_ext.batch import parse_header
from tests.security.guarded import ADMIN, Guarded

PARTITIONS = 400


def create(name: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def commit(engine: Guarded, metadata: str, count: int = PARTITIONS) -> set[int]:
    """Commits offsets of a simple group. Returns the error codes."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata=metadata)
        for index in range(count)
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    response = engine.send(OffsetCommitRequest(group_id="g", topics=topics), 9, ADMIN)
    return {partition.error_code for topic in response.topics for partition in topic.partitions}


def set_limit(engine: Guarded, kind: ConfigType, name: str, setting: str, value: int) -> None:
    config = AlterableConfig(name=setting, config_operation=0, value=str(value))
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    (result,) = engine.send(IncrementalAlterConfigsRequest(resources=[resource]), 1, ADMIN).responses
    assert result.error_code == 0


def longest(engine: Guarded) -> int:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=range(PARTITIONS))]
    response = engine.send(OffsetFetchRequest(group_id="g", topics=topics), 7, ADMIN)
    return max(len(partition.metadata or "") for topic in response.topics for partition in topic.partitions)


def test_the_limit_follows_the_settings_of_the_broker_and_of_the_topic() -> None:
    engine = Guarded()
    engine.send(create("t", PARTITIONS), who=ADMIN)
    assert commit(engine, "m" * 4_096) == {-1}, "a record of more than 1 MiB is accepted"
    set_limit(engine, ConfigType.BROKER, "", "message.max.bytes", 10_000_000)
    assert commit(engine, "m" * 4_096) == {0}
    assert longest(engine) == 4_096
    set_limit(engine, ConfigType.TOPIC, "__consumer_offsets", "max.message.bytes", 2_000)
    assert commit(engine, "m" * 4_096, 1) == {-1}
    assert commit(engine, "m" * 100, 1) == {0}
    engine.restart()
    assert commit(engine, "m" * 4_096, 1) == {-1}
    assert longest(engine) == 4_096


def test_records_of_groups_are_compressed() -> None:
    """Compression applies to every batch. A restarted node reads the compressed batches."""
    engine = Guarded(offsets_topic_compression_codec="1")
    engine.send(create("t", PARTITIONS), who=ADMIN)
    for metadata in ("m" * 100, "x"):
        assert commit(engine, metadata, 2) == {0}
    partition = engine.engine.partitions.get("__consumer_offsets", 0)
    assert partition is not None
    assert [parse_header(batch).compression for _, batch in partition.log.batches()] == [1, 1]
    engine.restart()
    assert longest(engine) == 1
