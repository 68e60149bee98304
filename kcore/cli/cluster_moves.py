"""`kcore cluster move` and `rebalance`: sends a request to a node of the cluster, and waits until the leaders move."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kcore.cli import output
from kcore.client.security import ClientSecurity
from kcore.cluster.store import METADATA
from kcore.config.properties import read_properties
from kcore.errors import KafkaError, KcoreError
from kcore.node.opening import connect
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from kcore.cluster.store import ClusterStore
    from kcore.node._sync.node import Node

TIMEOUT_S: Final = 30.0
"""Maximum time in seconds for which a command waits for a move."""
POLL_S: Final = 0.05


def move(store: ClusterStore, partition: str, node_id: int, command_config: str | None) -> int:
    """Makes a node the leader of a partition, and waits until the node leads the partition.

    Args:
        store: the cluster's store, which contains the addresses of the nodes.
        partition: the partition, written as `TOPIC-NUMBER`.
        node_id: the id of the next leader.
        command_config: the properties file with the security of the connection, or None.

    Raises:
        KcoreError: the partition or the node does not exist, the node is draining, or the move takes longer than
            `TIMEOUT_S`.
    """
    topic, _, number = partition.rpartition("-")
    if not topic or not number.isdigit():
        raise KcoreError(f"{partition!r} is not a partition; valid: TOPIC-NUMBER, for example orders-0")
    index = int(number)
    if any(one.draining for one in store.nodes() if one.node_id == node_id):
        raise KcoreError(
            f"node {node_id} is draining, so that the controller would move the partition away again: first run `kcore "
            f"cluster drain --stop URL {node_id}`"
        )
    with _connected(store, command_config) as node:
        before = _replicas(node, topic, index)
        replicas = (node_id, *(other for other in before if other != node_id))[: max(1, len(before))]
        requested = ReassignablePartition(partition_index=index, replicas=replicas)
        response = node.send(
            AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[requested])])
        )
        _check(response.error_code, response.error_message)
        result = response.responses[0].partitions[0]
        _check(result.error_code, result.error_message)
        _wait(lambda: _leader(node, topic, index) == node_id, f"node {node_id} does not lead {partition} yet")
    output.say(f"{partition}: node {node_id} leads it")
    return 0


def rebalance(store: ClusterStore, command_config: str | None) -> int:
    """Spreads the leaders evenly over the nodes, and waits for the result.

    Raises:
        KcoreError: the cluster refuses the request, or the moves take longer than `TIMEOUT_S`.
    """
    with _connected(store, command_config) as node:
        response = node.send(ElectLeadersRequest(election_type=0, topic_partitions=None))
        _check(response.error_code, None)
        _wait(lambda: _is_spread(store), "leaders are still being moved")
    output.say("the leaders are spread evenly")
    return 0


def _is_spread(store: ClusterStore) -> bool:
    """Returns True if the leaders of each topic are spread evenly over the nodes that may lead.

    The numbers of partitions that two of these nodes lead then differ by at most one."""
    targets = [node.node_id for node in store.nodes() if node.lease.remaining_ms and not (node.fenced or node.draining)]
    topics: dict[bytes, Counter[int]] = {}
    for row in store.leaders():
        if row.key != METADATA:
            topics.setdefault(row.key.topic_id, Counter())[row.leader] += 1
    led = [[counts[node] for node in targets] for counts in topics.values()]
    return bool(targets) and all(max(each) - min(each) < 2 for each in led)


@contextmanager
def _connected(store: ClusterStore, command_config: str | None) -> Iterator[Node]:
    """Connects to the nodes that are alive, over a listener with the protocol of the properties file."""
    protocol, security = "PLAINTEXT", None
    if command_config is not None:
        security = ClientSecurity.of_file(command_config)
        settings = read_properties(Path(command_config))
        if "security.protocol" in settings:
            protocol = settings["security.protocol"][0].upper()
    addresses = [
        f"{end.host}:{end.port}"
        for node in store.nodes()
        if not node.fenced and node.lease.remaining_ms
        for end in node.description.endpoints
        if end.protocol == protocol
    ]
    if not addresses:
        raise KcoreError(
            f"no node with a {protocol} listener is alive; to use another protocol, set security.protocol in the file "
            "of --command-config"
        )
    with connect(",".join(addresses), security=security) as node:
        yield node


def _metadata(node: Node, topic: str, index: int) -> tuple[int, tuple[int, ...]]:
    """Returns the leader and the replicas of a partition."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    [described] = node.send(request).topics
    _check(described.error_code, f"topic {topic}")
    for partition in described.partitions:
        if partition.partition_index == index:
            return partition.leader_id, tuple(partition.replica_nodes)
    raise KcoreError(f"topic {topic} has no partition {index}")


def _replicas(node: Node, topic: str, index: int) -> tuple[int, ...]:
    return _metadata(node, topic, index)[1]


def _leader(node: Node, topic: str, index: int) -> int:
    return _metadata(node, topic, index)[0]


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError.of(code, message)


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    """Waits until a condition holds.

    Raises:
        KcoreError: the condition does not hold after `TIMEOUT_S`.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise KcoreError(f"after {TIMEOUT_S:g} s, {otherwise}; the controller continues the move")
        time.sleep(POLL_S)
