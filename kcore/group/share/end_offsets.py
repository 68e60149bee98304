"""The end offsets of partitions on this node and other nodes, for the lags of share groups (KIP-1226)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kcore.runtime.api import RequestContext
from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.peers import Peers

VERSION: Final = 4
"""The version of OffsetForLeaderEpoch between nodes."""

EndOffsets = dict[int, int | None]
"""Partition -> end offset, for partitions of one topic. The end offset may be None or missing if it is unknown."""


class _Ends:
    """A substitute for an `Api`, which a `Pending` needs in order to create its response after a failure."""

    def error(self, context: object, request: object, code: ErrorCode, message: str | None = None) -> EndOffsets:
        """Returns an `EndOffsets` without offsets, for every error."""
        return {}


_ENDS: Any = _Ends()
_CONTEXT = RequestContext(VERSION)


class LocalEndOffsets:
    """A look-up of the end offsets of partitions that this node leads.

    Args:
        local: given a topic and a partition number, returns the partition's end offset; None if this node does not lead
            the partition.
    """

    __slots__ = ("_local",)

    def __init__(self, local: Callable[[str, int], int | None]) -> None:
        self._local = local

    def look_up(self, topic: str, indexes: Sequence[int]) -> EndOffsets | Pending:
        """Returns the end offsets of some partitions of a topic, or a `Pending` for them."""
        return {index: self._local(topic, index) for index in indexes}


class SharedEndOffsets(LocalEndOffsets):
    """A look-up of the end offsets of any partitions of the cluster.

    For partitions on other nodes, it sends OffsetForLeaderEpoch requests to their leaders. A node needs only the
    permission CLUSTER_ACTION for these requests.

    Args:
        local: given a topic and a partition number, returns the partition's end offset; None if this node does not lead
            the partition.
        cluster: the leaders of partitions.
        peers: sends requests to the leaders.
    """

    __slots__ = ("_cluster", "_peers")

    def __init__(self, local: Callable[[str, int], int | None], cluster: ClusterView, peers: Peers) -> None:
        super().__init__(local)
        self._cluster = cluster
        self._peers = peers

    def look_up(self, topic: str, indexes: Sequence[int]) -> EndOffsets | Pending:
        """Returns the end offsets of some partitions of a topic, or a `Pending` for them.

        If the leader of a partition does not respond, the result has no end offset for this partition.
        """
        own: list[int] = []
        remote: dict[int, list[OffsetForLeaderPartition]] = {}
        for index in indexes:
            leader = self._cluster.leader(topic, index)
            if leader is None or leader.node_id == self._cluster.node_id:
                own.append(index)
            else:
                # Both fields have the epoch of the current leader. So a later leader refuses the request, and the end
                # of the epoch is the end of the log.
                remote.setdefault(leader.node_id, []).append(
                    OffsetForLeaderPartition(
                        partition=index, current_leader_epoch=leader.epoch, leader_epoch=leader.epoch
                    )
                )
        ends: EndOffsets = {index: self._local(topic, index) for index in own}
        if not remote:
            return ends
        pending = Pending(_ENDS, _CONTEXT, None, parked=True)
        missing = len(remote)

        def arrived(response: OffsetForLeaderEpochResponse | None) -> None:
            nonlocal missing
            missing -= 1
            for found in () if response is None else response.topics:
                ends.update((entry.partition, entry.end_offset) for entry in found.partitions if not entry.error_code)
            if not missing:
                pending.complete(ends)

        for node_id, partitions in remote.items():
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions)])
            self._peers.send(node_id, request, VERSION, arrived)
        return pending
