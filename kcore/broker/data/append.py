"""Append of a client's batch to a partition: Kafka's checks in Kafka's order, then the append.

Nothing changes until the last check has passed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NoReturn

from kcore.broker.data.decompression import in_steps
from kcore.broker.data.recompress import rebuild
from kcore.errors import KafkaError
from kcore.protocol.batch_layout import (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    CODEC_BITS,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    header_struct,
)
from kcore.protocol.compression import prepared
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.sliced import SLICE_COST_US
from kcore_ext.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    CorruptBatchError,
    iter_entries,
    parse_header,
    stamp_append_time,
)
from kcore_ext.batch.crc32c import crc32c
from kcore_ext.batch.survey import BatchSurvey, survey

if TYPE_CHECKING:
    from kcore.broker.configs.log_config import LogConfig
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.producer_state import VerificationGuard
    from kcore.clock import Now
    from kcore.protocol.compression import Buffer
    from kcore_ext.batch import BatchHeader

ZSTD = 4
FIRST_VERSION_WITH_ZSTD = 7
NO_TIMESTAMP = -1

_TO_MAGIC = MAGIC_AT + 1  # up to and with the magic byte
_SMALLEST_LENGTH = 14  # the smallest value of the length field, of any magic
_LENGTH_AND_MAGIC = header_struct("length", "magic")
_LENGTH = header_struct("length")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")


CHECKED_BYTES_A_MICROSECOND = 200
"""Approximate speed at which a batch is checked and copied unchanged, in bytes per microsecond."""
RECORDS_A_STEP = 10_000
"""Number of records that one step converts, or checks again to list the invalid ones."""
RECORDS_A_MICROSECOND = 2
"""Approximate number of records that are converted in a microsecond, or checked again to list the invalid ones."""
SURVEYED_RECORDS = 100_000
"""Maximum number of records that one step checks."""
SURVEYED_BYTES = 1 << 20
"""Maximum size of the records that one step checks."""
SURVEY_COST_US = 1_500
"""The cost of checking `SURVEYED_RECORDS` records or `SURVEYED_BYTES` bytes, in microseconds."""
MAX_RECORD_ERRORS = 1_000
"""Maximum number of invalid records of a batch that a response lists."""

Appended = tuple[int, int]
"""Result type of an append: the base offset and the append time of the batch. The time is in ms; -1 if the records keep
their create times.
"""
CheckedBatch = tuple["bytes | bytearray", int, int]
"""Type of a checked batch: the bytes that the log stores, the largest timestamp, and the append time (-1 as in
`Appended`).
"""
Survey = tuple[int, int, int, bool]
"""Result type of `survey` for a batch: the smallest and the largest timestamp in ms, the number of records without a
key, and True if the records are numbered 0, 1, 2, ...
"""
Unpack = Callable[[int, "Buffer", int], Generator[int, None, bytes]]
"""Decompresses data in steps and yields the cost of each step in microseconds.

The arguments are the codec, the data, and the maximum size of the output.
"""


class RecordsRefusedError(KafkaError):
    """A batch is refused because of some of its records.

    Attributes:
        record_errors: (index in the batch, text) of each of these records.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def whole_batch_size(records: bytes, position: int) -> int:
    """Returns the size of the batch at `position`; 0 if there is no batch or the batch is truncated. Its magic can be
    0, 1 or 2.

    Raises:
        KafkaError: CORRUPT_MESSAGE for bytes that cannot be a batch.
    """
    left = len(records) - position
    if left < LENGTH_OVERHEAD:
        return 0
    length = _LENGTH.unpack_from(records, position)[0]
    if length < _SMALLEST_LENGTH:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"a record batch of {length} bytes is shorter than the smallest possible batch"
        )
    if left < _TO_MAGIC:
        return 0
    magic = _LENGTH_AND_MAGIC.unpack_from(records, position)[1]
    if not 0 <= magic <= 2:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown magic {magic} of a record batch")
    size = LENGTH_OVERHEAD + int(length)
    return size if size <= left else 0


