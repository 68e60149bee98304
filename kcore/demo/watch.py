"""The demonstration's view of the group: fetches it from the server and detects changes."""

from __future__ import annotations

from typing import Any, NamedTuple

from kcore.client import Connection, ConnectionClosedError
from kcore.inspect import offset_rows, owned_partitions
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest

TIMEOUT_S = 5.0


class Owners(NamedTuple):
    """A stable group at one moment.

    Attributes:
        members: member id -> client id.
        partitions: client id -> the partitions it owns.
    """

    members: dict[str, str]
    partitions: dict[str, list[int]]


class GroupWatch:
    """Describes one group like any admin client; reconnects after a server crash.

    Args:
        bootstrap: the server.
        group: the group.
    """

    def __init__(self, bootstrap: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._connection: Connection | None = None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection.to(self._bootstrap, client_id="demo", timeout_s=TIMEOUT_S)
        return self._connection

    def _send(self, request: Any) -> Any:
        connection = self._connected()
        try:
            return connection.send(request)
        except (ConnectionClosedError, TimeoutError):
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def owners(self) -> Owners | None:
        """Returns the partition owners, or None while the group is not stable or the server is down."""
        try:
            group = self._send(DescribeGroupsRequest(groups=[self._group])).groups[0]
        except (ConnectionClosedError, TimeoutError):
            return None
        if group.error_code or group.group_state != "Stable":
            return None
        members = {member.member_id: member.client_id for member in group.members}
        partitions: dict[str, list[int]] = {}
        for member in group.members:
            owned = owned_partitions(member.member_assignment) or {}
            partitions[member.client_id] = sorted(index for indexes in owned.values() for index in indexes)
        return Owners(members, partitions)

    def offsets(self) -> list[tuple[Any, ...]]:
        """Returns committed offsets and lag: (group, topic, partition, committed, end, lag, metadata)."""
        return offset_rows(self._connected(), [self._group])
