"""The order in which a producer sends and repeats the batches of a partition (KIP-98).

Several batches of a partition may be sent before the first response. A broker stores a batch only if its sequence
follows the last stored one. So the records keep their order even if requests are lost or overtake each other. A
repeated batch keeps its sequence, by which the broker recognizes it.

If a batch fails, the broker may or may not have stored the batches after it. The producer repeats
each of these batches with its old sequence until the broker stores the batch, recognizes it, or refuses it as out of
order. If the broker refuses the first batch in the queue, neither this batch nor any batch after it can be stored with
the old sequence. Then these batches begin a new sequence, under a new producer id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kcore.protocol.error_codes import ErrorCode
from kcore_ext.client.accumulator import PartitionQueue, ProducerBatch

MAX_IN_FLIGHT: Final = 5
"""The largest number of requests in flight to a broker. Brokers recognize only the last five batches of a partition."""

OPEN: Final = 0
"""The state of a sequence that new batches continue."""
UNCERTAIN: Final = 1
"""The state of a sequence after a batch failed: the broker may have stored the batch and its successors, or not."""
ENDED: Final = 2
"""The state of a sequence of which the broker will store no more batches."""

NOT_STORED: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""Retriable errors after which it is certain that the broker has not stored the batch."""

OUT_OF_ORDER: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Errors of a batch whose sequence does not follow the last stored sequence."""

NO_SEQUENCE: Final = (-1, -1, 0)
MAX_SEQUENCE: Final = 0x7FFFFFFF


def next_batch(queue: PartitionQueue, producer: tuple[int, int], max_in_flight: int) -> ProducerBatch | None:
    """Returns the batch to send next; None while the queue has to wait for responses, or has no batch.

    Args:
        queue: the partition's batches.
        producer: the current producer id and epoch.
        max_in_flight: the largest number of batches of the partition that may wait for their responses.
    """
    batches = queue.batches
    if not batches:
        return None
    first = batches[0]
    if not first.in_flight:  # a new sequence begins when the old one has no batches in flight
        return first if first.sequence is not None or queue.chain == OPEN else None
    batch = next((each for each in batches if not each.in_flight), None)
    if batch is None or batch.sequence is not None:  # a repeated batch waits for the result of all earlier ones
        return None
    if queue.chain != OPEN or queue.sequence[:2] != producer or _begins_sequence(first):
        return None
    return batch if queue.assigned - first.number < max_in_flight else None


def _begins_sequence(batch: ProducerBatch) -> bool:
    """Returns True for the first batch of a sequence.

    The second batch waits for the result of the first batch. A broker without state of the producer id accepts any
    sequence: if the first batch was lost, the broker would store the second batch.
    """
    return batch.sequence is not None and batch.sequence[2] == 0


def assign_sequence(queue: PartitionQueue, batch: ProducerBatch, producer: tuple[int, int]) -> None:
    """Assigns a sequence to a batch that `next_batch` returned, unless the batch has a sequence already."""
    if batch.sequence is not None:
        return
    if queue.sequence[:2] != producer:
        queue.sequence = (*producer, 0)
    producer_id, epoch, base = queue.sequence
    queue.assign(batch, queue.sequence)
    queue.sequence = (producer_id, epoch, (base + batch.count) & MAX_SEQUENCE)


def note_unsent(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Marks a batch for repetition, because the broker did not store it or its response is missing.

    Returns:
        True if the partition needs a new producer id.
    """
    batch.in_flight = False
    if queue.chain == ENDED:
        batch.sequence = None
    return _renew_sequence(queue)


def note_out_of_order(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Records that the broker refused the sequence of a batch.

    Returns:
        True if the partition needs a new producer id.
    """
    batch.in_flight = False
    if queue.batches[0] is batch:  # no earlier batch is missing, so the broker will never accept this sequence
        queue.chain = ENDED
    if queue.chain == ENDED:
        for each in queue.batches:
            if not each.in_flight:
                each.sequence = None
    return _renew_sequence(queue)


def note_split(queue: PartitionQueue, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> bool:
    """Records that the broker refused a batch as too large, and that smaller batches replace it in the queue.

    The smaller batches divide the batch's sequence numbers among themselves. So the batches that were sent after the
    refused batch still continue the sequence.

    Returns:
        True if the partition needs a new producer id.
    """
    if batch.sequence is not None and queue.chain != ENDED:
        producer_id, epoch, base = batch.sequence
        for part in parts:
            part.sequence = (producer_id, epoch, base)
            base = (base + part.count) & MAX_SEQUENCE
    return _renew_sequence(queue)


def note_failed(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Records that a batch failed permanently, and was removed from its queue.

    Returns:
        True if the partition needs a new producer id.
    """
    if batch.sequence is not None and queue.chain == OPEN:
        queue.chain = UNCERTAIN
    return _renew_sequence(queue)


def note_stored(queue: PartitionQueue) -> bool:
    """Records that a batch was stored and removed from its queue.

    Returns:
        True if the partition needs a new producer id.
    """
    return _renew_sequence(queue)


def _renew_sequence(queue: PartitionQueue) -> bool:
    """Begins a new sequence if the old sequence cannot be continued and has no batches left.

    Returns True if a new sequence begins.
    """
    if queue.chain == OPEN or any(batch.sequence is not None for batch in queue.batches):
        return False
    queue.chain = OPEN
    queue.sequence = NO_SEQUENCE
    return True
