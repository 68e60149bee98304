"""The clients' view of a simulation: every operation with its times and its result. The checkers read it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from kcore.protocol.topic_partition import TopicPartition

ACKNOWLEDGED: Final = "acknowledged"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"
"""The result of an operation without a response: the node may have executed it, or may execute it later."""
FOREVER_MS: Final = 1 << 62


@dataclass(slots=True)
class Write:
    """A record that a client sent.

    Attributes:
        value: the record's value, unique in the simulation.
        partition: the topic and partition number.
        client: the name of the producer.
        transaction: the producer's transaction, or None.
        result: the result of the write so far.
        offset: the offset in the response; -1 if it is unknown.
        key: the record's key, or None.
        tombstone: True if the record has no value; `value` is then only the name of the write.
        timestamp_ms: the record's timestamp; -1: unknown.
    """

    value: bytes
    partition: TopicPartition
    client: str
    transaction: Transaction | None = None
    result: str = UNKNOWN
    offset: int = -1
    key: bytes | None = None
    tombstone: bool = False
    timestamp_ms: int = -1


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction of a client.

    Attributes:
        name: the transactional id, and the number of the transaction.
        writes: the records of the transaction.
        offsets: the offsets that the transaction commits: (group, partition) -> offset.
        commit_sent: True once the client has requested the commit of the transaction.
        result: "committed", "aborted", or UNKNOWN.
    """

    name: str
    writes: list[Write] = field(default_factory=list)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    commit_sent: bool = False
    result: str = UNKNOWN


@dataclass(slots=True)
class OffsetWrite:
    """An offset that a client committed.

    Attributes:
        offset: the committed offset.
        sent_ms: the time of the request.
        done_ms: the time of the response.
        result: the result of the commit so far.
        transaction: the transaction that contains it, or None.
    """

    offset: int
    sent_ms: int
    done_ms: int = FOREVER_MS
    result: str = UNKNOWN
    transaction: Transaction | None = None


@dataclass(slots=True)
class ShareRecord:
    """A record as one share group sees it.

    Attributes:
        accepted_ms: the time at which an acknowledgement was confirmed; -1 if none was.
        acquired: the number of deliveries that clients have seen.
        rejected: True once a client has rejected the record, or the group may have archived it.
    """

    accepted_ms: int = -1
    acquired: int = 0
    rejected: bool = False


class History:
    """Everything that the clients have done and seen.

    Attributes:
        writes: the records by value.
        transactions: all transactions.
        offsets: committed offsets by group and partition.
        shared: delivery of records by share group, partition and offset.
        committed_reads: values that a client read with isolation read_committed, with partition and offset.
        disputed: groups whose offsets may have been changed or deleted by clients that are not members.
        deleted_below: partition -> the offset below which records may have been deleted.
    """

    def __init__(self) -> None:
        self.writes: dict[bytes, Write] = {}
        self.transactions: list[Transaction] = []
        self.offsets: dict[tuple[str, TopicPartition], list[OffsetWrite]] = {}
        self.shared: dict[tuple[str, TopicPartition], dict[int, ShareRecord]] = {}
        self.committed_reads: list[tuple[TopicPartition, int, bytes]] = []
        self.disputed: set[str] = set()
        self.deleted_below: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, tuple[list[int], list[int]]] = {}

    def write(
        self, value: bytes, partition: TopicPartition, client: str, transaction: Transaction | None = None
    ) -> Write:
        """Adds a record that is about to be sent."""
        write = self.writes[value] = Write(value, partition, client, transaction)
        if transaction is not None:
            transaction.writes.append(write)
        return write

    def acknowledged(self, partition: TopicPartition, end_offset: int, now_ms: int) -> None:
        """Stores that a client received the acknowledgement of the record before `end_offset` at `now_ms`."""
        times, ends = self._ends.setdefault(partition, ([], []))
        if not ends or end_offset > ends[-1]:
            times.append(now_ms)
            ends.append(end_offset)

    def known_end(self, partition: TopicPartition, at_ms: int) -> int:
        """Returns the offset after the last record that was acknowledged to a client before `at_ms`, or 0."""
        times, ends = self._ends.get(partition, ([], []))
        position = bisect_left(times, at_ms)
        return ends[position - 1] if position else 0

    def commit(self, group: str, partition: TopicPartition, write: OffsetWrite) -> OffsetWrite:
        """Adds an offset commit that is about to be sent."""
        self.offsets.setdefault((group, partition), []).append(write)
        return write

    def share(self, group: str, partition: TopicPartition, offset: int) -> ShareRecord:
        """Returns the delivery state of a record in a share group, as the clients know it."""
        return self.shared.setdefault((group, partition), {}).setdefault(offset, ShareRecord())
