"""Nodes of the client API that send their requests to any object, such as an engine in virtual time or a modified
server.
"""

from __future__ import annotations

from typing import Any, TypeVar

from kcore.client.aio.broker import Broker
from kcore.node._sync.node import Node
from kcore.node._sync.transport import EmbeddedTransport
from kcore.protocol.schema import Request
from tests.kit import Target

R = TypeVar("R")


class TargetTransport(EmbeddedTransport):
    """A transport to a target that is the leader of all partitions and the coordinator of all groups."""

    clock_ms = None

    def __init__(self, target: Target) -> None:
        self._engine: Any = target

    def send(
        self,
        request: Request[R],
        version: int | None = None,
        *,
        at_most: int | None = None,
        broker: Broker | None = None,
        channel: str = "",
        timeout_s: float | None = None,
    ) -> R:
        """Sends a request to the target."""
        response: R = self._engine.send(request, at_most if version is None else version)
        return response


def node_of(target: Target) -> Node:
    """Returns a node that sends every request to a target. The caller need not close it."""
    return Node(TargetTransport(target), local=True)
