"""The rows of the database of nodes and leaders, in the LMDB file that the processes share.

Each value ends with a checksum (`kcore.log.row_checksum`).

node:<id>             the incarnation of a node
controller            the lease `controller`
leader:<partition>    the leader of a partition
number:<number>       the partition with this number
round:<id><epoch>     the last transaction of an incarnation
base                  the base epoch: all epochs of nodes and controllers are higher
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.log.errors import CorruptLogError, FailureReason, LogError
from kcore.log.interface import PartitionKey
from kcore.log.lmdb_layout import CLUSTER_EPOCH_KEY, DROPPED_PREFIX, U32, U64, partition_meta_key
from kcore.log.lmdb_rows import get_row, put_row
from kcore.log.row_checksum import checked_value, has_checksum

if TYPE_CHECKING:
    from kcore.cluster.local.environment import SharedEnvironment
    from kcore.log.write_set import ClusterChanges

_NODE: Final = struct.Struct(">qBBQ")
_LEADER: Final = struct.Struct(">Iiiq")
_CONTROLLER: Final = struct.Struct(">iqq")
_NODE_ID: Final = struct.Struct(">i")
_INCARNATION: Final = struct.Struct(">iq")
_PARTITION: Final = struct.Struct(">16si")

NODE_PREFIX: Final = b"node:"
LEADER_PREFIX: Final = b"leader:"
NUMBER_PREFIX: Final = b"number:"
TOKEN_PREFIX: Final = b"round:"
CONTROLLER_KEY: Final = b"controller"
BASE_KEY: Final = b"base"
_PREFIXES: Final = (NODE_PREFIX, LEADER_PREFIX, NUMBER_PREFIX, TOKEN_PREFIX, CONTROLLER_KEY, BASE_KEY)


class NodeRow(NamedTuple):
    """An incarnation of a node.

    Attributes:
        epoch: the epoch of the node's lease.
        fenced: True if the store refuses its writes.
        draining: True if the node should lead no partition.
        revision: a number that increases when another process takes partitions from the node. The node then reads again
            which partitions it leads.
        description: the encoded `NodeDescription`.
    """

    epoch: int
    fenced: bool
    draining: bool
    revision: int
    description: bytes


class LeaderRow(NamedTuple):
    """The leader of a partition.

    Attributes:
        number: the partition's number.
        leader: the node; -1 for none.
        leader_epoch: rises with each new leader.
        node_epoch: the epoch of the incarnation that became the leader. The store refuses writes of other incarnations.
    """

    number: int
    leader: int
    leader_epoch: int
    node_epoch: int


class ControllerRow(NamedTuple):
    """The last holder of the lease `controller`.

    Attributes:
        holder: the node.
        epoch: the epoch of the lease.
        node_epoch: the epoch of the holder's incarnation.
    """

    holder: int
    epoch: int
    node_epoch: int


class Rows:
    """Access to the rows of the database within one transaction.

    Args:
        txn: a transaction of the environment.
        environment: the environment with the databases.
    """

    __slots__ = ("_cluster", "_meta", "txn")

    def __init__(self, txn: Any, environment: SharedEnvironment) -> None:
        self.txn = txn
        self._cluster = environment.cluster_db
        self._meta = environment.meta_db

    def _get(self, key: bytes) -> bytes | None:
        value = self.txn.get(key, db=self._cluster)
        return None if value is None else _checked(key, value)

    def _put(self, key: bytes, value: bytes) -> None:
        put_row(self.txn, self._cluster, key, value)

    def _pairs(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self.txn.cursor(self._cluster)
        if cursor.set_range(prefix):
            for key, value in cursor.iternext():
                name = bytes(key)
                if not name.startswith(prefix):
                    return
                yield name[len(prefix) :], _checked(name, value)

    def damaged(self) -> list[str]:
        """Returns the descriptions of the damaged rows."""
        found = []
        for key, value in self.txn.cursor(self._cluster).iternext():
            name = bytes(key)
            if not name.startswith(_PREFIXES):
                found.append(f"the database of the cluster has an unknown key {name!r}")
            elif not has_checksum(name, value):
                found.append(_wrong_checksum(name))
        return found

    # -- nodes

    def node(self, node_id: int) -> NodeRow | None:
        """Returns a registered node, or None."""
        value = self._get(NODE_PREFIX + _NODE_ID.pack(node_id))
        return None if value is None else _node(node_id, value)

    def put_node(self, node_id: int, row: NodeRow) -> None:
        """Stores a node. The folder's highest epoch becomes at least the node's epoch."""
        head = _NODE.pack(row.epoch, row.fenced, row.draining, row.revision)
        self._put(NODE_PREFIX + _NODE_ID.pack(node_id), head + row.description)
        self.count_epoch(row.epoch)

    def nodes(self) -> list[tuple[int, NodeRow]]:
        """Returns all nodes in order of id."""
        return sorted(
            (node_id, _node(node_id, value))
            for key, value in self._pairs(NODE_PREFIX)
            for (node_id,) in (_fields(_NODE_ID, key, NODE_PREFIX, key),)
        )

    def incarnation(self, node_id: int) -> int:
        """Returns the epoch of a node's incarnation; 0 if the node is fenced or not registered."""
        row = self.node(node_id)
        return 0 if row is None or row.fenced else row.epoch

    # -- the controller

    def controller(self) -> ControllerRow | None:
        """Returns the last holder of the lease `controller`, or None."""
        value = self._get(CONTROLLER_KEY)
        return None if value is None else ControllerRow(*_fields(_CONTROLLER, value, CONTROLLER_KEY))

    def put_controller(self, row: ControllerRow) -> None:
        """Stores the holder of the lease `controller`. The folder's highest epoch becomes at least the row's epoch."""
        self._put(CONTROLLER_KEY, _CONTROLLER.pack(*row))
        self.count_epoch(row.epoch)

    # -- leaders

    def leader(self, key: PartitionKey) -> LeaderRow | None:
        """Returns the leader of a partition; None if the partition does not exist."""
        name = _PARTITION.pack(*key)
        value = self._get(LEADER_PREFIX + name)
        return None if value is None else LeaderRow(*_fields(_LEADER, value, LEADER_PREFIX, name))

    def put_leader(self, key: PartitionKey, row: LeaderRow) -> None:
        """Stores the leader of a partition. The folder's highest epoch becomes at least the leader epoch."""
        name = _PARTITION.pack(*key)
        self._put(LEADER_PREFIX + name, _LEADER.pack(*row))
        self._put(NUMBER_PREFIX + U32.pack(row.number), name)
        self.count_epoch(row.leader_epoch)

    def leaders(self) -> list[tuple[PartitionKey, LeaderRow]]:
        """Returns the leaders of all partitions."""
        return [
            (
                PartitionKey(*_fields(_PARTITION, key, LEADER_PREFIX, key)),
                LeaderRow(*_fields(_LEADER, value, LEADER_PREFIX, key)),
            )
            for key, value in self._pairs(LEADER_PREFIX)
        ]

    def key_of(self, number: int) -> PartitionKey | None:
        """Returns the partition that has this number, or None."""
        name = U32.pack(number)
        value = self._get(NUMBER_PREFIX + name)
        return None if value is None else PartitionKey(*_fields(_PARTITION, value, NUMBER_PREFIX, name))

    def live_leader(self, key: PartitionKey) -> int:
        """Returns the node that may write a partition now; -1 if no node may."""
        row = self.leader(key)
        if row is None or row.leader < 0 or self.incarnation(row.leader) != row.node_epoch or not row.node_epoch:
            return -1
        return row.leader

    # -- the controller's changes

    def check(self, changes: ClusterChanges) -> None:
        """Checks the controller's changes against the stored leaders, before `apply`.

        Raises:
            CorruptLogError: the changes contradict the stored leaders, so the metadata log and the rows differ.
        """
        for new in changes.created:
            if new.key not in changes.removed and self.leader(new.key) is not None:
                raise CorruptLogError(new.key, None, "a new partition already exists in the store")
        created = {new.key for new in changes.created}
        for change in changes.moved:
            row = self.leader(change.key)
            if change.key in created or row is None or row.leader_epoch != change.previous_epoch:
                raise CorruptLogError(change.key, None, f"the leader epoch in the store is not {change.previous_epoch}")

    def apply(self, changes: ClusterChanges) -> None:
        """Stores the controller's changes, which `check` has accepted."""
        for key in changes.removed:
            row = self.leader(key)
            if row is not None:
                self.txn.delete(LEADER_PREFIX + _PARTITION.pack(*key), db=self._cluster)
                self.txn.delete(NUMBER_PREFIX + U32.pack(row.number), db=self._cluster)
                self.txn.delete(partition_meta_key(key), db=self._meta)
                put_row(self.txn, self._meta, DROPPED_PREFIX + U32.pack(row.number), b"")
        for new in changes.created:
            put_row(self.txn, self._meta, partition_meta_key(new.key), new.meta.encode())
            epoch = self.incarnation(new.leader)
            self.put_leader(new.key, LeaderRow(new.meta.number, new.leader, new.leader_epoch, epoch))
        for change in changes.moved:
            before = self.leader(change.key)
            assert before is not None, "the change was checked"
            epoch = self.incarnation(change.leader)
            self.put_leader(change.key, LeaderRow(before.number, change.leader, change.leader_epoch, epoch))

    # -- transaction tokens and epochs

    def last_token(self, node_id: int, epoch: int) -> bytes | None:
        """Returns the token of the last transaction of an incarnation, or None."""
        return self._get(TOKEN_PREFIX + _INCARNATION.pack(node_id, epoch))

    def put_last_token(self, node_id: int, epoch: int, token: bytes) -> None:
        """Stores the token of the current transaction of an incarnation."""
        self._put(TOKEN_PREFIX + _INCARNATION.pack(node_id, epoch), token)

    def base(self) -> int:
        """Returns the base epoch, which is lower than the epochs of all nodes and controllers."""
        value = self._get(BASE_KEY)
        if value is None or len(value) != U64.size:
            raise LogError("the database of the cluster is damaged: its first epoch is missing", FailureReason.CORRUPT)
        return int(U64.unpack(value)[0])

    def put_base(self, epoch: int) -> None:
        """Stores the base epoch. The folder's highest epoch becomes at least the base epoch."""
        self._put(BASE_KEY, U64.pack(epoch))
        self.count_epoch(epoch)

    def count_epoch(self, epoch: int) -> None:
        """Sets the folder's highest epoch to `epoch`, if the stored epoch is lower.

        Epochs that a later opening of the folder creates are higher than the highest epoch.
        """
        value = get_row(self.txn, self._meta, CLUSTER_EPOCH_KEY)
        if value is None or _fields(U64, value, CLUSTER_EPOCH_KEY)[0] < epoch:
            put_row(self.txn, self._meta, CLUSTER_EPOCH_KEY, U64.pack(epoch))


