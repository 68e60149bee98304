"""Random requests of administrators, for the comparison with Apache Kafka.

They change topics with their settings and partitions, settings of groups, and client quotas."""

from __future__ import annotations

import random
from binascii import crc32
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    create_partitions,
    delete_topics,
    describe_client_quotas,
    describe_configs,
    describe_topic_partitions,
    elect_leaders,
    incremental_alter_configs,
    metadata,
)
from tools.differential.program import Call, Step
from tools.differential.side import CLIENT_IDS, Side
from tools.differential.topics import CREATE

TOPIC, GROUP = 2, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

TOPIC_SETTINGS: Final = {
    "cleanup.policy": ["compact", "delete", "compact,delete", "delete,delete", "", "none"],
    "retention.ms": ["1000", "-1", "-2", "x", "9999999999999999999"],
    "segment.bytes": ["1048576", "13", "1.5"],
    "max.message.bytes": ["0", "1000", "-1"],
    "min.insync.replicas": ["1", "2", "0"],
    "message.timestamp.type": ["LogAppendTime", "CreateTime", "logappendtime"],
    "compression.type": ["zstd", "producer", "snappy", "best"],
    "unclean.leader.election.enable": ["true", "FALSE", "yes"],
    "follower.replication.throttled.replicas": ["*", "0:1", "nothing"],
    "preallocate": ["true", "maybe"],
    "no.such.setting": ["1"],
    "segment.jitter.ms": ["0", "-1"],
    "min.cleanable.dirty.ratio": ["0.5", "1.5", "half"],
}
GROUP_SETTINGS: Final = {
    "consumer.session.timeout.ms": ["45000", "1", "x", "70000"],
    "consumer.heartbeat.interval.ms": ["5000", "1", "20000"],
    "share.record.lock.duration.ms": ["20000", "1"],
    "share.auto.offset.reset": ["earliest", "latest", "by_duration:PT1H", "first"],
    "streams.num.standby.replicas": ["1", "9"],
    "no.such.setting": ["1"],
}
QUOTAS: Final = [
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "nothing",
]


def _partitions(
    side: Side, rows: list[tuple[str, int, list[list[int]] | None]], check: bool, version: int
) -> tuple[Any, int]:
    topics = [
        create_partitions.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if brokers is None
            else [create_partitions.CreatePartitionsAssignment(broker_ids=each) for each in brokers],
        )
        for name, count, brokers in rows
    ]
    return create_partitions.CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=check), version


def _delete(side: Side, names: list[str], by_id: bool, version: int) -> tuple[Any, int]:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=10_000), version
    topics = [
        delete_topics.DeleteTopicState(topic_id=side.topic_id(name))
        if by_id
        else delete_topics.DeleteTopicState(name=name)
        for name in names
    ]
    return delete_topics.DeleteTopicsRequest(topics=topics, timeout_ms=10_000), version


def _change(
    side: Side, resource: int, name: str, changes: list[tuple[str, int, str | None]], check: bool, version: int
) -> tuple[Any, int]:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    row = incremental_alter_configs.AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[row], validate_only=check), version


def _replace(
    side: Side, resource: int, name: str, values: dict[str, str | None], check: bool, version: int
) -> tuple[Any, int]:
    configs = [alter_configs.AlterableConfig(name=key, value=value) for key, value in values.items()]
    row = alter_configs.AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    return alter_configs.AlterConfigsRequest(resources=[row], validate_only=check), version


def _describe(
    side: Side, resource: int, name: str, keys: list[str] | None, synonyms: bool, version: int
) -> tuple[Any, int]:
    row = describe_configs.DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=keys)
    return describe_configs.DescribeConfigsRequest(resources=[row], include_synonyms=synonyms), version


def _entity_name(kind: str, name: str | None) -> str | None:
    """Returns the entity name for a quota request. An entity of type `ip` gets an IP address derived from `name`.

    `name` begins with the name of the test program, so no two test programs use the same address.
    """
    if kind != "ip" or name is None:
        return name
    return "127." + ".".join(str(byte) for byte in crc32(name.encode()).to_bytes(4, "big")[1:])


