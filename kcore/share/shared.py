"""The persister of a node of a cluster, which sends operations to the nodes that coordinate the share partitions
(KIP-932).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.api import RequestContext
from kcore.runtime.partitioner import partition_for
from kcore.runtime.pending import Pending, gather
from kcore.share.local import LocalPersister
from kcore.share.persister import share_key
from kcore.share.shard import TOPIC_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.clock import Now
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.peers import Peers
    from kcore.runtime.topics import TopicImage
    from kcore.share.apis.base import ShareStateApi
    from kcore.share.coordinator import ShareCoordinator
    from kcore_ext.runtime.timer_wheel import TimerWheel
    from kcore_ext.share.state_update import StateWriter

_CONTEXT = RequestContext(api_version=0)


class SharedPersister(LocalPersister):
    """The `Persister` that runs the operations in the share coordinators of all nodes.

    If a share partition has moved to the coordinator of another node, its former coordinator refuses the operation. The
    persister then repeats the operation on the new node.

    Args:
        coordinator: the node's share coordinator.
        topics: the cluster's topics.
        make_topic: starts creating an internal topic.
        wheel: arms the timers of retries.
        now: the clock, which is read once per round.
        cluster: the leaders of `__share_group_state`.
        peers: sends requests to other nodes.
    """

    __slots__ = ("_cluster", "_peers")

    def __init__(
        self,
        coordinator: ShareCoordinator,
        topics: TopicImage,
        make_topic: Callable[[str], object],
        wheel: TimerWheel,
        now: Now,
        *,
        cluster: ClusterView,
        peers: Peers,
    ) -> None:
        super().__init__(coordinator, topics, make_topic, wheel, now)
        self._cluster = cluster
        self._peers = peers

    def writer(self, group_id: str, topic_id: bytes, partition: int) -> StateWriter | None:  # type: ignore[override]
        """Implements `Persister.writer`: None if the share coordinator is on another node."""
        if self._node_of(share_key(group_id, topic_id, partition)) is not None:
            return None
        return super().writer(group_id, topic_id, partition)

    def _node_of(self, key: str) -> int | None:
        """Returns the other node that coordinates a share partition; None for this node or an unknown coordinator."""
        topic = self._topics.by_name(TOPIC_NAME)
        leader = None if topic is None else self._cluster.leader(TOPIC_NAME, partition_for(key, topic.partitions))
        return None if leader is None or leader.node_id == self._cluster.node_id else leader.node_id

    def call(self, api: ShareStateApi[Any, Any], request: Any) -> Any:
        """Runs a request once. Each node receives the part with the share partitions that it coordinates."""
        nodes: dict[int | None, list[int]] = {}
        keys = [
            share_key(request.group_id, topic.topic_id, data.partition)
            for topic in request.topics
            for data in topic.partitions
        ]
        for position, key in enumerate(keys):
            nodes.setdefault(self._node_of(key), []).append(position)
        if not nodes or set(nodes) == {None}:
            return super().call(api, request)
        if len(nodes) == 1:
            [node_id] = nodes
            return self._send(node_id, api, request)
        responses = []
        for node_id, positions in nodes.items():
            part = api.reduced(request, set(positions))
            responses.append(super().call(api, part) if node_id is None else self._send(node_id, api, part))
        order = [position for positions in nodes.values() for position in positions]

        def build(parts: list[Any]) -> Any:
            results: list[Any] = [None] * len(order)
            part_results = [result for part in parts for topic in part.results for result in topic.partitions]
            for position, result in zip(order, part_results, strict=True):
                results[position] = result
            return api.join(request, results)

        return gather(api, _CONTEXT, request, responses, build)

    def _send(self, node_id: int | None, api: ShareStateApi[Any, Any], request: Any) -> Pending:
        """Sends a request to another node. Fails with NOT_COORDINATOR if the node does not send a valid response."""
        assert node_id is not None, "another node coordinates the share partitions of the request"
        pending = Pending(api, _CONTEXT, request, parked=True)
        size = sum(len(topic.partitions) for topic in request.topics)

        def arrived(response: Any) -> None:
            try:
                is_valid = response is not None and sum(len(topic.partitions) for topic in response.results) == size
            except Exception:  # no memory for the sum: the persister waits for the response
                is_valid = False
            if is_valid:
                pending.complete(response)
            else:
                pending.fail(ErrorCode.NOT_COORDINATOR)

        self._peers.send(node_id, request, api.versions[1], arrived)
        return pending
