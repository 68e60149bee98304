"""Virtual topics: names with numbered shards and without data, which distribute work among group members.

A consumer group distributes the partitions of its topics regardless of their contents. So any service can use a topic
without records to distribute its shards. Each shard belongs to one member, and moves individually when members join or
leave. A member epoch fences members that were paused for too long (KIP-848). The members are ordinary consumers of any
client library that implements the protocol. A committed offset can store the progress of a shard.

A virtual topic is an ordinary topic that refuses every record (`max.message.bytes=0`). It works on any Kafka-compatible
server, which stores only the metadata of the topic.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

SETTINGS: Final = {"max.message.bytes": "0", "cleanup.policy": "compact"}
"""The settings of a virtual topic: every record is too large, and no retention limit applies."""

TIMEOUT_MS: Final = 30_000


class Server(Protocol):
    """A component that serves requests: an engine in this process, or a connection to a server."""

    def send(self, request: Any, version: int | None = None) -> Any:
        """Returns the response to a request."""
        ...


def declare_virtual_topic(server: Server, name: str, shards: int) -> int:
    """Creates a virtual topic, or extends it to `shards` shards. Every member may call it.

    Args:
        server: an engine, or a connection.
        name: the name of the topic.
        shards: the number of shards. A topic with fewer shards is extended; a topic with more is not changed.

    Returns:
        The number of shards.

    Raises:
        KafkaError: the server refused the request.
    """
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in SETTINGS.items()]
    topic = CreatableTopic(name=name, num_partitions=shards, replication_factor=-1, configs=settings)
    (created,) = server.send(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)).topics
    if not created.error_code:
        return shards
    if created.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise KafkaError(ErrorCode(created.error_code), created.error_message)
    requested = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (existing,) = server.send(requested).topics
    if existing.error_code:
        raise KafkaError(ErrorCode(existing.error_code))
    current = len(existing.partitions)
    if current >= shards:
        return current
    extension = CreatePartitionsTopic(name=name, count=shards, assignments=None)
    (extended,) = server.send(CreatePartitionsRequest(topics=[extension], timeout_ms=TIMEOUT_MS)).results
    if extended.error_code and extended.error_code != ErrorCode.INVALID_PARTITIONS:  # another member was faster
        raise KafkaError(ErrorCode(extended.error_code), extended.error_message)
    return shards
