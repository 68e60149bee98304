"""Constructors of metadata log records: pure functions from a decision's values to KRaft's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kcore.broker.acl.entries import Acl
from kcore.broker.metadata.image import ConfigType, QuotaEntity
from kcore.protocol.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    encode_metadata_record,
)
from kcore.runtime.machine import Record

if TYPE_CHECKING:
    from kcore.security.scram import ScramCredential


class _NoKey:
    """The missing key of a record of the metadata log, which is never compacted by key."""

    __slots__ = ()

    def encode_key(self) -> None:
        """Returns None: the log stores a null key."""
        return


NO_KEY = _NoKey()


class MetadataValue:
    """A metadata record as the value of a record in a shard's log. KRaft adds its own frame to the encoded record."""

    __slots__ = ("record",)

    def __init__(self, record: MetadataRecord) -> None:
        self.record = record

    def encode_value(self, version: int) -> bytes:
        """Encodes the record with its frame."""
        return encode_metadata_record(self.record, version)

    def __repr__(self) -> str:
        return repr(self.record)


def metadata_record(value: MetadataRecord, version: int = 0) -> Record:
    """Makes a record for a shard's log from a metadata record."""
    return Record(NO_KEY, MetadataValue(value), version)


def topic_records(
    name: str, topic_id: bytes, settings: Mapping[str, str], assignments: Sequence[Sequence[int]]
) -> list[Record]:
    """Makes the records of a new topic: the topic, its settings, its partitions.

    Args:
        name: the topic's name.
        topic_id: the topic's id, 16 bytes.
        settings: setting -> value.
        assignments: for each partition, the node ids of its replicas, the leader first.
    """
    return [
        metadata_record(TopicRecord(name=name, topic_id=topic_id)),
        *(config_record(ConfigType.TOPIC, name, setting, value) for setting, value in settings.items()),
        *partition_records(topic_id, 0, assignments),
    ]


def partition_records(topic_id: bytes, first: int, assignments: Sequence[Sequence[int]]) -> list[Record]:
    """Makes the records of a topic's new partitions, numbered from `first` on."""
    return [
        metadata_record(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=tuple(replicas),
                isr=tuple(replicas),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
            )
        )
        for index, replicas in enumerate(assignments, first)
    ]


def removal_records(topic_ids: Iterable[bytes]) -> list[Record]:
    """Makes the records that remove topics."""
    return [metadata_record(RemoveTopicRecord(topic_id=topic_id)) for topic_id in topic_ids]


def config_record(config_type: int, owner: str, setting: str, value: str | None) -> Record:
    """Makes the record of a setting's new value; None removes the setting."""
    return metadata_record(ConfigRecord(resource_type=config_type, resource_name=owner, name=setting, value=value))


def feature_record(name: str, level: int) -> Record:
    """Makes the record of a feature's finalized level."""
    return metadata_record(FeatureLevelRecord(name=name, feature_level=level))


def producer_ids_record(node_id: int, next_producer_id: int) -> Record:
    """Makes the record of an allocated block of producer ids: the next block begins at `next_producer_id`."""
    return metadata_record(ProducerIdsRecord(broker_id=node_id, broker_epoch=-1, next_producer_id=next_producer_id))


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> Record:
    """Makes the record of a quota's new value; None removes the quota."""
    return metadata_record(
        ClientQuotaRecord(
            entity=[QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            key=key,
            value=0.0 if value is None else value,
            remove=value is None,
        )
    )


def acl_record(acl_id: bytes, acl: Acl) -> Record:
    """Makes the record of a new entry of the access control lists."""
    return metadata_record(
        AccessControlEntryRecord(
            id=acl_id,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
    )


def acl_removal_record(acl_id: bytes) -> Record:
    """Makes the record that removes an entry of the access control lists."""
    return metadata_record(RemoveAccessControlEntryRecord(id=acl_id))


def scram_record(user: str, credential: ScramCredential) -> Record:
    """Makes the record of a user's credential."""
    return metadata_record(
        UserScramCredentialRecord(
            name=user,
            mechanism=credential.mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    )


def scram_removal_record(user: str, mechanism: int) -> Record:
    """Makes the record that removes a user's credential for a mechanism."""
    return metadata_record(RemoveUserScramCredentialRecord(name=user, mechanism=mechanism))
