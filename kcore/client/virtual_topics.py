"""Virtual topics: names with numbered shards and no data, to share work instead of records.

A consumer group shares the partitions of its topics, and of what is in them it knows nothing. A topic that holds no
records is therefore a way for any service to have its shards owned: by one member each, moved one by one when members
come and go, with a member epoch that fences whoever was away too long (KIP-848). Members are ordinary consumers of any
client library that speaks the protocol; a shard's progress can be kept as its committed offset.

A virtual topic is an ordinary topic that takes no message (`max.message.bytes=0`), so that it works the same on any
Kafka-compatible server, and costs nothing but its name.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

SETTINGS: Final = {"max.message.bytes": "0", "cleanup.policy": "compact"}
"""What makes a topic virtual: no message fits, and nothing is ever to be deleted for its age."""

TIMEOUT_MS: Final = 30_000


class Server(Protocol):
    """Whoever answers requests: an engine in this process, or a connection to a server."""

    def send(self, request: Any, version: int | None = None) -> Any:
        """The response to a request."""
        ...


def declare_virtual_topic(server: Server, name: str, shards: int) -> int:
    """Makes sure that a virtual topic is there and has at least so many shards. May be called by every member.

    Args:
        server: an engine, or a connection.
        name: the topic.
        shards: how many; a topic that has fewer is grown, one that has more is left alone.

    Returns:
        How many shards it has.

    Raises:
        KafkaError: the server refused.
    """
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in SETTINGS.items()]
    topic = CreatableTopic(name=name, num_partitions=shards, replication_factor=-1, configs=settings)
    (made,) = server.send(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)).topics
    if not made.error_code:
        return shards
    if made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise KafkaError(ErrorCode(made.error_code), made.error_message)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (found,) = server.send(asked).topics
    if found.error_code:
        raise KafkaError(ErrorCode(found.error_code))
    present = len(found.partitions)
    if present >= shards:
        return present
    growing = CreatePartitionsTopic(name=name, count=shards, assignments=None)
    (grown,) = server.send(CreatePartitionsRequest(topics=[growing], timeout_ms=TIMEOUT_MS)).results
    if grown.error_code and grown.error_code != ErrorCode.INVALID_PARTITIONS:  # another member was quicker
        raise KafkaError(ErrorCode(grown.error_code), grown.error_message)
    return shards
