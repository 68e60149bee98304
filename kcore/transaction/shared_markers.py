"""Writes markers to partitions of all nodes of a cluster (KIP-98)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from kcore.log.errors import LogError
from kcore.process_logging import log_failure, next_step
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kcore.transaction.local_markers import LocalMarkers, MarkerLog

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.protocol.topic_partition import PartitionTuple
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.peers import Peers
    from kcore.runtime.shard import Shard
    from kcore.transaction.markers import Marker, Results

logger = logging.getLogger(__name__)

MARKERS_VERSION = 2
"""The version of WriteTxnMarkers in which each marker has its `transaction.version` (KIP-1228)."""


class SharedMarkers(LocalMarkers):
    """The writer of markers to partitions of all nodes: it stages this node's markers in the current round, and sends
    the others later.

    The end of the transaction is in the current round. A marker on another node must not be durable before the end of
    the transaction, so the requests are sent once the round is committed. If the commit fails, the coordinator's shard
    loads its log again.

    Args:
        partition: returns a partition that this node leads, or None.
        shard: returns the shard that owns a partition of an internal topic on this node, or None.
        now: the clock, which is read once per round.
        cluster: the leaders of the partitions.
        peers: sends requests to other nodes.
        pipeline: commits the round.
    """

    __slots__ = ("_cluster", "_peers", "_pipeline")

    def __init__(
        self,
        partition: Callable[[str, int], MarkerLog | None],
        shard: Callable[[str, int], Shard[Any] | None],
        now: Now,
        *,
        cluster: ClusterView,
        peers: Peers,
        pipeline: CommitPipeline,
    ) -> None:
        super().__init__(partition, shard, now)
        self._cluster = cluster
        self._peers = peers
        self._pipeline = pipeline

    def write(self, marker: Marker, partitions: Collection[PartitionTuple], done: Callable[[Results], None]) -> None:
        """Stages the markers of this node's partitions, and sends the markers of other nodes after the commit.

        Calls `done` once for each node: for this node before the function returns, for other nodes later.
        """
        local_codes: dict[PartitionTuple, ErrorCode] = {}
        elsewhere: dict[int, list[PartitionTuple]] = {}
        for partition in partitions:
            leader = self._cluster.leader(*partition)
            if leader is None:
                local_codes[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif leader.node_id == self._cluster.node_id:
                local_codes[partition] = self.append(marker, *partition)
            else:
                elsewhere.setdefault(leader.node_id, []).append(partition)
        if elsewhere:
            self._pipeline.enlist(_RemoteMarkers(self._peers, marker, elsewhere, done))
        if local_codes:
            done(local_codes)


class _RemoteMarkers:
    """The markers that are sent to other nodes once the round with the end of the transaction is durable."""

    allows_background_commit = True

    __slots__ = ("_by_node", "_done", "_marker", "_peers")

    def __init__(
        self,
        peers: Peers,
        marker: Marker,
        by_node: dict[int, list[PartitionTuple]],
        done: Callable[[Results], None],
    ) -> None:
        self._peers = peers
        self._marker = marker
        self._by_node = by_node
        self._done = done

    def seal(self) -> None:
        """Does nothing, because this object adds no records to the commit."""

    def committed(self) -> None:
        """Sends one request to each node. If a request cannot be sent, the marker phase tries its partitions again."""
        for node_id, partitions in self._by_node.items():
            try:
                self._send(node_id, partitions)
            except Exception as error:
                log_failure(
                    logger,
                    error,
                    "transaction coordinator: cannot send transaction markers to node %d; the coordinator tries "
                    "again%s",
                    node_id,
                    next_step(error),
                )
                self._done(dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION))

    def failed(self, error: LogError) -> None:
        """Sends nothing: the load of the coordinator's shard begins the marker phase again."""

    def _send(self, node_id: int, partitions: list[PartitionTuple]) -> None:
        def arrived(response: WriteTxnMarkersResponse | None) -> None:
            codes: dict[PartitionTuple, ErrorCode] = dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
            for entry in () if response is None else response.markers:
                for topic in entry.topics:
                    for result in topic.partitions:
                        codes[topic.name, result.partition_index] = ErrorCode(result.error_code)
            self._done(codes)

        self._peers.send(node_id, markers_request(self._marker, partitions), MARKERS_VERSION, arrived)


def markers_request(marker: Marker, partitions: Collection[PartitionTuple]) -> WriteTxnMarkersRequest:
    """Makes the request that writes one marker to some partitions."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    entry = WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
    )
    return WriteTxnMarkersRequest(markers=[entry])