def read_header(records: bytes, version: int) -> BatchHeader:
    """Parses the header of a produce request's single batch.

    Raises:
        KafkaError: INVALID_RECORD for no batch, more than one, or an older magic; CORRUPT_MESSAGE for bytes that are
            not a batch; UNSUPPORTED_COMPRESSION_TYPE for zstd in a request before v7.
    """
    try:
        header = parse_header(records)
    except CorruptBatchError:
        header = None
    if header is None or header.batch_length + LENGTH_OVERHEAD != len(records):
        _check_shape(records)
    if header is None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
    if header.attributes & CODEC_BITS == ZSTD and version < FIRST_VERSION_WITH_ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return header


def _check_shape(records: bytes) -> None:
    """Refuses bytes that are not one batch of magic 2; a truncated second batch is allowed. Raises as `read_header`."""
    size = whole_batch_size(records, 0)
    if not size or records[16] != 2:
        raise KafkaError(ErrorCode.INVALID_RECORD)
    try:
        second = whole_batch_size(records, size)
    except KafkaError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE) from error
    if second:
        raise KafkaError(ErrorCode.INVALID_RECORD)


def append(
    partition: Partition,
    records: bytes,
    header: BatchHeader,
    now: Now,
    guard: VerificationGuard | None = None,
    verify: bool = False,
    unpack: Unpack = in_steps,
) -> Appended | Generator[int, None, Appended]:
    """Checks a client's batch and stages it. The staging is the last step, so an exception leaves nothing staged.

    Args:
        partition: the target partition.
        records: the request's bytes; bytes after the batch are dropped.
        header: the batch's header.
        now: the clock, which the driver reads once for each round of requests.
        guard: the guard of the batch's transaction, from its verification (KIP-890); None: the transaction was not
            verified.
        verify: True if a batch that begins a transaction in this partition needs a guard.
        unpack: decompresses the records in steps.

    Returns:
        A pair: the base offset, and the time of the append in ms (-1 if the topic has create times). For a duplicate,
        both belong to the original batch.

        The function instead returns a generator of this pair if it needs several steps. This is the case if the batch
        is long when decompressed, must be converted, or has invalid records that must be listed. The generator yields
        the cost of each step in microseconds, and stages the batch at its end.

    Raises:
        KafkaError: the batch is refused.
        LogError: the batch could not be staged.
    """
    checked = _check(records, header, partition.config, now, unpack)
    if isinstance(checked, tuple):
        return _stage(partition, checked, header, guard, verify)
    try:
        cost = next(checked)
    except StopIteration as end:
        return _stage(partition, end.value, header, guard, verify)
    return _stage_late(partition, cost, checked, header, guard, verify)


def _stage_late(
    partition: Partition,
    cost: int,
    steps: Generator[int, None, CheckedBatch],
    header: BatchHeader,
    guard: VerificationGuard | None,
    verify: bool,
) -> Generator[int, None, Appended]:
    """Runs the check of a batch in `steps`, and then stages the batch like `_stage`.

    Yields the cost of each step; `cost` is the cost of the first step, which has run already.
    """
    yield cost
    checked = yield from steps
    if partition.recovering or partition.closed:  # the partition may have changed since the first step
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return _stage(partition, checked, header, guard, verify)


def _stage(
    partition: Partition, checked: CheckedBatch, header: BatchHeader, guard: VerificationGuard | None, verify: bool
) -> Appended:
    """Checks the producer of a batch and stages it; returns and raises the same as `append`."""
    batch, max_timestamp_ms, append_time_ms = checked
    producer_id = header.producer_id
    transactional = header.is_transactional
    if producer_id >= 0:
        duplicate = partition.producers.check_client_data(
            producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            transactional,
            guard,
            verify,
        )
        if duplicate is not None:
            return duplicate.base_offset, duplicate.timestamp_ms
    base_offset = partition.append_data(
        batch,
        producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_offset_delta,
        max_timestamp_ms,
        transactional,
    )
    return base_offset, append_time_ms


