"""Prepares the topology in a heartbeat before the coordinator decides about the heartbeat.

The preparation converts and configures the topology. It runs in steps, because a topology with thousands of topics
takes long. Other requests can run between two steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import KafkaError
from kcore.group.streams.configure import configure_in_steps
from kcore.group.streams.topology import from_request_in_steps

if TYPE_CHECKING:
    from collections.abc import Generator

    from kcore.group.consumer.metadata import TopicMetadata
    from kcore.group.streams.configure import ConfiguredTopology
    from kcore.group.streams.topology import Topology
    from kcore.protocol.messages.streams_group_heartbeat import Topology as RequestedTopology

NAMES_PER_STEP: Final = 500
NAME_COST_US: Final = 8
"""The cost of computing the hash of one topic, in microseconds."""


class PreparedTopology(NamedTuple):
    """The topology of a request, converted and configured before the decision.

    Attributes:
        topology: the converted topology.
        metadata_hash: the hash of the topology's topics at the time of the configuration.
        configured: the configured topology, which is valid while the topics have the hash `metadata_hash`. None if the
            configuration failed: the decision then configures the topology again, and returns the error.
    """

    topology: Topology
    metadata_hash: int
    configured: ConfiguredTopology | None


def prepare(requested: RequestedTopology, metadata: TopicMetadata) -> Generator[int, None, PreparedTopology | None]:
    """Prepares a requested topology in steps; yields the cost of each step in microseconds.

    Args:
        requested: the topology.
        metadata: the cluster's topics and their hashes.

    Returns:
        The prepared topology. None if its conversion failed: the decision then converts it again, and returns the
        error.
    """
    try:
        topology = yield from from_request_in_steps(requested)
    except KafkaError:
        return None
    names = list(topology.required_topics)
    for first in range(0, len(names), NAMES_PER_STEP):
        some = names[first : first + NAMES_PER_STEP]
        metadata.hash_of(some)  # the hash of each topic is then in the cache
        yield NAME_COST_US * len(some)
    metadata_hash = metadata.hash_of(names)
    yield len(names)
    try:
        configured = yield from configure_in_steps(topology, metadata.topics)
    except KafkaError:
        return PreparedTopology(topology, metadata_hash, None)
    return PreparedTopology(topology, metadata_hash, configured)
