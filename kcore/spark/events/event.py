"""One row of an event log: what Spark's Kafka source delivers of a record, and the facts of the batch it stands in."""

from __future__ import annotations

from typing import Final, NamedTuple

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

Headers = tuple[tuple[str, bytes | None], ...]


class EventRow(NamedTuple):
    """A record of a log, with nothing of it interpreted.

    Attributes:
        key: its key, None for none.
        value: its value, None for a tombstone.
        topic: the topic it stands in.
        partition: the partition it stands in.
        offset: its offset.
        timestamp_ms: its timestamp, in ms since the epoch; -1 for none.
        timestamp_type: `CREATE_TIME` or `LOG_APPEND_TIME`.
        headers: its headers in order.
        producer_id: who wrote its batch, -1 for nobody in particular.
        producer_epoch: in which epoch, -1 likewise.
        last_sequence: the sequence number of the last record that its batch was written with, -1 for none.
        transactional: whether it belongs to a transaction.
        control: whether it is the mark at a transaction's end (or another control record) and no data.
        batch_only: there is no record. Compaction keeps the last batch of a producer without records, for the sake of
            what its header says (KIP-98); the row stands at the batch's last offset.
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
    """Something in a log that could not be read; what stands before and behind it was.

    Attributes:
        topic: where.
        partition: in which partition.
        offset: at or after which offset, -1 if that is not known.
        kind: a word for programs: `truncated`, `corrupt`, `duplicate`, `decode`, `replay`, `missing` (a
            segment), `front` (of a log), `absent` (a partition).
        detail: for people.
    """

    topic: str
    partition: int
    offset: int
    kind: str
    detail: str