def _check(
    records: bytes,
    header: BatchHeader,
    config: LogConfig,
    now: Now,
    unpack: Unpack,
    found: Survey | None = None,
    unpacked: bytes | None = None,
) -> CheckedBatch | Generator[int, None, CheckedBatch]:
    """Checks all fields of a batch except the producer's; converts the batch to the form that the log stores.

    If the batch was surveyed in steps, `found` is the survey, and `unpacked` has the records of a compressed batch.

    Returns:
        The batch in the form that the log stores, or a generator that returns it. The generator yields the cost of each
        step in microseconds. For a short batch that needs no change, the function avoids a generator, which would take
        a microsecond.

    Raises:
        KafkaError: the batch is refused, by this function or by the generator.
    """
    if header.base_offset != 0:
        raise KafkaError(ErrorCode.INVALID_RECORD)
    size = header.size_bytes
    if size > config.max_message_bytes:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    batch = records if size == len(records) and type(records) is bytes else bytes(records[:size])
    codec = header.compression
    if found is None:
        if codec or size > SURVEYED_BYTES or header.record_count > SURVEYED_RECORDS:
            return _check_in_steps(batch, header, config, now, unpack)
        try:
            found = survey(batch)
        except CorruptBatchError as error:
            raise _refusal(error) from error
    earliest_ms, max_timestamp_ms, keyless, consecutive = found
    wall_ms = now.wall_ms
    last_delta = header.last_offset_delta
    if (
        last_delta + 1 != header.record_count
        or last_delta < 0
        or header.is_control
        or (header.producer_id >= 0 and header.base_sequence < 0)
        or not (consecutive or codec)
    ):
        raise KafkaError(ErrorCode.INVALID_RECORD)
    if config.log_append_time:
        suspect = header.is_log_append_time
    else:
        suspect = (
            earliest_ms < wall_ms - config.timestamp_before_max_ms
            or max_timestamp_ms > wall_ms + config.timestamp_after_max_ms
        )
    if suspect or (keyless and config.compact):
        return _refuse_records(batch, header, config, wall_ms, unpacked)
    target = codec if config.compression is None else config.compression
    if target != codec or not consecutive:
        # Offsets may not be consecutive: some old clients number the records of compressed batches wrongly.
        return _convert(batch, header, target, config, now, max_timestamp_ms, unpacked)
    if config.log_append_time or max_timestamp_ms != header.max_timestamp_ms or header.is_log_append_time:
        return _with_times(batch, header, config, now, max_timestamp_ms)
    if size > config.segment_bytes:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
    return batch, max_timestamp_ms, NO_TIMESTAMP


def _check_in_steps(
    batch: bytes, header: BatchHeader, config: LogConfig, now: Now, unpack: Unpack
) -> Generator[int, None, CheckedBatch]:
    """Makes the checks of `_check` for a batch of any size and codec, in steps; yields the cost of each step."""
    try:
        found, unpacked = yield from _survey(batch, unpack)
    except CorruptBatchError as error:
        raise _refusal(error) from error
    checked = _check(batch, header, config, now, unpack, found, unpacked)
    return checked if isinstance(checked, tuple) else (yield from checked)


def _refusal(error: CorruptBatchError) -> KafkaError:
    """Converts the fault of a batch to the error of a response."""
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE if error.fault in {"crc", "size", "magic"} else ErrorCode.INVALID_RECORD
    )


def _survey(batch: bytes, unpack: Unpack) -> Generator[int, None, tuple[Survey, bytes | None]]:
    """Checks size, CRC and every record of a batch in steps; yields their costs in microseconds.

    Returns:
        The result, and the decompressed records of a compressed batch.

    Raises:
        CorruptBatchError: the batch is damaged.
        KafkaError: the records of the batch exceed a limit when decompressed.
    """
    found = BatchSurvey(batch)
    records: bytes | None = None
    if found.codec:
        try:
            records = yield from unpack(found.codec, memoryview(batch)[HEADER_BYTES:], DEFAULT_MAX_DECOMPRESSED_BYTES)
        except ValueError as error:
            raise CorruptBatchError(HEADER_BYTES, f"codec {found.codec}: {error}", "compression") from error
        if len(records) > SURVEYED_BYTES:
            yield SLICE_COST_US  # one record may have all bytes: its check gets a slice of its own
    found.open(prepared(records))
    while not found.advance(SURVEYED_RECORDS, SURVEYED_BYTES):
        yield SURVEY_COST_US
    return (found.earliest_ms, found.latest_ms, found.keyless, found.consecutive), records


