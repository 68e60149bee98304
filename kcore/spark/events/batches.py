"""Record batches as event rows, read by the compiled extension or, without it, by its pure-Python version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kcore.protocol.batch_layout import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, header_struct
from kcore.spark.events import pure_batch
from kcore.spark.events.event import CREATE_TIME, LOG_APPEND_TIME, EventRow

try:
    from kcore.protocol.compression import decompress
    from kcore_ext.batch import CorruptBatchError, iter_records, parse_header, validate_crc
    from kcore_ext.spark.event_columns import EventColumns

    HAS_EXTENSION = True
except ImportError:  # an executor without the extension
    HAS_EXTENSION = False

if TYPE_CHECKING:
    import pyarrow as pa

LAST_OFFSET: Final = 2**63 - 1

_HEAD: Final = header_struct("base_offset", "length", "magic", "last_delta", "max_timestamp")


class Header(NamedTuple):
    """The fields of a batch header that are needed before its records are read."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


class BatchError(ValueError):
    """The error for bytes that are not an intact batch.

    Attributes:
        kind: `truncated` or `corrupt`.
        size_bytes: the batch size in the header; 0 if this size cannot be trusted.
        offset: the base offset in the header; -1 if this offset cannot be trusted.
    """

    def __init__(self, kind: str, detail: str, size_bytes: int = 0, offset: int = -1) -> None:
        super().__init__(detail)
        self.kind = kind
        self.size_bytes = size_bytes
        self.offset = offset


def check(buffer: memoryview, position: int) -> Header:
    """Returns the header of the batch at `position` after checking its CRC.

    Raises:
        BatchError: the batch is cut short or damaged.
    """
    left = len(buffer) - position
    if left < HEADER_BYTES:
        raise BatchError("truncated", f"only {left} bytes from position {position} on, less than the header of a batch")
    base_offset, length, magic, last_delta, max_timestamp_ms = _HEAD.unpack_from(buffer, position)
    size_bytes = length + LENGTH_OVERHEAD
    if size_bytes < HEADER_BYTES or base_offset < 0:
        raise BatchError("corrupt", f"no batch begins at position {position}")
    if magic != MAGIC:
        # Message sets of Kafka before 0.11 (magic 0, 1) do not occur in today's internal topics.
        raise BatchError(
            "corrupt", f"unknown magic {magic & 0xFF} of the batch at position {position}", size_bytes, base_offset
        )
    if size_bytes > left:
        detail = f"the batch at position {position} needs {size_bytes} bytes, but only {left} are left"
        raise BatchError("truncated", detail, 0, base_offset)
    if not _CRC_IS_RIGHT(buffer[position : position + size_bytes]):
        detail = f"the CRC of the batch at position {position} is wrong"
        raise BatchError("corrupt", detail, size_bytes, base_offset)
    return Header(base_offset, base_offset + last_delta, size_bytes, max_timestamp_ms)


def rows_of(topic: str, partition: int, batch: Any) -> Iterator[EventRow]:
    """Yields the rows of one whole batch whose CRC is correct.

    Raises:
        BatchError: the records are damaged although the CRC is correct; the rows before the damage were yielded.
    """
    return _BACKEND(topic, partition, batch)


class Gatherer(Protocol):
    """The interface for collecting the rows of one partition and returning them as Arrow record batches."""

    def add(self, batch: Any, first: int, stop: int | None) -> None:
        """Adds the rows of one whole batch whose CRC is correct, with offsets from `first` to before `stop`.

        Raises:
            BatchError: the records are damaged although the CRC is correct; the rows before the damage were added.
        """

    def __len__(self) -> int:
        """Returns the number of collected rows."""

    def take(self) -> pa.RecordBatch:
        """Returns the collected rows, at least one, and clears the collection."""


def gatherer(topic: str, partition: int) -> Gatherer:
    """Returns a gatherer for a partition. With the extension it creates no object per row."""
    make: Callable[[str, int], Gatherer] = CompiledGatherer if HAS_EXTENSION else RowGatherer
    return make(topic, partition)


class CompiledGatherer:
    """The `Gatherer` that copies rows from log bytes to Arrow buffers in compiled code."""

    def __init__(self, topic: str, partition: int) -> None:
        self._partition = (topic, partition)
        self._columns = EventColumns()

    def __len__(self) -> int:
        return len(self._columns)

    def add(self, batch: Any, first: int, stop: int | None) -> None:
        """Adds the rows of one whole batch, as `Gatherer.add` documents."""
        try:
            self._columns.append(batch, 0, first, LAST_OFFSET if stop is None else stop, decompress)
        except CorruptBatchError as error:
            raise _damaged(batch, error) from error

    def take(self) -> pa.RecordBatch:
        """Returns the collected rows as one record batch and clears the collection."""
        from kcore.spark.events.arrow import filled_batch  # noqa: PLC0415

        return filled_batch(*self._partition, len(self._columns), self._columns.take())


class RowGatherer:
    """The `Gatherer` that collects rows as objects, without the extension."""

    def __init__(self, topic: str, partition: int) -> None:
        self._partition = (topic, partition)
        self._rows: list[EventRow] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, batch: Any, first: int, stop: int | None) -> None:
        """Adds the rows of one whole batch, as `Gatherer.add` documents."""
        for row in rows_of(*self._partition, batch):
            if row.offset >= first and (stop is None or row.offset < stop):
                self._rows.append(row)

    def take(self) -> pa.RecordBatch:
        """Returns the collected rows as one record batch and clears the collection."""
        from kcore.spark.events.arrow import to_batch  # noqa: PLC0415

        rows, self._rows = self._rows, []
        return to_batch(rows)


def rows_compiled(topic: str, partition: int, batch: Any) -> Iterator[EventRow]:
    """Implements `rows_of` with the extension."""
    header = parse_header(batch)
    kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
    producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
    transactional, control = header.is_transactional, header.is_control
    last_sequence = -1 if first < 0 else header.last_sequence
    if not header.record_count:
        yield EventRow(
            None, None, topic, partition, header.last_offset, header.max_timestamp_ms, kind, (),
            producer_id, epoch, last_sequence, transactional, control, True,
        )  # fmt: skip
        return
    make = EventRow._make
    try:
        for record in iter_records(batch, decompress=decompress):
            yield make(
                (
                    record.key, record.value, topic, partition, record.offset, record.timestamp_ms, kind,
                    record.headers, producer_id, epoch, last_sequence, transactional, control, False,
                )
            )  # fmt: skip
    except CorruptBatchError as error:
        raise _damaged(batch, error) from error


def _crc_ext(batch: Any) -> bool:
    try:
        return validate_crc(batch)
    except CorruptBatchError:
        return False


def rows_pure(topic: str, partition: int, batch: Any) -> Iterator[EventRow]:
    """Implements `rows_of` without the extension."""
    try:
        yield from pure_batch.rows(topic, partition, batch)
    except pure_batch.MalformedError as error:
        raise _damaged(batch, error) from error


def _damaged(batch: Any, error: Exception) -> BatchError:
    """Returns the error for damaged records in a batch whose CRC is correct."""
    return BatchError("corrupt", str(error), len(batch), int.from_bytes(batch[:8], "big", signed=True))


_BACKEND: Callable[[str, int, Any], Iterator[EventRow]] = rows_compiled if HAS_EXTENSION else rows_pure
_CRC_IS_RIGHT: Callable[[Any], bool] = _crc_ext if HAS_EXTENSION else pure_batch.crc_is_right
