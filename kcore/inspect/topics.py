"""Topics, fetched by typed requests from a server or engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kcore.errors import KcoreError
from kcore.inspect.groups import EARLIEST, LATEST, Target, list_offset
from kcore.node import versions
from kcore.protocol.error_codes import code_name
from kcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPIC = 2  # ConfigResource
SET_FOR_THE_TOPIC = 1  # the source of a setting, in DescribeConfigs


class TopicPartitionRow(NamedTuple):
    """A partition in a listing.

    Attributes:
        topic: its topic.
        partition: its number.
        leader: its leader's node id, None without a leader.
        start_offset: the first offset of its log.
        end_offset: the offset of the next record.
        settings: its topic's own settings, as `name=value`; "" without any.
    """

    topic: str
    partition: int
    leader: int | None
    start_offset: int | None
    end_offset: int | None
    settings: str


def find_topics(server: Target, names: Sequence[str] = ()) -> list[Any]:
    """Returns topics with their partitions, sorted by name.

    Args:
        server: serves the requests.
        names: the topics; empty: all.

    Raises:
        KcoreError: a topic does not exist or cannot be described.
    """
    requested = [MetadataRequestTopic(name=name) for name in names] if names else None
    response = server.send(MetadataRequest(topics=requested, allow_auto_topic_creation=False), versions.METADATA)
    for topic in response.topics:
        if topic.error_code:
            raise KcoreError(f"topic {topic.name!r}: {code_name(topic.error_code)}")
    return sorted(response.topics, key=lambda topic: str(topic.name))


def describe_topics(server: Target, names: Sequence[str] = ()) -> list[TopicPartitionRow]:
    """Returns every partition of topics with the first and last offsets of its log.

    Unlike `find_topics`, it skips internal topics unless they are named.
    """
    rows = []
    for topic in find_topics(server, names):
        if topic.is_internal and not names:
            continue
        settings = " ".join(f"{name}={value}" for name, value in own_settings(server, topic.name).items())
        for part in sorted(topic.partitions, key=lambda part: int(part.partition_index)):
            index, led = part.partition_index, part.leader_id >= 0
            start = list_offset(server, topic.name, index, EARLIEST) if led else None
            end = list_offset(server, topic.name, index, LATEST) if led else None
            rows.append(TopicPartitionRow(topic.name, index, part.leader_id if led else None, start, end, settings))
    return rows


def own_settings(server: Target, topic: str) -> dict[str, str]:
    """Returns the settings of a topic itself, name -> value.

    Raises:
        KcoreError: the server refused the request.
    """
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    result = server.send(DescribeConfigsRequest(resources=[resource])).results[0]
    if result.error_code:
        raise KcoreError(f"settings of topic {topic!r}: {code_name(result.error_code)}")
    return {
        entry.name: "" if entry.value is None else entry.value
        for entry in result.configs
        if entry.config_source == SET_FOR_THE_TOPIC
    }
