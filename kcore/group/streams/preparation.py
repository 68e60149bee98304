"""Topologies with thousands of topics, prepared in steps before the decision about their heartbeat."""

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
NAME_COST: Final = 8
"""The cost of the hash of one topic, in microseconds."""


class PreparedTopology(NamedTuple):
    """A requested topology in the form that the decision needs.

    Attributes:
        topology: the topology.
        metadata_hash: hash of its topics before it was configured.
        configured: the configured topology, which is valid while the topics have that hash. None if the topology has an
            error; the decision then finds the error again.
    """

    topology: Topology
    metadata_hash: int
    configured: ConfiguredTopology | None


def prepare(requested: RequestedTopology, metadata: TopicMetadata) -> Generator[int, None, PreparedTopology | None]:
    """Prepares a requested topology in steps; yields their costs in microseconds.

    Args:
        requested: the topology.
        metadata: the cluster's topics and their hashes.

    Returns:
        The prepared topology; None if the topology has an error. The decision then finds the error again.
    """
    try:
        topology = yield from from_request_in_steps(requested)
    except KafkaError:
        return None
    names = list(topology.required_topics)
    for first in range(0, len(names), NAMES_PER_STEP):
        some = names[first : first + NAMES_PER_STEP]
        metadata.hash_of(some)  # the hash of each topic is then in the cache
        yield NAME_COST * len(some)
    metadata_hash = metadata.hash_of(names)
    yield len(names)
    try:
        configured = yield from configure_in_steps(topology, metadata.topics)
    except KafkaError:
        return PreparedTopology(topology, metadata_hash, None)
    return PreparedTopology(topology, metadata_hash, configured)
