"""The cluster's metadata at one moment: topics, settings, features, producer ids, users and access control lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kcore.broker.acl.entries import AclTable
from kcore.broker.metadata.names import collision_key
from kcore.runtime.cluster import Leader
from kcore.runtime.topics import TopicInfo

if TYPE_CHECKING:
    from kcore.broker.metadata.brokers import BrokerRegistration
    from kcore.security.decoys import SaltForms
    from kcore.security.scram import ScramCredential, ScramMechanism


class ConfigType(IntEnum):
    """Type of a resource that has settings, with the numbers of Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigKey(NamedTuple):
    """Owner of settings: a resource type and a name. The name of the cluster-wide broker defaults is ""."""

    type: int
    name: str


QuotaEntity = tuple[tuple[str, str | None], ...]
"""The owner of quotas: pairs of a type ("user", "client-id", "ip") and a name, sorted by type.

The name None stands for the default of the type.
"""

NO_SETTINGS: Mapping[str, str] = {}


class MetadataImage:
    """Topics by name and id, settings by owner, feature levels, the next free producer id.

    Only the metadata machine's `replay` changes it.

    Attributes:
        names: topic name -> topic.
        ids: topic id -> topic.
        replicas: topic id -> for each partition, the node ids of its replicas, the preferred leader first.
        leaders: topic id -> partition -> leader and epoch. A partition without an entry is led by its first replica in
            epoch 0.
        successors: topic id -> partition -> the next leader, for partitions with a planned move.
        brokers: node id -> the registration of a node of a cluster; empty for a node that is not part of a cluster.
        collisions: collision key (`names.collision_key`) -> number of topics whose names have this key.
        settings: owner -> setting -> value as written by the client.
        features: feature -> finalized level; absent means 0.
        features_epoch: the offset of the last record that changed a feature; -1 while there is none.
        next_producer_id: the first id after all allocated blocks.
        acls: the access control lists.
        quotas: entity -> quota -> value.
        scram: user -> mechanism -> credential.
        scram_forms: mechanism -> form of a credential (`SaltForm`) -> number of credentials of this form.
    """

    __slots__ = (
        "acls",
        "brokers",
        "collisions",
        "features",
        "features_epoch",
        "ids",
        "leaders",
        "names",
        "next_producer_id",
        "quotas",
        "replicas",
        "scram",
        "scram_forms",
        "settings",
        "successors",
    )

    def __init__(self) -> None:
        self.names: dict[str, TopicInfo] = {}
        self.ids: dict[bytes, TopicInfo] = {}
        self.replicas: dict[bytes, list[tuple[int, ...]]] = {}
        self.leaders: dict[bytes, dict[int, Leader]] = {}
        self.successors: dict[bytes, dict[int, int]] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.collisions: dict[str, int] = {}
        self.settings: dict[ConfigKey, dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.features_epoch = -1
        self.next_producer_id = 0
        self.acls = AclTable()
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.scram: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        self.scram_forms: dict[ScramMechanism, SaltForms] = {}

    def by_name(self, name: str) -> TopicInfo | None:
        """Returns the topic with this name, or None."""
        return self.names.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Returns the topic with this id, or None."""
        return self.ids.get(topic_id)

    def all(self) -> Iterable[TopicInfo]:
        """Returns every topic, in order of creation."""
        return self.names.values()

    def leader(self, topic_id: bytes, partition: int) -> Leader | None:
        """Returns the leader of a partition, whose node may be -1; None if there is no such partition."""
        moved = self.leaders.get(topic_id)
        if moved is not None and partition in moved:
            return moved[partition]
        current_replicas = self.replicas.get(topic_id)
        if current_replicas is None or not 0 <= partition < len(current_replicas):
            return None
        return Leader(current_replicas[partition][0], 0)

    def leading_nodes(self, topic_id: bytes) -> list[int]:
        """Returns the node that leads each partition of a topic, -1 for none; faster than many calls of `leader`."""
        nodes = [current_replicas[0] for current_replicas in self.replicas.get(topic_id, ())]
        for partition, leader in self.leaders.get(topic_id, {}).items():
            nodes[partition] = leader.node_id
        return nodes

    def successor(self, topic_id: bytes, partition: int) -> int | None:
        """Returns the node to which the leadership of a partition moves; None if no move is planned."""
        planned = self.successors.get(topic_id)
        return None if planned is None else planned.get(partition)

    def settings_of(self, config_type: int, name: str) -> Mapping[str, str]:
        """Returns the settings of one owner, name -> value as written."""
        return self.settings.get(ConfigKey(config_type, name), NO_SETTINGS)

    # ---- changes, for the machine

    def add_topic(self, name: str, topic_id: bytes) -> None:
        """Adds a topic without partitions."""
        self.names[name] = self.ids[topic_id] = TopicInfo(name, topic_id, 0)
        self.replicas[topic_id] = []
        key = collision_key(name)
        self.collisions[key] = self.collisions.get(key, 0) + 1

    def add_partition(self, topic: TopicInfo, replicas: tuple[int, ...]) -> None:
        """Adds a partition to a topic."""
        current_replicas = self.replicas[topic.topic_id]
        current_replicas.append(
            current_replicas[-1] if current_replicas and current_replicas[-1] == replicas else replicas
        )
        grown = TopicInfo(topic.name, topic.topic_id, len(current_replicas))
        self.names[topic.name] = self.ids[topic.topic_id] = grown

    def add_partitions(self, topic: TopicInfo, assignments: Iterable[tuple[int, ...]]) -> None:
        """Adds partitions to a topic."""
        current_replicas = self.replicas[topic.topic_id]
        current_replicas.extend(assignments)
        grown = TopicInfo(topic.name, topic.topic_id, len(current_replicas))
        self.names[topic.name] = self.ids[topic.topic_id] = grown

    def set_leader(self, topic_id: bytes, partition: int, leader: Leader) -> None:
        """Sets the leader of a partition."""
        self.leaders.setdefault(topic_id, {})[partition] = leader

    def set_successor(self, topic_id: bytes, partition: int, node_id: int | None) -> None:
        """Plans the move of a partition's leadership to a node; None cancels the plan."""
        if node_id is not None:
            self.successors.setdefault(topic_id, {})[partition] = node_id
            return
        planned = self.successors.get(topic_id)
        if planned is not None and planned.pop(partition, None) is not None and not planned:
            del self.successors[topic_id]

    def remove_topic(self, topic: TopicInfo) -> None:
        """Removes a topic and its settings."""
        del self.names[topic.name]
        del self.ids[topic.topic_id]
        del self.replicas[topic.topic_id]
        self.leaders.pop(topic.topic_id, None)
        self.successors.pop(topic.topic_id, None)
        key = collision_key(topic.name)
        self.collisions[key] -= 1
        if not self.collisions[key]:
            del self.collisions[key]
        self.settings.pop(ConfigKey(ConfigType.TOPIC, topic.name), None)

    def put_setting(self, key: ConfigKey, name: str, value: str | None) -> None:
        """Stores a setting's value; None removes the setting."""
        if value is not None:
            self.settings.setdefault(key, {})[name] = value
            return
        own = self.settings.get(key)
        if own is not None and own.pop(name, None) is not None and not own:
            del self.settings[key]

    def put_quota(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        """Stores a quota. None removes the quota. An entity without quotas is also removed."""
        if value is not None:
            self.quotas.setdefault(entity, {})[key] = value
            return
        own = self.quotas.get(entity)
        if own is not None and own.pop(key, None) is not None and not own:
            del self.quotas[entity]

    def put_scram(self, user: str, credential: ScramCredential) -> None:
        """Stores or replaces a user's credential."""
        own = self.scram.setdefault(user, {})
        self._count_scram(own.get(credential.mechanism), -1)
        own[credential.mechanism] = credential
        self._count_scram(credential, 1)

    def remove_scram(self, user: str, mechanism: ScramMechanism) -> None:
        """Removes a user's credential for a mechanism."""
        own = self.scram[user]
        self._count_scram(own.pop(mechanism), -1)
        if not own:
            del self.scram[user]

    def _count_scram(self, credential: ScramCredential | None, change: int) -> None:
        if credential is None:
            return
        from kcore.security.decoys import SaltForm, SaltForms  # noqa: PLC0415  # needed only by nodes with users

        forms = self.scram_forms.get(credential.mechanism)
        if forms is None:
            forms = self.scram_forms[credential.mechanism] = SaltForms()
        forms.add(SaltForm.of(credential), change)
