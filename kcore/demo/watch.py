"""The demonstration's view of the group: fetches it from the server and detects changes."""

from __future__ import annotations

from typing import NamedTuple

import kcore
from kcore.errors import ConnectionClosedError, KafkaError
from kcore.inspect import OffsetRow, offset_rows
from kcore.node._sync.node import Node

TIMEOUT_S = 5.0


class Owners(NamedTuple):
    """A stable group at one moment.

    Attributes:
        members: member id -> client id.
        partitions: client id -> the partitions that this client owns.
    """

    members: dict[str, str]
    partitions: dict[str, list[int]]


class GroupWatch:
    """An admin client that describes one group, and reconnects after a server crash.

    Args:
        bootstrap: HOST:PORT of the server.
        group: the id of the group.
    """

    def __init__(self, bootstrap: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._node: Node | None = None

    def _connected(self) -> Node:
        if self._node is None:
            self._node = kcore.connect(self._bootstrap, client_id="demo", timeout=TIMEOUT_S, call_timeout=0.0)
        return self._node

    def close(self) -> None:
        """Closes the connection."""
        if self._node is not None:
            self._node.close()
            self._node = None

    def owners(self) -> Owners | None:
        """Returns the partition owners, or None while the group is not stable or the server is down."""
        try:
            group = self._connected().group(self._group).describe()
        except KafkaError:
            return None
        except (ConnectionClosedError, TimeoutError):
            self.close()
            return None
        if group.state != "Stable":
            return None
        members = {member.member_id: member.client_id for member in group.members}
        partitions = {member.client_id: [place.partition for place in member.assignment] for member in group.members}
        return Owners(members, partitions)

    def offsets(self) -> list[OffsetRow]:
        """Returns committed offsets and lag."""
        return offset_rows(self._connected(), [self._group])
