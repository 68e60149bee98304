"""Features of the cluster (KIP-584, KIP-1022): supported levels, and the levels of a new cluster."""

from __future__ import annotations

from typing import NamedTuple

from kcore.broker.metadata.image import ConfigType, MetadataImage
from kcore.broker.metadata.records import config_record, feature_record
from kcore.runtime.machine import Record

ELIGIBLE_REPLICAS = "eligible.leader.replicas.version"
MIN_INSYNC_REPLICAS = "min.insync.replicas"


class Feature(NamedTuple):
    """A feature that this version of kcore supports.

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
    # 1: eligible leader replicas (KIP-966). A single node has none; min.insync.replicas becomes a dynamic setting.
    ELIGIBLE_REPLICAS: Feature(0, 1, 1),
}
"""The features whose levels are records of the metadata log."""

FIXED_FEATURES: dict[str, Feature] = {
    "kraft.version": Feature(0, 1, 1),  # 1: a quorum whose voters can change (KIP-853)
}
"""The features whose level never changes. As in Kafka, their levels are not stored in metadata records."""


def bootstrap_records(image: MetadataImage, min_insync_replicas: int) -> list[Record]:
    """Makes the first records of a new cluster's log.

    Args:
        image: the image of the empty log.
        min_insync_replicas: the node's static setting.
    """
    levels = [feature_record(name, feature.initial) for name, feature in FEATURES.items()]
    return levels + eligible_replicas_records(image, min_insync_replicas)


def eligible_replicas_records(image: MetadataImage, min_insync_replicas: int) -> list[Record]:
    """Makes the records that are written when eligible leader replicas are enabled.

    From then on, min.insync.replicas is a setting of the cluster, and no longer of single brokers.

    Args:
        image: the current metadata.
        min_insync_replicas: the node's static setting.
    """
    records = []
    if MIN_INSYNC_REPLICAS not in image.settings_of(ConfigType.BROKER, ""):
        records.append(config_record(ConfigType.BROKER, "", MIN_INSYNC_REPLICAS, str(min_insync_replicas)))
    for owner, settings in image.settings.items():
        if owner.type == ConfigType.BROKER and owner.name and MIN_INSYNC_REPLICAS in settings:
            records.append(config_record(ConfigType.BROKER, owner.name, MIN_INSYNC_REPLICAS, None))
    return records
