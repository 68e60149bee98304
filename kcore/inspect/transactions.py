"""Open transactions with the offsets that they hold back, read through a node (KIP-664).

A read_committed reader sees a partition up to its *last stable offset*: the first record of the earliest open
transaction. Such a transaction holds back the offsets from there to the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kcore.node.types import ProducerState, TopicPartition, TransactionDescription

if TYPE_CHECKING:
    from kcore.node._sync.node import Node

ENDING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""States in which a transaction may hold readers back."""


class StableOffset(NamedTuple):
    """The offsets up to which readers see a partition.

    Attributes:
        last_stable_offset: the limit of read_committed readers.
        high_watermark: the limit of all other readers.
    """

    last_stable_offset: int
    high_watermark: int

    @property
    def held_back(self) -> int:
        """The number of offsets that open transactions hide from read_committed readers."""
        return self.high_watermark - self.last_stable_offset


def all_partitions(node: Node, topic: str | None = None, partition: int | None = None) -> list[TopicPartition]:
    """Returns every partition with a leader, or those of the named topic."""
    topics = node.topics.describe(None if topic is None else [topic], missing_ok=True)
    return [
        TopicPartition(found.name, row.partition)
        for found in topics
        for row in found.partitions
        if row.leader is not None and (partition is None or row.partition == partition)
    ]


def stable_offsets(node: Node, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, StableOffset]:
    """Returns the offsets up to which readers see each existing partition."""
    listed = list(partitions)
    stable = node.topics.end_offsets(listed)
    high = node.topics.end_offsets(listed, isolation="read_uncommitted")
    return {place: StableOffset(offset, high[place]) for place, offset in stable.items() if place in high}


def open_transactions(node: Node, partitions: Iterable[tuple[str, int]]) -> list[ProducerState]:
    """Returns every producer that has an open transaction in the partitions' logs."""
    return [state for state in node.transactions.producers(partitions) if state.transaction_start is not None]


def hanging_transactions(node: Node, partitions: Iterable[tuple[str, int]], idle_since_ms: int) -> list[ProducerState]:
    """Returns transactions that are open in a partition, but that no coordinator will ever end there (KIP-664).

    Args:
        node: the node.
        partitions: the partitions to search.
        idle_since_ms: only transactions whose producer has not written since, in ms since the epoch.
    """
    candidates = [found for found in open_transactions(node, partitions) if found.last_timestamp_ms <= idle_since_ms]
    if not candidates:
        return []
    known = known_transactions(node, (found.producer_id for found in candidates))
    return [found for found in candidates if (found.producer_id, found.partition) not in known]


def known_transactions(node: Node, producer_ids: Iterable[int]) -> dict[tuple[int, TopicPartition], str]:
    """Returns the open transactions that coordinators will end: (producer id, partition) -> transactional id."""
    listed = node.transactions.list(producer_ids=sorted({*producer_ids}))
    known: dict[tuple[int, TopicPartition], str] = {}
    for transactional_id, state in node.transactions.describe([row.transactional_id for row in listed]).items():
        if isinstance(state, TransactionDescription) and state.state in ENDING:
            known.update({(state.producer_id, partition): transactional_id for partition in state.partitions})
    return known
