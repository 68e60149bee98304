"""End markers: a coordinator writes one to each partition of a prepared transaction (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.topic_partition import PartitionTuple

Results = Mapping[PartitionTuple, ErrorCode]

DROPPED = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""Codes after which a partition needs no further marker: it has the marker, or it cannot store transactional records.
"""

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
"""Codes after which the coordinator sends the marker again, without limit: a prepared transaction never fails."""

GIVEN_UP = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Codes after which no retry can help: the partition has seen a newer epoch of the producer or of the coordinator."""


class Marker(NamedTuple):
    """An end marker.

    Attributes:
        producer_id: the producer id of the transaction.
        producer_epoch: the epoch of the prepared end. It is one above the producer's epoch if the end increased the
            epoch.
        commit: True for a commit, False for an abort.
        coordinator_epoch: the leader epoch of the coordinator's partition; partitions refuse a marker with an older
            epoch.
        transaction_version: the transaction.version of the transaction (KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerWriter(Protocol):
    """The interface of an object that writes markers to partitions whose leaders are on this node or on other nodes."""

    def write(self, marker: Marker, partitions: Collection[PartitionTuple], done: Callable[[Results], None]) -> None:
        """Writes a marker to each of `partitions`.

        Args:
            marker: the same marker for all partitions.
            partitions: the partitions that get the marker.
            done: called with the code of each partition. If this node leads all partitions, `done` is called before
                `write` returns, and the markers are part of the current round. Otherwise it is called later, possibly
                several times with some of the partitions.
        """
        ...
