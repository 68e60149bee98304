"""Features of the cluster (KIP-584, KIP-1022): supported levels, and the levels of a new cluster."""

from __future__ import annotations

from typing import NamedTuple

from kcore.broker.metadata.records import feature_record
from kcore.runtime.machine import Record


class Feature(NamedTuple):
    """A feature that this version knows.

    Attributes:
        lowest: the lowest supported level; 0 means off.
        highest: the highest supported level.
        initial: the level in a new cluster.
    """

    lowest: int
    highest: int
    initial: int


FEATURES: dict[str, Feature] = {
    # Format of the metadata log's records, from Kafka 3.3 to 4.3. As in Kafka, its record is the first in a log.
    "metadata.version": Feature(7, 30, 30),
    "group.version": Feature(0, 1, 1),  # 1: the consumer group protocol (KIP-848)
    "transaction.version": Feature(0, 2, 2),  # 1: flexible transaction state, 2: KIP-890
    "share.version": Feature(0, 1, 1),  # 1: share groups (KIP-932)
    "streams.version": Feature(0, 1, 1),  # 1: streams groups (KIP-1071)
}


def bootstrap_records() -> list[Record]:
    """Makes the first records of a new cluster's log."""
    return [feature_record(name, feature.initial) for name, feature in FEATURES.items()]