def _quota(
    side: Side, entity: list[tuple[str, str | None]], changes: list[tuple[str, float, bool]], check: bool, version: int
) -> tuple[Any, int]:
    names = [(kind, _entity_name(kind, name)) for kind, name in entity]
    row = alter_client_quotas.EntryData(
        entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in names],
        ops=[alter_client_quotas.OpData(key=key, value=value, remove=remove) for key, value, remove in changes],
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=[row], validate_only=check), version


def _quotas(side: Side, components: list[tuple[str, int, str | None]], strict: bool, version: int) -> tuple[Any, int]:
    rows = [
        describe_client_quotas.ComponentData(entity_type=kind, match_type=match, match=_entity_name(kind, name))
        for kind, match, name in components
    ]
    return describe_client_quotas.DescribeClientQuotasRequest(components=rows, strict=strict), version


def _elect(side: Side, kind: int, topics: dict[str, list[int]], version: int) -> tuple[Any, int]:
    rows = [elect_leaders.TopicPartitions(topic=name, partitions=parts) for name, parts in topics.items()]
    return elect_leaders.ElectLeadersRequest(
        election_type=kind if version >= 1 else 0, topic_partitions=rows, timeout_ms=5_000
    ), version


def _metadata(side: Side, names: list[str], version: int) -> tuple[Any, int]:
    topics = [metadata.MetadataRequestTopic(name=name, topic_id=bytes(16)) for name in names]
    return metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False), version


def _topic_partitions(side: Side, names: list[str], limit: int) -> tuple[Any, int]:
    rows = [describe_topic_partitions.TopicRequest(name=name) for name in names]
    return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=rows, response_partition_limit=limit), 0