def _convert(
    batch: bytes,
    header: BatchHeader,
    codec: int,
    config: LogConfig,
    now: Now,
    max_timestamp_ms: int,
    unpacked: bytes | None,
) -> Generator[int, None, CheckedBatch]:
    """Builds a batch in another codec, with offsets from 0 on, in steps. Returns the result of `_with_times`.

    `unpacked` has the records of a compressed batch, which the check has decompressed.
    """
    converted = yield from rebuild(batch, header, codec, config, now.wall_ms, unpacked)
    if len(converted) > config.max_message_bytes:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    return _with_times(converted, header, config, now, max_timestamp_ms)


def _with_times(
    batch: bytes | bytearray, header: BatchHeader, config: LogConfig, now: Now, max_timestamp_ms: int
) -> CheckedBatch:
    """Sets the times in the header of a batch to the times that the log stores.

    Raises:
        KafkaError: RECORD_LIST_TOO_LARGE if the batch is larger than a segment.
    """
    append_time_ms = NO_TIMESTAMP
    if config.log_append_time:
        append_time_ms = max_timestamp_ms = now.wall_ms
        batch = bytearray(batch)
        stamp_append_time(batch, append_time_ms)
    elif max_timestamp_ms != header.max_timestamp_ms or header.is_log_append_time:
        batch = bytearray(batch)
        _correct_max_timestamp(batch, max_timestamp_ms)
    if len(batch) > config.segment_bytes:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
    return batch, max_timestamp_ms, append_time_ms


def _refuse_records(
    batch: bytes, header: BatchHeader, config: LogConfig, wall_ms: int, unpacked: bytes | None
) -> Generator[int, None, NoReturn]:
    """Refuses a batch and lists the records with invalid keys or timestamps.

    Yields:
        The cost of each step in microseconds.

    Raises:
        RecordsRefusedError: INVALID_TIMESTAMP if a timestamp is invalid, else INVALID_RECORD.
    """
    earliest_ms = wall_ms - config.timestamp_before_max_ms
    latest_ms = wall_ms + config.timestamp_after_max_ms
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    # A batch of a few kilobytes may hold millions of records: the response lists the first invalid ones.
    for index, (_, timestamp_ms, key, _) in enumerate(iter_entries(batch, decompress=prepared(unpacked))):
        if config.compact and key is None:
            errors.append((index, "a record of a compacted topic needs a key"))
        elif not config.log_append_time and timestamp_ms != NO_TIMESTAMP:
            if not earliest_ms <= timestamp_ms <= latest_ms:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, f"timestamp {timestamp_ms} ms is not between {earliest_ms} and {latest_ms} ms"))
        elif header.is_log_append_time:
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append((index, "a producer must not send records with the timestamp type LogAppendTime"))
        if len(errors) >= MAX_RECORD_ERRORS:
            break
        if index % RECORDS_A_STEP == RECORDS_A_STEP - 1:
            yield RECORDS_A_STEP // RECORDS_A_MICROSECOND
    assert errors, "the survey of the batch found an invalid record"
    message = f"{len(errors)} of {header.record_count} records are refused: {errors[0][1]}"
    raise RecordsRefusedError(code, message, errors)


def _correct_max_timestamp(batch: bytearray, max_timestamp_ms: int) -> None:
    """Sets the header's largest timestamp to the largest timestamp of the records, and the type to CreateTime."""
    attributes = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes & ~LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_AT, max_timestamp_ms)
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