def _checked(key: bytes, stored: Any) -> bytes:
    """Returns the value of a row without its checksum; raises LogError if the checksum is wrong."""
    value = checked_value(key, stored)
    if value is None:
        raise LogError(_wrong_checksum(key), FailureReason.CORRUPT)
    return value


def _wrong_checksum(key: bytes) -> str:
    prefix, colon, name = key.partition(b":")
    return (
        f"the database of the cluster is damaged: row {(prefix + colon).decode(errors='replace')}{name.hex()} has a "
        "wrong checksum; restart all processes together: the start creates the database again"
    )


def _fields(layout: struct.Struct, data: bytes, prefix: bytes, name: bytes = b"") -> tuple[Any, ...]:
    """Returns the fields of a row's key or value.

    Args:
        layout: the layout of the key or the value.
        data: the bytes of the key or the value.
        prefix: the first part of the row's key, for the error.
        name: the remaining part of the key.

    Raises:
        LogError: the row is damaged.
    """
    if len(data) != layout.size:
        raise LogError(
            f"the database of the cluster is damaged: row {prefix.decode()}{name.hex()} has {len(data)} bytes instead "
            f"of {layout.size}",
            FailureReason.CORRUPT,
        )
    return layout.unpack(data)


def _node(node_id: int, value: bytes) -> NodeRow:
    head = _fields(_NODE, value[: _NODE.size], NODE_PREFIX, _NODE_ID.pack(node_id))
    epoch, fenced, draining, revision = head
    return NodeRow(epoch, bool(fenced), bool(draining), revision, value[_NODE.size :])
