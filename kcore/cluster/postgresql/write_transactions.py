"""The database transaction that stores one write set, if this node still leads the partitions of the write set."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.cluster.postgresql import statements as sql
from kcore.cluster.postgresql.arrays import encode_byte_strings, encode_integers
from kcore.cluster.store import METADATA, METADATA_NUMBER
from kcore.log.batch_header import base_offset, offsets_and_timestamp
from kcore.log.errors import FencedWriteError

if TYPE_CHECKING:
    from kcore.cluster.postgresql.sessions import Statement
    from kcore.log.interface import PartitionKey
    from kcore.log.write_set import ClusterChanges, WriteSet

LARGE_BATCH_BYTES: Final = 400_000
"""A batch of at least this size is a separate parameter of the statement."""
LAST_OFFSET: Final = (1 << 63) - 1
_encode_integer: Final = struct.Struct("!q").pack


class NodeIdentity(NamedTuple):
    """An incarnation of a node: its id, and the epoch of its lease when it registered."""

    node_id: int
    epoch: int


class WriteTransaction:
    """A write set with the statements and parameters of its database transaction.

    Attributes:
        write_set: the batches and changes that the transaction stores.
        number: the number of this transaction; 0 if it only appends batches, so that one statement stores it.
        owned: the numbers of the partitions that the node must lead -> leader epoch.
    """

    __slots__ = ("_identity", "number", "owned", "write_set")

    def __init__(self, write_set: WriteSet, identity: NodeIdentity, next_number: int) -> None:
        self.write_set = write_set
        self.number = 0 if _only_appends(write_set) else next_number
        self.owned = {sealed.number: sealed.log.owned_epoch for sealed in write_set.partitions}
        self._identity = identity
        changes = write_set.cluster
        if changes is not None and self.owned.setdefault(METADATA_NUMBER, changes.controller_epoch) != (
            changes.controller_epoch
        ):
            raise FencedWriteError(
                "the node has changes of the controller, but is no longer the controller in this epoch", (METADATA,)
            )

    def checks(self) -> dict[str, Any]:
        """Returns the parameters of the checks of leadership."""
        return {
            "owned": list(self.owned),
            "epochs": list(self.owned.values()),
            "node": self._identity.node_id,
            "node_epoch": self._identity.epoch,
        }

    def keys(self) -> dict[int, PartitionKey]:
        """Returns the names of the partitions that the node must lead, by number."""
        return {METADATA_NUMBER: METADATA, **{sealed.number: sealed.key for sealed in self.write_set.partitions}}

    def expected_bases(self) -> list[tuple[int, int]]:
        """Returns (number, base offset of the first batch) of each partition to which the write set appends."""
        return [
            (sealed.number, base_offset(sealed.batches[0])) for sealed in self.write_set.partitions if sealed.batches
        ]

    def append_parameters(self, session: int) -> tuple[list[bytes], int]:
        """Returns the parameters of `APPEND` for a transaction that only appends batches.

        Args:
            session: the session token.

        Returns:
            the binary parameters, in the order of `APPEND_PARAMETERS`, and the number of batches.
        """
        *columns, batches = _batch_columns(self.write_set, LAST_OFFSET)
        node_id, node_epoch = self._identity
        parameters = [
            encode_integers(list(self.owned)),
            encode_integers(list(self.owned.values())),
            *map(_encode_integer, (node_id, node_epoch, session)),
            *map(encode_integers, columns),
            encode_byte_strings(batches),
        ]
        return parameters, len(batches)

    def statements(self, session: int) -> list[Statement]:
        """Returns the statements of a transaction that does more than append batches."""
        write_set = self.write_set
        checks = self.checks()
        made: list[Statement] = [
            (sql.BEGIN_NUMBERED, {"number": self.number, "node": checks["node"], "session": session}),
            (sql.CHECK_OWNED, checks),
        ]
        if write_set.cluster is not None:
            _add_changes(made, write_set.cluster)
        if write_set.metas:
            _add_values(made, write_set.metas)
        if write_set.next_number:
            made.append((sql.NEXT_NUMBER, (write_set.next_number,)))
        _add_partitions(made, write_set)
        if write_set.cluster is not None or METADATA_NUMBER in self.owned:
            made.append((sql.NOTIFY, None))
        return made


def _only_appends(write_set: WriteSet) -> bool:
    """Returns True if the write set only appends batches smaller than `LARGE_BATCH_BYTES`.

    Returns False if a batch belongs to the metadata log.
    """
    if write_set.cluster is not None or write_set.metas or write_set.next_number:
        return False
    for sealed in write_set.partitions:
        if sealed.meta is not None or sealed.chunks or sealed.rewrites or sealed.number == METADATA_NUMBER:
            return False
        for batch in sealed.batches:
            if len(batch) >= LARGE_BATCH_BYTES:
                return False
    return True


Columns = tuple[list[int], list[int], list[int], list[int], list[bytes]]


def _batch_columns(write_set: WriteSet, below_bytes: int) -> Columns:
    """Returns the columns of table `batches` for all appended batches smaller than `below_bytes`."""
    numbers: list[int] = []
    bases: list[int] = []
    lasts: list[int] = []
    times: list[int] = []
    batches: list[bytes] = []
    for sealed in write_set.partitions:
        for batch in sealed.batches:
            if len(batch) < below_bytes:
                base, last, timestamp_ms = offsets_and_timestamp(batch)
                numbers.append(sealed.number)
                bases.append(base)
                lasts.append(last)
                times.append(timestamp_ms)
                batches.append(batch)
    return numbers, bases, lasts, times, batches


def _add_changes(made: list[Statement], changes: ClusterChanges) -> None:
    """Adds to `made` the statements that remove, create and move partitions, as the controller has decided."""
    if changes.removed:
        made.append(
            (sql.REMOVE, ([key.topic_id for key in changes.removed], [key.partition for key in changes.removed]))
        )
    if changes.created:
        created = changes.created
        made.append(
            (
                sql.CREATE,
                (
                    [new.meta.number for new in created],
                    [new.key.topic_id for new in created],
                    [new.key.partition for new in created],
                    [new.leader for new in created],
                    [new.leader_epoch for new in created],
                    [new.meta.encode() for new in created],
                ),
            )
        )
    if changes.moved:
        moved = changes.moved
        topics, partitions = [change.key.topic_id for change in moved], [change.key.partition for change in moved]
        made.append((sql.LOCK_MOVED, (topics, partitions, [change.previous_epoch for change in moved], len(moved))))
        made.append(
            (
                sql.MOVE,
                (topics, partitions, [change.leader for change in moved], [change.leader_epoch for change in moved]),
            )
        )


def _add_values(made: list[Statement], metas: dict[str, bytes | None]) -> None:
    """Adds to `made` the statements that store and delete named values."""
    put = {name.encode(): value for name, value in metas.items() if value is not None}
    deleted = [name.encode() for name, value in metas.items() if value is None]
    if put:
        made.append((sql.PUT_VALUES, (list(put), list(put.values()))))
    if deleted:
        made.append((sql.DELETE_VALUES, (deleted,)))


def _add_partitions(made: list[Statement], write_set: WriteSet) -> None:
    """Adds to `made` the statements that store metadata, batches and snapshot chunks of partitions."""
    metas = {sealed.number: sealed.meta.encode() for sealed in write_set.partitions if sealed.meta is not None}
    if metas:
        made.append((sql.PUT_METAS, (list(metas), list(metas.values()))))
    _add_rewrites(made, write_set)
    columns = _batch_columns(write_set, LARGE_BATCH_BYTES)
    if columns[0]:
        made.append((sql.INSERT_BATCHES, columns))
    made.extend(
        (sql.INSERT_BATCH, (sealed.number, *offsets_and_timestamp(batch), batch))
        for sealed in write_set.partitions
        for batch in sealed.batches
        if len(batch) >= LARGE_BATCH_BYTES
    )
    chunks = [(sealed.number, chunk) for sealed in write_set.partitions for chunk in sealed.chunks or ()]
    if chunks:
        made.append(
            (
                sql.PUT_CHUNKS,
                (
                    [number for number, _ in chunks],
                    [chunk.offset for _, chunk in chunks],
                    [chunk.chunk_index for _, chunk in chunks],
                    [chunk.data for _, chunk in chunks],
                ),
            )
        )


def _add_rewrites(made: list[Statement], write_set: WriteSet) -> None:
    """Adds to `made` the statements that delete or replace batches for compaction."""
    rewrites = [
        (sealed.number, base, batch) for sealed in write_set.partitions for base, batch in sealed.rewrites.items()
    ]
    deleted = [(number, base) for number, base, batch in rewrites if batch is None]
    replaced = [(number, batch) for number, _, batch in rewrites if batch is not None]
    if deleted:
        made.append((sql.DELETE_BATCHES, ([number for number, _ in deleted], [base for _, base in deleted])))
    if replaced:
        offsets = [offsets_and_timestamp(batch) for _, batch in replaced]
        made.append(
            (
                sql.REPLACE_BATCHES,
                (
                    [number for number, _ in replaced],
                    [base for base, _, _ in offsets],
                    [last for _, last, _ in offsets],
                    [timestamp_ms for _, _, timestamp_ms in offsets],
                    [batch for _, batch in replaced],
                ),
            )
        )