class Admin:
    """Lists of random requests that change three topics, a group and client quotas."""

    NAME = "admin"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "partitions": Call(_partitions, changes_metadata=True),
        "delete": Call(_delete, changes_metadata=True),
        "change": Call(_change, changes_metadata=True),
        "replace": Call(_replace, changes_metadata=True),
        "describe": Call(_describe),
        "quota": Call(_quota, changes_metadata=True),
        "quotas": Call(_quotas),
        "elect": Call(_elect),
        "metadata": Call(_metadata),
        "topic_partitions": Call(_topic_partitions),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns 10 to 25 random requests."""
        drawer = _Drawer(chance, name)
        first = [Step(0, "create_topic", {"name": f"{name}-a", "partitions": 2})]
        return first + [drawer.step() for _ in range(chance.randrange(10, 25))]


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.name = name
        self.topics = [f"{name}-a", f"{name}-b", f"{name}-c"]

    def step(self) -> Step:
        kinds = {
            self._create: 4, self._partitions: 3, self._delete: 2, self._change: 6, self._replace: 2,
            self._describe: 4, self._quota: 3, self._quotas: 2, self._elect: 1, self._metadata: 2, self._topics: 1,
        }  # fmt: skip
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        call, arguments = kind()
        return Step(self.chance.randrange(len(CLIENT_IDS)), call, arguments)

    def _topic(self) -> str:
        return self.chance.choices(self.topics, [6, 3, 1])[0]

    def _settings(self, known: Mapping[str, list[str]]) -> dict[str, str]:
        keys = self.chance.sample(sorted(known), self.chance.choice([1, 1, 2]))
        return {key: self.chance.choice(known[key]) for key in keys}

    def _create(self) -> tuple[str, dict[str, Any]]:
        return "create_topic", {
            "name": self._topic()
            if self.chance.random() < 0.9
            else self.name + self.chance.choice([" x", "/", "é", "x" * 250]),
            "partitions": self.chance.choice([1, 2, 3, -1, 0, -2]),
            "settings": self._settings(TOPIC_SETTINGS) if self.chance.random() < 0.5 else {},
            "factor": self.chance.choice([1, 1, 1, -1, 0, 2]),
            "validate_only": self.chance.random() < 0.15,
            "version": self.chance.choice([4, 5, 6, 7]),
        }

    def _partitions(self) -> tuple[str, dict[str, Any]]:
        brokers: list[list[int]] | None = None
        if self.chance.random() < 0.3:
            brokers = [[self.chance.choice([1, 1, 5])] for _ in range(self.chance.randrange(3))]
        return "partitions", {
            "rows": [(self._topic(), self.chance.choice([1, 2, 3, 4, 0, -1]), brokers)],
            "check": self.chance.random() < 0.2,
            "version": self.chance.choice([0, 1, 2, 3]),
        }

    def _delete(self) -> tuple[str, dict[str, Any]]:
        return "delete", {
            "names": self.chance.sample(self.topics, self.chance.choice([1, 1, 2])),
            "by_id": self.chance.random() < 0.4,
            "version": self.chance.choice([1, 4, 5, 6, 6]),
        }

    def _resource(self) -> tuple[int, str, Mapping[str, list[str]]]:
        if self.chance.random() < 0.25:
            return GROUP, f"{self.name}-g", GROUP_SETTINGS
        return TOPIC, self._topic(), TOPIC_SETTINGS

    def _change(self) -> tuple[str, dict[str, Any]]:
        resource, name, known = self._resource()
        changes: list[tuple[str, int, str | None]] = []
        for key, value in self._settings(known).items():
            operation = self.chance.choices([SET, DELETE, APPEND, SUBTRACT], [60, 20, 10, 10])[0]
            changes.append((key, operation, None if operation == DELETE else value))
        if self.chance.random() < 0.05:
            changes.append(changes[0])
        check = self.chance.random() < 0.15
        return "change", {
            "resource": resource, "name": name, "changes": changes, "check": check,
            "version": self.chance.choice([0, 1]),
        }  # fmt: skip

    def _replace(self) -> tuple[str, dict[str, Any]]:
        resource, name, known = self._resource()
        check = self.chance.random() < 0.15
        return "replace", {
            "resource": resource, "name": name, "values": self._settings(known), "check": check,
            "version": self.chance.choice([0, 1, 2]),
        }  # fmt: skip

    def _describe(self) -> tuple[str, dict[str, Any]]:
        resource, name, known = self._resource()
        keys = None if self.chance.random() < 0.5 else [*self.chance.sample(sorted(known), 2)]
        return "describe", {
            "resource": resource, "name": name, "keys": keys, "synonyms": self.chance.random() < 0.5,
            "version": self.chance.choice([1, 3, 4]),
        }  # fmt: skip

    def _entity(self) -> list[tuple[str, str | None]]:
        kinds = self.chance.sample(["user", "client-id", "ip", "nobody"], self.chance.choice([1, 1, 1, 2]))
        return [(kind, f"{self.name}-1") for kind in kinds]

    def _quota(self) -> tuple[str, dict[str, Any]]:
        changes = [
            (key, self.chance.choice([100.0, 0.0, -1.0, 2.5]), self.chance.random() < 0.3)
            for key in self.chance.sample(QUOTAS, self.chance.choice([1, 1, 2]))
        ]
        check = self.chance.random() < 0.1
        return "quota", {
            "entity": self._entity(),
            "changes": changes,
            "check": check,
            "version": self.chance.choice([0, 1]),
        }

    def _quotas(self) -> tuple[str, dict[str, Any]]:
        components = [(kind, 0, name) for kind, name in self._entity()]
        strict = self.chance.random() < 0.4
        return "quotas", {"components": components, "strict": strict, "version": self.chance.choice([0, 1])}

    def _elect(self) -> tuple[str, dict[str, Any]]:
        return "elect", {
            "kind": self.chance.choice([0, 1]),
            "topics": {self._topic(): self.chance.sample([0, 1, 2], 2)},
            "version": self.chance.choice([0, 1, 2]),
        }

    def _metadata(self) -> tuple[str, dict[str, Any]]:
        return "metadata", {"names": self.topics, "version": self.chance.choice([4, 7, 8, 9, 10, 12])}

    def _topics(self) -> tuple[str, dict[str, Any]]:
        return "topic_partitions", {"names": self.topics, "limit": self.chance.choice([2000, 1, 3])}
