from collections.abc import Callable, Iterator, Sequence
from typing import final

from kcore_ext.batch.header import AnyBuffer
from kcore_ext.batch.records import Record

@final
class BatchBuilder:
    """The builder of a batch: it collects records and encodes them."""

    def __init__(
        self,
        max_size_bytes: int,
        *,
        base_timestamp_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        compression: int = 0,
        compress: Callable[[int, bytes], bytes] | None = None,
        keeps_codec: bool = False,
        log_append_time: bool = False,
    ) -> None: ...
    @property
    def max_size_bytes(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def marker(self) -> tuple[int, bool, int] | None:
        """The tuple (coordinator epoch, True for a commit, transaction.version) if the batch is an end marker, else
        None.
        """
    def append(
        self,
        timestamp_ms: int,
        key: AnyBuffer | None,
        value: AnyBuffer | None,
        headers: Sequence[tuple[str, AnyBuffer | None]] = (),
        *,
        offset_delta: int = -1,
    ) -> bool: ...
    def record_bytes(self) -> bytes: ...
    def set_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None: ...
    def build(self, base_offset: int = 0, leader_epoch: int = -1, *, last_offset_delta: int = -1) -> bytes: ...
    def build_bytearray(
        self, base_offset: int = 0, leader_epoch: int = -1, *, last_offset_delta: int = -1
    ) -> bytearray: ...

def copy_records(reader: Iterator[Record], builder: BatchBuilder, max_records: int, max_bytes: int) -> bool:
    """Copies the next records of a batch with new offsets. Headers are copied as bytes, without decoding them.

    If the builder is empty, the first copied record sets the base timestamp, unless the builder has an append time.

    Args:
        reader: the result of `iter_records`.
        builder: receives the records.
        max_records: the largest number of records to copy.
        max_bytes: the number of copied bytes after which the function returns.

    Returns:
        True if the batch may have further records.

    Raises:
        CorruptBatchError: a record is malformed; the records before it were copied.
        ValueError: the builder is full.
    """

def marker_builder(
    control_type: int,
    coordinator_epoch: int,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    transaction_version: int = 0,
) -> BatchBuilder:
    """Returns the builder of a transactional control batch whose only record is the end marker of a transaction.

    The batch has no sequence number.

    Args:
        control_type: 0 ABORT, 1 COMMIT.
        coordinator_epoch: the epoch of the transaction coordinator that ended the transaction.
        producer_id: the producer of the transaction.
        producer_epoch: the producer epoch in the marker.
        timestamp_ms: the time of the marker.
        transaction_version: the transaction.version with which the transaction ended. The batch does not contain it;
            only the property `marker` of the builder does.

    Raises:
        ValueError: control_type is neither 0 nor 1.
    """

def build_control_batch(
    control_type: int,
    coordinator_epoch: int,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes: ...
