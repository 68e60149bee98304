"""Features of the cluster (KIP-584, KIP-1022): what this version supports, and what a new cluster begins with."""

from __future__ import annotations

from typing import NamedTuple

from kcore.broker.metadata.records import feature_record
from kcore.runtime.machine import Record


class Feature(NamedTuple):
    """A feature that this version knows.

    Attributes:
        lowest: the lowest level it can have; 0 is off.
        highest: the highest.
        initial: the level in a new cluster.
    """

    lowest: int
    highest: int
    initial: int


FEATURES: dict[str, Feature] = {
    # The form of the metadata log's records, those of Kafka 3.3 to 4.3. A log begins with it, as in Kafka.
    "metadata.version": Feature(7, 30, 30),
    "group.version": Feature(0, 1, 1),  # 1: the consumer group protocol (KIP-848)
    "transaction.version": Feature(0, 2, 2),  # 1: flexible transaction state, 2: KIP-890
    "share.version": Feature(0, 1, 1),  # 1: share groups (KIP-932)
    "streams.version": Feature(0, 1, 1),  # 1: streams groups (KIP-1071)
}


def bootstrap_records() -> list[Record]:
    """What the log of a new cluster begins with."""
    return [feature_record(name, feature.initial) for name, feature in FEATURES.items()]
