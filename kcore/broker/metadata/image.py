"""What the cluster's metadata says at one moment: topics, settings, features, producer ids, users and their rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kcore.broker.acl.entries import AclTable
from kcore.broker.metadata.names import collision_key
from kcore.runtime.topics import TopicInfo

if TYPE_CHECKING:
    from kcore.security.scram import SaltForm, ScramCredential, ScramMechanism


class ConfigType(IntEnum):
    """What settings can belong to; the number is Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigKey(NamedTuple):
    """Whose settings: a kind and a name. The name of the cluster-wide broker defaults is ""."""

    type: int
    name: str


NO_SETTINGS: Mapping[str, str] = {}


class MetadataImage:
    """Topics by name and id, settings by owner, feature levels, the next free producer id.

    Changed by the metadata machine's `replay` and by nothing else.

    Attributes:
        names: topic name -> topic.
        ids: topic id -> topic.
        replicas: topic id -> for each partition the nodes that hold it, the preferred leader first.
        collisions: the form in which names collide -> how many topics have it.
        settings: owner -> setting -> value as it was written.
        features: feature -> finalized level; absent means 0.
        features_epoch: the offset of the last record that changed a feature; -1 while there is none.
        next_producer_id: the first id that no block has taken.
        acls: the access control lists.
        scram: user -> mechanism -> what is kept of a password.
        scram_forms: mechanism -> form of a credential -> how many have it.
    """

    __slots__ = (
        "acls",
        "collisions",
        "features",
        "features_epoch",
        "ids",
        "names",
        "next_producer_id",
        "replicas",
        "scram",
        "scram_forms",
        "settings",
    )

    def __init__(self) -> None:
        self.names: dict[str, TopicInfo] = {}
        self.ids: dict[bytes, TopicInfo] = {}
        self.replicas: dict[bytes, list[tuple[int, ...]]] = {}
        self.collisions: dict[str, int] = {}
        self.settings: dict[ConfigKey, dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.features_epoch = -1
        self.next_producer_id = 0
        self.acls = AclTable()
        self.scram: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        self.scram_forms: dict[ScramMechanism, dict[SaltForm, int]] = {}

    def by_name(self, name: str) -> TopicInfo | None:
        """The topic of that name, or None."""
        return self.names.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """The topic of that id, or None."""
        return self.ids.get(topic_id)

    def all(self) -> Iterable[TopicInfo]:
        """Every topic, in order of creation."""
        return self.names.values()

    def settings_of(self, config_type: int, name: str) -> Mapping[str, str]:
        """What was set for one owner, name -> value as written."""
        return self.settings.get(ConfigKey(config_type, name), NO_SETTINGS)

    # ---- changes, for the machine

    def add_topic(self, name: str, topic_id: bytes) -> None:
        """A topic is new; it has no partitions yet."""
        self.names[name] = self.ids[topic_id] = TopicInfo(name, topic_id, 0)
        self.replicas[topic_id] = []
        key = collision_key(name)
        self.collisions[key] = self.collisions.get(key, 0) + 1

    def add_partition(self, topic: TopicInfo, replicas: tuple[int, ...]) -> None:
        """A topic has one partition more."""
        held = self.replicas[topic.topic_id]
        held.append(held[-1] if held and held[-1] == replicas else replicas)
        grown = TopicInfo(topic.name, topic.topic_id, len(held))
        self.names[topic.name] = self.ids[topic.topic_id] = grown

    def remove_topic(self, topic: TopicInfo) -> None:
        """A topic is gone, and its settings with it."""
        del self.names[topic.name]
        del self.ids[topic.topic_id]
        del self.replicas[topic.topic_id]
        key = collision_key(topic.name)
        self.collisions[key] -= 1
        if not self.collisions[key]:
            del self.collisions[key]
        self.settings.pop(ConfigKey(ConfigType.TOPIC, topic.name), None)

    def put_setting(self, key: ConfigKey, name: str, value: str | None) -> None:
        """A setting has a value, or (None) has none any more."""
        if value is not None:
            self.settings.setdefault(key, {})[name] = value
            return
        own = self.settings.get(key)
        if own is not None and own.pop(name, None) is not None and not own:
            del self.settings[key]

    def put_scram(self, user: str, credential: ScramCredential) -> None:
        """Gives a user a password, or another one."""
        own = self.scram.setdefault(user, {})
        self._count_scram(own.get(credential.mechanism), -1)
        own[credential.mechanism] = credential
        self._count_scram(credential, 1)

    def remove_scram(self, user: str, mechanism: ScramMechanism) -> None:
        """Takes a user's password for a mechanism away."""
        own = self.scram[user]
        self._count_scram(own.pop(mechanism), -1)
        if not own:
            del self.scram[user]

    def _count_scram(self, credential: ScramCredential | None, change: int) -> None:
        if credential is None:
            return
        from kcore.security.scram import SaltForm  # noqa: PLC0415  # only nodes that have users need it

        forms = self.scram_forms.setdefault(credential.mechanism, {})
        form = SaltForm.of(credential)
        count = forms.get(form, 0) + change
        if count:
            forms[form] = count
        else:
            del forms[form]
