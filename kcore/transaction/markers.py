"""End markers: what a coordinator asks of the partitions of a transaction that was decided (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from kcore.protocol.error_codes import ErrorCode

TopicPartition = tuple[str, int]
Results = Mapping[TopicPartition, ErrorCode]

DROPPED = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The partition has its marker, or cannot hold anything of a transaction."""

RETRIED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Asked again for ever: a decided transaction never fails."""

GIVEN_UP = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Somebody newer owns the transaction: its end is not ours to write any more."""


class Marker(NamedTuple):
    """An end marker.

    Attributes:
        producer_id: whose transaction ends.
        producer_epoch: the epoch that the marker carries: the producer's own, or one more since KIP-890.
        commit: whether it was committed.
        coordinator_epoch: the leader epoch of the coordinator's partition: partitions refuse an older one.
        transaction_version: the transaction.version behind it (KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerWriter(Protocol):
    """Brings markers to the leaders of partitions, wherever these are."""

    def write(self, marker: Marker, partitions: Collection[TopicPartition], done: Callable[[Results], None]) -> None:
        """Writes a marker to each of `partitions`.

        Args:
            marker: what to write.
            partitions: where.
            done: called with the code of each partition: before this returns, if all leaders are here (the markers
                are then part of the present commit), or later, perhaps in several calls.
        """
        ...
