"""Reads of partitions for consumers: errors, divergence and records of each partition of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.log.batch_header import last_offset
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore_ext.broker.fetch_reader import FetchItem, FetchParams

READ_COMMITTED = 1
"""The isolation level of readers that see only offsets below the last stable offset."""

# The first version whose NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH responses name the leader (KIP-951).
FIRST_VERSION_WITH_LEADER = 16
# Clients up to this version do not know KAFKA_STORAGE_ERROR.
LAST_VERSION_WITHOUT_STORAGE_ERROR = 5


def refused_early(index: int, error: ErrorCode) -> PartitionData:
    """Makes the response of a partition that was refused before its log was read."""
    aborted = None if error is ErrorCode.INCONSISTENT_TOPIC_ID else ()  # as in Kafka, which finds this error later
    return PartitionData(
        partition_index=index, error_code=error, high_watermark=-1, aborted_transactions=aborted, records=b""
    )


def refused(partition: Partition, error: ErrorCode, params: FetchParams) -> PartitionData:
    """Makes the response of a partition whose log could not be read."""
    if error is ErrorCode.KAFKA_STORAGE_ERROR and params.version <= LAST_VERSION_WITHOUT_STORAGE_ERROR:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = PartitionData(
        partition_index=partition.index, error_code=error, high_watermark=-1, aborted_transactions=None, records=b""
    )
    if params.version >= FIRST_VERSION_WITH_LEADER and error in {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    }:
        data.current_leader = LeaderIdAndEpoch(leader_id=params.node_id, leader_epoch=partition.leader_epoch)
    return data


def refusal(partition: Partition, item: FetchItem) -> ErrorCode | None:
    """Returns the error for a read at an item's position, by Kafka's checks in Kafka's order; None if all checks pass.

    If the item has a last fetched epoch, `divergence` checks the position instead.
    """
    if partition.closed:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    epoch = item.current_leader_epoch
    if epoch >= 0:
        error = partition.epoch_check(epoch)
        if error is not None:
            return error
    if partition.recovering:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    log = partition.log
    if item.last_fetched_epoch >= 0:
        end_epoch, _ = partition.end_offset_for_epoch(item.last_fetched_epoch)
        return ErrorCode.OFFSET_OUT_OF_RANGE if end_epoch < 0 else None
    if item.fetch_offset < log.log_start_offset or item.fetch_offset > log.end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return None


def divergence(partition: Partition, item: FetchItem) -> EpochEndOffset | None:
    """Finds the offset up to which the reader's log agrees with this log (KIP-320).

    Returns:
        None if the logs do not diverge, or if the reader sent no last fetched epoch.
    """
    last_epoch = item.last_fetched_epoch
    if last_epoch < 0:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(last_epoch)
    if epoch < last_epoch or end_offset < item.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def read(
    partition: Partition, item: FetchItem, params: FetchParams, budget_bytes: int, at_least_one: bool
) -> PartitionData:
    """Reads one partition.

    Args:
        partition: the partition to read.
        item: position, epochs and size limit.
        params: the parameters of the whole request.
        budget_bytes: the remaining part of the request's size limit.
        at_least_one: True to return one batch of any size, because the request has read no batch yet.

    Returns:
        The partition's response; its error code is 0 if the log could be read.
    """
    offset = item.fetch_offset
    log = partition.log
    log_start = log.log_start_offset
    if (
        item.current_leader_epoch >= 0
        or item.last_fetched_epoch >= 0
        or offset < log_start
        or offset > log.end_offset
        or partition.recovering
        or partition.closed
    ):
        response = _error_response(partition, item, params)
        if response is not None:
            return response
    committed = params.read_committed
    high_watermark, stable = partition.high_watermark, partition.last_stable_offset
    limit = stable if committed else high_watermark
    most_bytes = min(item.partition_max_bytes, budget_bytes)
    records: bytes = b""
    aborted: Any = () if committed else None
    if offset < limit and (at_least_one or most_bytes > 0):
        batches = log.read(offset, most_bytes, limit, at_least_one)
        if batches:
            records = batches[0] if len(batches) == 1 else b"".join(batches)
            if committed and partition.producers.aborted:
                aborted = [
                    AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                    for entry in partition.producers.aborted.of_batches(batches, offset, last_offset(batches[-1]) + 1)
                ]
        else:
            aborted = None  # as in Kafka, which looks for no aborted transactions if no batch fits
    return PartitionData(
        partition_index=partition.index,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=log_start,
        aborted_transactions=aborted,
        records=records,
    )


def _error_response(partition: Partition, item: FetchItem, params: FetchParams) -> PartitionData | None:
    """Makes the response of a partition with an error or a diverging epoch; None if it has neither."""
    error = refusal(partition, item)
    if error is not None:
        return refused(partition, error, params)
    diverging = divergence(partition, item)
    if diverging is not None:
        return PartitionData(
            partition_index=partition.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            diverging_epoch=diverging,
            aborted_transactions=None,
            records=b"",
        )
    log = partition.log
    if item.fetch_offset < log.log_start_offset or item.fetch_offset > log.end_offset:
        return refused(partition, ErrorCode.OFFSET_OUT_OF_RANGE, params)
    return None


def available_bytes(partition: Partition, item: FetchItem, limit: int) -> tuple[int, int]:
    """Returns the number of bytes that a reader could read now below offset `limit`.

    The method reads up to the request's size limit for this partition (`item.partition_max_bytes`), or one larger
    batch. If further batches exist beyond the limit, the result is at least the limit. A fetch need not wait then,
    because its response cannot become larger. The item's position must be valid.

    Returns:
        A pair: the bytes, and the number of batches that were examined.
    """
    most: int = item.partition_max_bytes
    batches = partition.log.read(item.fetch_offset, most, limit)
    if not batches:
        return 0, 0
    size = sum(map(len, batches))
    return size if last_offset(batches[-1]) + 1 >= limit else max(size, most), len(batches)
