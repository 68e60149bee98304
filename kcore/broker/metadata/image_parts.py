"""The records that describe a metadata image, in parts.

The compaction of the metadata log writes each part with a separate decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kcore.broker.metadata.brokers import led_partition_records
from kcore.broker.metadata.image import ConfigType
from kcore.broker.metadata.partition_range import MetadataItem, new_partitions
from kcore.broker.metadata.records import (
    acl_record,
    config_record,
    feature_record,
    producer_ids_record,
    quota_record,
    scram_record,
    topic_records,
)

if TYPE_CHECKING:
    from kcore.broker.metadata.image import MetadataImage

PART_ITEMS = 200
"""Approximate number of topics, settings, credentials, quotas or access control entries in a part."""
PART_PARTITIONS = 2_000
"""Maximum number of partitions of one topic in a part."""


def image_size(image: MetadataImage) -> int:
    """Counts the records of all parts without making them."""
    return (
        len(image.features)
        + bool(image.next_producer_id)
        + len(image.brokers)
        + sum(1 + topic.partitions for topic in image.all())
        + sum(map(len, image.settings.values()))
        + sum(map(len, image.scram.values()))
        + len(image.acls.by_id)
        + sum(map(len, image.quotas.values()))
    )


def image_parts(image: MetadataImage, node_id: int) -> Iterator[list[MetadataItem]]:
    """Yields the fewest records that describe an image, in parts.

    Each part describes the image at the time when the part is requested. Changes between two parts are also records of
    the log, so a replay of all records gives the latest image. The replay must ignore a change of an object that it has
    not read yet. A later part describes the object after this change.
    """
    part: list[MetadataItem] = [feature_record(name, level) for name, level in image.features.items()]
    if image.next_producer_id:
        part.append(producer_ids_record(node_id, image.next_producer_id))
    part += [broker.record() for broker in image.brokers.values()]
    for records in _objects(image):
        part += records
        if len(part) >= PART_ITEMS or any(not isinstance(item, tuple) for item in records):
            yield part
            part = []
    yield part


def _objects(image: MetadataImage) -> Iterator[list[MetadataItem]]:
    """Yields the records of each object that still exists: topics, settings, credentials, quotas and ACLs."""
    for topic_id in list(image.ids):
        yield from _topic(image, topic_id)
    for owner in list(image.settings):
        if owner.type != ConfigType.TOPIC:
            own = image.settings_of(*owner)
            yield [config_record(owner.type, owner.name, name, value) for name, value in own.items()]
    for user in list(image.scram):
        yield [scram_record(user, credential) for credential in image.scram.get(user, {}).values()]
    for entity in list(image.quotas):
        yield [quota_record(entity, key, value) for key, value in image.quotas.get(entity, {}).items()]
    for acl_id in list(image.acls.by_id):
        acl = image.acls.by_id.get(acl_id)
        if acl is not None:
            yield [acl_record(acl_id, acl)]


def _topic(image: MetadataImage, topic_id: bytes) -> Iterator[list[MetadataItem]]:
    """Yields the records of a topic, in several lists if it has many partitions."""
    topic = image.ids.get(topic_id)
    if topic is None:
        return
    records: list[MetadataItem] = [
        *topic_records(topic.name, topic_id, image.settings_of(ConfigType.TOPIC, topic.name), ())
    ]
    first = 0
    while topic_id in image.ids:
        assignments = image.replicas[topic_id][first : first + PART_PARTITIONS]
        if not assignments and first:
            return
        yield records + _partitions(image, topic_id, first, assignments)
        records = []
        first += PART_PARTITIONS
        if len(assignments) < PART_PARTITIONS:
            return


def _partitions(
    image: MetadataImage, topic_id: bytes, first: int, assignments: list[tuple[int, ...]]
) -> list[MetadataItem]:
    """Makes the records of some partitions of a topic with their current leaders."""
    moved = {**image.leaders.get(topic_id, {}), **image.successors.get(topic_id, {})}
    if not moved or not any(first + at in moved for at in range(len(assignments))):
        return new_partitions(topic_id, first, assignments)
    led = []
    for index, replicas in enumerate(assignments, first):
        leader = image.leader(topic_id, index)
        assert leader is not None, "every partition of the image has a leader"
        led.append((index, replicas, leader, image.successor(topic_id, index)))
    return [*led_partition_records(topic_id, led)]
