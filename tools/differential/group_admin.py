"""Random requests of operators about groups of every type, for the comparison with Apache Kafka.

They list groups with filters, describe them with authorized operations, delete groups and offsets, and change settings
of groups. A user with some permissions sends most of them. Members of all types try to join the same groups.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    describe_configs,
    describe_groups,
    incremental_alter_configs,
    join_group,
    list_config_resources,
    offset_delete,
    share_group_describe,
    streams_group_describe,
)
from tools.differential.groups import SUBSCRIPTION, Groups
from tools.differential.member_rights import CHANGES, GROUP, TOPIC, change, needed_grants
from tools.differential.program import Call, Step
from tools.differential.rights import ALLOW, CLUSTER, DENY, LITERAL, PREFIXED
from tools.differential.share import Share
from tools.differential.side import Side
from tools.differential.streams import Streams
from tools.differential.topics import CREATE

GROUP_RESOURCE: Final = 32
KINDS: Final = ("classic", "simple", "consumer", "share", "streams")
STATES: Final = (
    "Stable", "Empty", "stable", "EMPTY", "Dead", "PreparingRebalance", "CompletingRebalance", "Assigning",
    "Reconciling", "NotReady", "Not_Ready", "not_ready", "Unknown", "Nothing", "",
)  # fmt: skip
TYPES: Final = (
    "classic",
    "Classic",
    "CONSUMER",
    "consumer",
    "share",
    "Share",
    "streams",
    "Streams",
    "unknown",
    "x",
    "",
)
OPERATIONS: Final[Mapping[int, tuple[int, ...]]] = {
    TOPIC: (2, 3, 4, 5, 6, 7, 8, 10, 11), GROUP: (2, 3, 6, 8, 10, 11), CLUSTER: (2, 5, 8, 10, 11),
}  # fmt: skip
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "consumer.heartbeat.interval.ms": ("500", "700", "99", "15001"),
    "consumer.session.timeout.ms": ("6000", "50000", "99", "60001"),
    "share.heartbeat.interval.ms": ("5000", "6000", "99"),
    "share.session.timeout.ms": ("45000", "50000", "60001"),
    "share.record.lock.duration.ms": ("15000", "2000", "999"),
    "share.delivery.count.limit": ("2", "5", "1", "11"),
    "share.auto.offset.reset": ("earliest", "latest", "none"),
    "share.isolation.level": ("read_committed", "read_uncommitted"),
    "streams.heartbeat.interval.ms": ("5000", "6000", "x"),
    "streams.session.timeout.ms": ("45000", "50000"),
    "streams.num.standby.replicas": ("0", "1", "3"),
    "streams.initial.rebalance.delay.ms": ("0", "0"),
    "no.such.setting": ("1",),
}


def _describe(side: Side, api: str, groups: list[str], authorized: bool, version: int) -> tuple[Any, int]:
    """Builds a request that describes groups with the authorized operations of the user."""
    if api == "classic":
        return describe_groups.DescribeGroupsRequest(
            groups=groups, include_authorized_operations=authorized and version >= 3
        ), version
    kinds: dict[str, Any] = {
        "consumer": consumer_group_describe.ConsumerGroupDescribeRequest,
        "share": share_group_describe.ShareGroupDescribeRequest,
        "streams": streams_group_describe.StreamsGroupDescribeRequest,
    }
    kind = kinds[api]
    bounded = min(max(version, kind.MIN_VERSION), kind.MAX_VERSION)
    return kind(group_ids=groups, include_authorized_operations=authorized), bounded


def _delete(side: Side, groups: list[str], version: int) -> tuple[Any, int]:
    return delete_groups.DeleteGroupsRequest(groups_names=groups), version


def _delete_offsets(side: Side, group: str, rows: list[tuple[str, list[int]]]) -> tuple[Any, int]:
    """Builds an OffsetDelete request. Other than in the area `groups`, rows may be empty and name a topic twice."""
    topics = [
        offset_delete.OffsetDeleteRequestTopic(
            name=name, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=each) for each in numbers]
        )
        for name, numbers in rows
    ]
    return offset_delete.OffsetDeleteRequest(group_id=group, topics=topics), 0


def _configure(
    side: Side, rows: list[tuple[str, list[tuple[str, int, str | None]]]], check: bool, version: int
) -> tuple[Any, int]:
    """Builds an IncrementalAlterConfigs request for several groups."""
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=group,
            configs=[
                incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
                for name, operation, value in changes
            ],
        )
        for group, changes in rows
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=check)
    return request, version


def _configs(side: Side, groups: list[str], keys: list[str] | None, synonyms: bool, version: int) -> tuple[Any, int]:
    resources = [
        describe_configs.DescribeConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=keys
        )
        for group in groups
    ]
    return describe_configs.DescribeConfigsRequest(resources=resources, include_synonyms=synonyms), version


def _resources(side: Side, version: int) -> tuple[Any, int]:
    types = [GROUP_RESOURCE] if version >= 1 else []
    return list_config_resources.ListConfigResourcesRequest(resource_types=types), version


def _join(side: Side, group: str, member: str, kind: str, version: int) -> tuple[Any, int]:
    """Builds the first JoinGroup of a classic member with any protocol type."""
    protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type=kind,
        protocols=protocols,
    ), version


class GroupAdmin:
    """Lists of random requests about five groups, whose types depend on who uses them first."""

    NAME = "group_admin"
    CALLS: Mapping[str, Call] = CHANGES | {
        "create_topic": CREATE,
        "describe": Call(_describe),
        "delete": Call(_delete),
        "delete_offsets": Call(_delete_offsets),
        "configure": Call(_configure, settle=Share.CALLS["configure"].settle),
        "configs": Call(_configs),
        "resources": Call(_resources),
        "join": Call(_join, Groups.CALLS["join"].learn, waits=True),
        "share_beat": Share.CALLS["beat"],
        "share_offsets": Share.CALLS["offsets"],
        "share_alter": Share.CALLS["alter"],
        "share_delete_offsets": Share.CALLS["delete_offsets"],
        "streams_beat": Streams.CALLS["beat"],
        **{name: Groups.CALLS[name] for name in ("sync", "leave", "heartbeat", "commit", "fetch_offsets", "beat")},
        "list": Groups.CALLS["list"],
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns a topic, permissions, the first members of the groups, and 12 to 30 random requests."""
        steps = [Step(0, "create_topic", {"name": f"{name}-{end}", "partitions": 1}) for end in "ab"]
        drawer = _Drawer(chance, name)
        steps.append(drawer.grants())
        for kind in KINDS:
            if chance.random() < 0.7:
                steps += drawer.begin(kind)
        for _ in range(chance.randrange(12, 30)):
            steps += drawer.steps()
        return steps


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.name = name
        self.groups = {kind: f"{name}-{kind}" for kind in KINDS}
        self.topics = [f"{name}-a", f"{name}-b"]
        self.settings = chance.random() < 0.35
        self.rights = chance.choice([0.0, 0.1, 0.25])

    def grants(self) -> Step:
        """Returns the permissions of the user: all, those that members need, or random ones on each group."""
        if not self.rights:
            rows = [(kind, self.name, PREFIXED, 2, ALLOW) for kind in (TOPIC, GROUP)]
            return Step(0, "grant", {"rows": [*rows, (CLUSTER, "kafka-cluster", LITERAL, 2, ALLOW)]})
        if self.chance.random() < 0.5:
            return needed_grants(self.chance, self.name, 0.8)
        return Step(0, "grant", {"rows": [self._row() for _ in range(self.chance.choice([4, 8, 16]))]})

    def _row(self) -> tuple[int, str, int, int, int]:
        kind = self.chance.choices([TOPIC, GROUP, CLUSTER], [3, 7, 1])[0]
        operation = self.chance.choice(OPERATIONS[kind])
        permission = ALLOW if self.chance.random() < 0.85 else DENY
        if kind == CLUSTER:
            return kind, "kafka-cluster", LITERAL, operation, permission
        names = self.topics if kind == TOPIC else list(self.groups.values())
        if self.chance.random() < 0.3:
            return kind, self.name, PREFIXED, operation, permission
        return kind, self.chance.choice(names), LITERAL, operation, permission

    def begin(self, kind: str) -> list[Step]:
        """Returns the steps of the super user that create a group, in most cases of the type in its name."""
        group = self.groups[kind if self.chance.random() < 0.9 else self.chance.choice(KINDS)]
        return [Step(0, *row) for row in self._first(kind, group, "one")]

    def _first(self, kind: str, group: str, member: str) -> list[tuple[str, dict[str, Any]]]:
        topic = self.topics[0] if self.chance.random() < 0.8 else self.topics[1]
        if kind == "classic":
            protocol_type = self.chance.choice(["consumer", "consumer", "connect"])
            return [
                ("join", {"group": group, "member": member, "kind": protocol_type, "version": 3}),
                (
                    "sync",
                    {
                        "group": group, "member": member, "delta": 0, "assignments": {member: b"\0\1" + bytes(8)},
                        "version": 3,
                    },
                ),
            ]  # fmt: skip
        if kind == "simple":
            return [self._commit(group)]
        arguments: dict[str, Any] = {"group": group, "member": f"{kind}-{member}", "epoch": "join"}
        if kind == "consumer":
            return [("beat", {**arguments, "names": [topic], "owned": "empty", "version": 1})]
        if kind == "share":
            return [("share_beat", {**arguments, "names": [topic]})]
        return [("streams_beat", {**arguments, "topology": [([topic], [])], "owned": "empty", "process": "p-one"})]

    def steps(self) -> list[Step]:
        """Returns one random request, sometimes after a change of permissions."""
        steps = change(self.chance, self.name) if self.rights and self.chance.random() < 0.06 else []
        if self.rights and self.chance.random() < 0.08:
            steps.append(Step(0, "grant", {"rows": [self._row()]}))
        kinds = {
            self._list: 6, self._describe: 8, self._delete: 4, self._delete_offsets: 5, self._commits: 2,
            self._fetch: 2, self._share: 3, self._leave: 3, self._member: 4, self._beats: 3,
        }  # fmt: skip
        if self.settings:
            kinds |= {self._configure: 5, self._configs: 4, self._resources: 1}
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        # The super user makes some requests, so that the state of groups changes.
        client = 0 if self.chance.random() < 0.25 else self.chance.choice([1, 2, 3])
        return steps + [Step(client, *row) for row in kind()]

    def _group(self) -> str:
        return self.chance.choice(list(self.groups.values()))

    def _several(self) -> list[str]:
        return self.chance.sample([*self.groups.values(), f"{self.name}-none", ""], self.chance.choice([1, 2, 3, 5]))

    def _rows(self) -> list[tuple[str, list[int]]]:
        names = self.chance.sample([*self.topics, f"{self.name}-none"], self.chance.choice([0, 1, 1, 2, 3]))
        return [(name, self.chance.choice([[0], [0], [0, 1], [], [-1]])) for name in names]

    def _list(self) -> list[tuple[str, dict[str, Any]]]:
        states = self.chance.sample(STATES, self.chance.choice([0, 0, 1, 1, 2, 3]))
        types = self.chance.sample(TYPES, self.chance.choice([0, 0, 1, 1, 2]))
        return [
            ("list", {"states": states, "types": types, "version": self.chance.choice([0, 1, 2, 3, 4, 4, 5, 5, 5])})
        ]

    def _describe(self) -> list[tuple[str, dict[str, Any]]]:
        api = self.chance.choice(["classic", "classic", "consumer", "share", "streams"])
        return [
            (
                "describe",
                {
                    "api": api, "groups": self._several(), "authorized": self.chance.random() < 0.7,
                    "version": self.chance.randrange(7),
                },
            )
        ]  # fmt: skip

    def _delete(self) -> list[tuple[str, dict[str, Any]]]:
        return [("delete", {"groups": self._several(), "version": self.chance.randrange(3)})]

    def _delete_offsets(self) -> list[tuple[str, dict[str, Any]]]:
        return [("delete_offsets", {"group": self._group(), "rows": self._rows()})]

    def _commit(self, group: str) -> tuple[str, dict[str, Any]]:
        names = self.chance.sample(self.topics, self.chance.choice([1, 2]))
        rows = [(name, 0, 5, "") for name in names]
        version = self.chance.choice([5, 8, 9, 10])
        return "commit", {"group": group, "member": None, "delta": 0, "offsets": rows, "version": version}

    def _commits(self) -> list[tuple[str, dict[str, Any]]]:
        return [self._commit(self._group())]

    def _fetch(self) -> list[tuple[str, dict[str, Any]]]:
        topics = {name: [0] for name in self.topics} if self.chance.random() < 0.5 else None
        return [
            (
                "fetch_offsets",
                {
                    "group": self._group(), "topics": topics, "stable": False,
                    "version": self.chance.choice([2, 5, 7, 8, 9, 10]),
                },
            )
        ]  # fmt: skip

    def _share(self) -> list[tuple[str, dict[str, Any]]]:
        group = self._group()
        call = self.chance.choice(["share_offsets", "share_alter", "share_delete_offsets"])
        topic = self.chance.choice(self.topics)
        if call == "share_offsets":
            return [(call, {"group": group, "topics": self.chance.choice([None, {topic: [0]}])})]
        if call == "share_alter":
            return [(call, {"group": group, "topic": topic, "partition": 0, "offset": self.chance.choice([0, 1])})]
        return [(call, {"group": group, "topic": topic})]

    def _leave(self) -> list[tuple[str, dict[str, Any]]]:
        kind = self.chance.choice(["classic", "consumer", "share", "streams"])
        group = self.groups[kind]
        if kind == "classic":
            return [("leave", {"group": group, "members": [("one", None)], "version": 4})]
        arguments: dict[str, Any] = {"group": group, "member": f"{kind}-one", "epoch": "leave"}
        if kind == "consumer":
            return [("beat", {**arguments, "names": None, "owned": "none", "version": 1})]
        if kind == "share":
            return [("share_beat", {**arguments, "names": None})]
        return [("streams_beat", {**arguments, "topology": None, "owned": "none"})]

    def _member(self) -> list[tuple[str, dict[str, Any]]]:
        kind = self.chance.choice(KINDS)
        group = self.groups[kind] if self.chance.random() < 0.7 else self._group()
        return self._first(kind, group, "one")

    def _beats(self) -> list[tuple[str, dict[str, Any]]]:
        kind = self.chance.choice(["consumer", "share", "streams"])
        arguments: dict[str, Any] = {"group": self.groups[kind], "member": f"{kind}-one", "epoch": "0"}
        if kind == "consumer":
            return [("beat", {**arguments, "names": None, "owned": "none", "version": 1})]
        if kind == "share":
            return [("share_beat", {**arguments, "names": None})]
        return [("streams_beat", {**arguments, "topology": None, "owned": "none"})]

    def _configure(self) -> list[tuple[str, dict[str, Any]]]:
        rows = []
        for group in self.chance.sample(list(self.groups.values()), self.chance.choice([1, 1, 2])):
            changes: list[tuple[str, int, str | None]] = []
            for name in self.chance.sample(sorted(SETTINGS), self.chance.choice([1, 1, 2])):
                operation = self.chance.choices([0, 1, 2], [8, 2, 0.3])[0]
                changes.append((name, operation, None if operation == 1 else self.chance.choice(SETTINGS[name])))
            rows.append((group, changes))
        return [("configure", {"rows": rows, "check": self.chance.random() < 0.15, "version": 1})]

    def _configs(self) -> list[tuple[str, dict[str, Any]]]:
        keys = None if self.chance.random() < 0.5 else self.chance.sample(sorted(SETTINGS), 3)
        return [
            (
                "configs",
                {
                    "groups": self._several(), "keys": keys, "synonyms": self.chance.random() < 0.5,
                    "version": self.chance.choice([1, 2, 3, 4]),
                },
            )
        ]  # fmt: skip

    def _resources(self) -> list[tuple[str, dict[str, Any]]]:
        return [("resources", {"version": self.chance.choice([0, 1])})]
