"""Where coordinators are: what FindCoordinator needs to know of the cluster."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Node(NamedTuple):
    """A node as clients reach it.

    Attributes:
        node_id: its id.
        host: its advertised host on the listener that was asked for.
        port: the port there.
    """

    node_id: int
    host: str
    port: int


class ClusterView(Protocol):
    """Who leads the partitions of the internal topics."""

    def partitions(self, topic: str) -> int:
        """How many partitions an internal topic has, or will have: it decides where a key lives."""
        ...

    def leader(self, topic: str, partition: int, listener: str) -> Node | None:
        """The node that leads a partition of an internal topic, as reached through a listener.

        Args:
            topic: `__consumer_offsets`, `__transaction_state` or `__share_group_state`.
            partition: which one.
            listener: the name of the listener that the request came in on.

        Returns:
            None if there is none at the moment. An internal topic that does not exist yet is one that this call has
            begun to make.
        """
        ...
