"""One row of an event log: the columns of Spark's Kafka source, and the header fields of the record's batch."""

from __future__ import annotations

from typing import Final, NamedTuple

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

Headers = tuple[tuple[str, bytes | None], ...]


class EventRow(NamedTuple):
    """A record of a log, uninterpreted.

    Attributes:
        key: the key's bytes, None for none.
        value: the value's bytes, None for a tombstone.
        topic: the name of the record's topic.
        partition: the number of the record's partition.
        offset: the record's position in the partition.
        timestamp_ms: in ms since the epoch; -1 for none.
        timestamp_type: `CREATE_TIME` or `LOG_APPEND_TIME`.
        headers: (name, value) of each header, in order.
        producer_id: the producer id of the row's batch, -1 for none.
        producer_epoch: the producer epoch of the row's batch, -1 for none.
        last_sequence: the sequence number of the last record originally in the row's batch, -1 for none.
        transactional: True if it belongs to a transaction.
        control: True for a transaction marker or another control record, which holds no data.
        batch_only: True for a batch without records. Compaction keeps the last batch of a producer for its header
            (KIP-98). The row has the batch's last offset.
    """

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int = CREATE_TIME
    headers: Headers = ()
    producer_id: int = -1
    producer_epoch: int = -1
    last_sequence: int = -1
    transactional: bool = False
    control: bool = False
    batch_only: bool = False


class LogFault(NamedTuple):
    """An unreadable part of a log. The records before and after it were read.

    Attributes:
        topic: the name of the log's topic.
        partition: the number of the log's partition.
        offset: the damage is at or after this offset, -1 if unknown.
        kind: an identifier for programs: `truncated`, `corrupt`, `duplicate`, `decode`, `replay`, `missing` (a segment
            is missing), `front` (the start of the log is missing) or `absent` (the partition is missing).
        detail: a description for people.
    """

    topic: str
    partition: int
    offset: int
    kind: str
    detail: str
