"""Random requests of classic groups and consumer groups, for the comparison with Apache Kafka."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from tools.differential.program import Call, Step, learned_epoch
from tools.differential.side import CHOSEN_MEMBERS, CLIENT_IDS, Side
from tools.differential.topics import CREATE

SESSION_MS: Final = 60_000  # no session ends during a test program
SUBSCRIPTION: Final = b"\0\1\0\0\0\1\0\4none" + bytes(8)
"""An encoded consumer protocol subscription of version 1, without owned partitions.

It names a topic that does not exist, so the assignment does not depend on the random ids of members.
"""


def _join(
    side: Side,
    group: str,
    member: str,
    known: bool,
    instance: str | None,
    protocols: list[tuple[str, bytes]],
    version: int,
) -> tuple[Any, int]:
    learned = side.members.get(f"{group}/{member}")
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS if version >= 1 else -1,
        member_id=learned[0] if known and learned else ("nobody" if known else ""),
        group_instance_id=instance if version >= 5 else None,
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
    ), version


def _learn_join(side: Side, response: Any, group: str, member: str, **_: Any) -> None:
    if response.member_id:
        side.members[f"{group}/{member}"] = (response.member_id, max(response.generation_id, 0))


def _sync(
    side: Side, group: str, member: str, delta: int, assignments: dict[str, bytes], version: int, **more: Any
) -> tuple[Any, int]:
    member_id, generation = learned_epoch(side, f"{group}/{member}", delta)
    assigned = [(side.members.get(f"{group}/{name}", ("nobody", 0))[0], data) for name, data in assignments.items()]
    return sync_group.SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=more.get("instance") if version >= 3 else None,
        protocol_type=more.get("protocol_type") if version >= 5 else None,
        protocol_name=more.get("protocol_name") if version >= 5 else None,
        assignments=[sync_group.SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in assigned],
    ), version


def _heartbeat(side: Side, group: str, member: str, delta: int, instance: str | None, version: int) -> tuple[Any, int]:
    member_id, generation = learned_epoch(side, f"{group}/{member}", delta)
    return heartbeat.HeartbeatRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance if version >= 3 else None,
    ), version


def _leave(side: Side, group: str, members: list[tuple[str, str | None]], version: int) -> tuple[Any, int]:
    ids = [(side.members.get(f"{group}/{name}", ("nobody", 0))[0], instance) for name, instance in members]
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id=group, member_id=ids[0][0]), version
    identities = [leave_group.MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in ids]
    return leave_group.LeaveGroupRequest(group_id=group, members=identities), version


def _commit(
    side: Side, group: str, member: str | None, delta: int, offsets: list[tuple[str, int, int, str]], version: int
) -> tuple[Any, int]:
    member_id, epoch = ("", -1 + delta) if member is None else learned_epoch(side, f"{group}/{member}", delta)
    topics: dict[str, list[Any]] = {}
    for topic, partition, offset, metadata in offsets:
        topics.setdefault(topic, []).append(
            offset_commit.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    rows = [
        offset_commit.OffsetCommitRequestTopic(name=name, topic_id=side.topic_id(name), partitions=partitions)
        for name, partitions in topics.items()
    ]
    return offset_commit.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=rows
    ), version


def _fetch_offsets(
    side: Side, group: str, topics: dict[str, list[int]] | None, stable: bool, version: int, **more: Any
) -> tuple[Any, int]:
    if version < 8:
        rows = [offset_fetch.OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in (topics or {}).items()]
        return offset_fetch.OffsetFetchRequest(
            group_id=group,
            topics=None if topics is None and version >= 2 else rows,
            require_stable=stable and version >= 7,
        ), version
    member, delta = more.get("member"), more.get("delta", 0)
    member_id, epoch = (None, -1) if member is None else learned_epoch(side, f"{group}/{member}", delta)
    group_request = offset_fetch.OffsetFetchRequestGroup(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        topics=None
        if topics is None
        else [
            offset_fetch.OffsetFetchRequestTopics(name=name, topic_id=side.topic_id(name), partition_indexes=partitions)
            for name, partitions in topics.items()
        ],
    )
    return offset_fetch.OffsetFetchRequest(groups=[group_request], require_stable=stable), version


def _delete_offsets(side: Side, group: str, topics: dict[str, list[int]]) -> tuple[Any, int]:
    rows = [
        offset_delete.OffsetDeleteRequestTopic(
            name=name, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=each) for each in numbers]
        )
        for name, numbers in topics.items()
    ]
    return offset_delete.OffsetDeleteRequest(group_id=group, topics=rows), 0


def _beat(
    side: Side, group: str, member: str, epoch: str, names: list[str] | None, owned: str, version: int, **more: Any
) -> tuple[Any, int]:
    """Builds a ConsumerGroupHeartbeat request and its version.

    `epoch` is `join`, `leave`, `leave-static`, or a number that is added to the member's last epoch. `owned` selects
    the owned partitions in the request: `none` (null), `all` (the last assignment) or `empty`.
    """
    member_id, known = side.members.get(f"{group}/{member}", (member, 0))
    number = {"join": 0, "leave": -1, "leave-static": -2}.get(epoch)
    assigned = side.assignments.get(f"{group}/{member}", ())
    topics = {"none": None, "empty": [], "all": list(assigned)}[owned]
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=known + int(epoch) if number is None else number,
        instance_id=more.get("instance"),
        rebalance_timeout_ms=more.get("timeout_ms", SESSION_MS if epoch == "join" else -1),
        subscribed_topic_names=names,
        subscribed_topic_regex=more.get("pattern") if version >= 1 else None,
        server_assignor=more.get("assignor"),
        topic_partitions=topics
        if topics is None
        else [
            consumer_group_heartbeat.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
            for each in topics
        ],
    ), version


def _learn_beat(side: Side, response: Any, group: str, member: str, **_: Any) -> None:
    if response.error_code:
        return
    name = f"{group}/{member}"
    side.members[name] = (response.member_id or member, max(response.member_epoch, 0))
    if response.assignment is not None:
        side.assignments[name] = response.assignment.topic_partitions


def _describe(side: Side, groups: list[str], version: int) -> tuple[Any, int]:
    return describe_groups.DescribeGroupsRequest(groups=groups), version


def _describe_consumer(side: Side, groups: list[str], version: int) -> tuple[Any, int]:
    return consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=groups), version


def _list(side: Side, states: list[str], types: list[str], version: int) -> tuple[Any, int]:
    return list_groups.ListGroupsRequest(
        states_filter=states if version >= 4 else (), types_filter=types if version >= 5 else ()
    ), version


def _delete(side: Side, groups: list[str], version: int) -> tuple[Any, int]:
    return delete_groups.DeleteGroupsRequest(groups_names=groups), version


class Groups:
    """Lists of random requests of up to four members in two groups."""

    NAME = "groups"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "join": Call(_join, _learn_join, waits=True),
        "sync": Call(_sync, waits=True),
        "heartbeat": Call(_heartbeat),
        "leave": Call(_leave),
        "commit": Call(_commit),
        "fetch_offsets": Call(_fetch_offsets),
        "delete_offsets": Call(_delete_offsets),
        "beat": Call(_beat, _learn_beat),
        "describe": Call(_describe),
        "describe_consumer": Call(_describe_consumer),
        "list": Call(_list),
        "delete": Call(_delete),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two topics and 12 to 40 random requests."""
        topics = [f"{name}-a", f"{name}-b"]
        steps = [Step(0, "create_topic", {"name": topic, "partitions": 2}) for topic in topics]
        drawer = _Drawer(chance, name, topics)
        steps += [drawer.step() for _ in range(chance.randrange(12, 40))]
        return steps


class _Drawer:
    def __init__(self, chance: random.Random, name: str, topics: list[str]) -> None:
        self.chance = chance
        self.groups = [f"{name}-g", f"{name}-h"]
        self.topics = topics
        weights = {
            self._join: 6, self._sync: 5, self._heartbeat: 3, self._leave: 2, self._commit: 5, self._fetch: 4,
            self._delete_offsets: 2, self._beat: 12, self._describe: 2, self._delete: 1, self._list: 1,
        }  # fmt: skip
        # Each test program uses a subset of the calls: rare combinations become frequent.
        self.kinds = [kind for kind in weights if chance.random() < 0.75] or [self._beat]
        self.weights = [weights[kind] for kind in self.kinds]
        self.static = chance.random() < 0.3

    def step(self) -> Step:
        client = self.chance.randrange(len(CLIENT_IDS))
        (kind,) = self.chance.choices(self.kinds, self.weights)
        call, arguments = kind(client)
        return Step(client, call, arguments)

    def _group(self) -> str:
        return self.groups[0] if self.chance.random() < 0.85 else self.groups[1]

    def _delta(self) -> int:
        return self.chance.choices([0, -1, 1, -5], [85, 6, 6, 3])[0]

    def _member(self, client: int) -> str:
        who = client if self.chance.random() < 0.92 else self.chance.randrange(len(CLIENT_IDS))
        return CLIENT_IDS[who]

    def _instance(self, client: int) -> str | None:
        """Returns the instance id of a client, or None if the test program has no static members.

        Clients share few instance ids, because Kafka never forgets an instance id.
        """
        return f"i{client % 2}" if self.static else None

    def _offsets(self) -> dict[str, list[int]]:
        names = self.chance.sample([*self.topics, self.topics[0] + "-none"], self.chance.randrange(1, 3))
        return {name: self.chance.sample(range(3), self.chance.randrange(1, 3)) for name in names}

    def _join(self, client: int) -> tuple[str, dict[str, Any]]:
        names = self.chance.choice([["range"], ["range", "roundrobin"], ["roundrobin"], ["sticky", "range"]])
        return "join", {
            "group": self._group(),
            "member": self._member(client),
            "known": self.chance.random() < 0.6,
            "instance": self._instance(client),
            "protocols": [(name, self._subscription()) for name in names],
            "version": self.chance.randrange(10),
        }

    def _subscription(self) -> bytes:
        """Returns `SUBSCRIPTION`, or sometimes a damaged one."""
        return SUBSCRIPTION if self.chance.random() < 0.95 else SUBSCRIPTION[:-4]

    def _sync(self, client: int) -> tuple[str, dict[str, Any]]:
        assignments = (
            {CLIENT_IDS[n]: b"\0\1" + bytes(4) + b"\xff\xff\xff\xff" for n in range(4)}
            if self.chance.random() < 0.6
            else {}
        )
        return "sync", {
            "group": self._group(),
            "member": self._member(client),
            "delta": self._delta(),
            "assignments": assignments,
            "version": self.chance.randrange(6),
            "instance": self._instance(client),
            "protocol_type": self.chance.choice([None, "consumer", "connect"]),
            "protocol_name": self.chance.choice([None, "range", "roundrobin"]),
        }

    def _heartbeat(self, client: int) -> tuple[str, dict[str, Any]]:
        return "heartbeat", {
            "group": self._group(),
            "member": self._member(client),
            "delta": self._delta(),
            "instance": self._instance(client),
            "version": self.chance.randrange(5),
        }

    def _leave(self, client: int) -> tuple[str, dict[str, Any]]:
        members = [(self._member(client), self._instance(client)) for _ in range(self.chance.choice([1, 1, 2]))]
        return "leave", {"group": self._group(), "members": members, "version": self.chance.randrange(6)}

    def _commit(self, client: int) -> tuple[str, dict[str, Any]]:
        member = self._member(client) if self.chance.random() < 0.7 else None
        # A commit that Kafka refuses as a whole makes a simple group that appears only after the next write.
        delta = self._delta()
        notes = ["", "note"] if member is None or delta < 0 else ["", "note", "x" * 4_100]
        rows = [
            (name, partition, self.chance.choice([0, 1, 7, 2**40]), self.chance.choice(notes))
            for name, partitions in self._offsets().items()
            for partition in partitions
        ]
        return "commit", {
            "group": self._group(),
            "member": member,
            "delta": delta,
            "offsets": rows,
            "version": self.chance.randrange(2, 11),
        }

    def _fetch(self, client: int) -> tuple[str, dict[str, Any]]:
        return "fetch_offsets", {
            "group": self._group(),
            "topics": self._offsets() if self.chance.random() < 0.6 else None,
            "stable": self.chance.random() < 0.3,
            "version": self.chance.randrange(1, 11),
            "member": self._member(client) if self.chance.random() < 0.4 else None,
            "delta": self._delta(),
        }

    def _delete_offsets(self, client: int) -> tuple[str, dict[str, Any]]:
        return "delete_offsets", {"group": self._group(), "topics": self._offsets()}

    def _beat(self, client: int) -> tuple[str, dict[str, Any]]:
        epoch = self.chance.choices(["join", "0", "leave", "leave-static", "-1", "1"], [30, 50, 6, 4, 5, 3])[0]
        # One topic, because the order of several topics follows their random ids.
        names = self.chance.sample(self.topics, 1) if self.chance.random() < 0.9 else []
        joins = epoch == "join"
        who = client if self.chance.random() < 0.92 else self.chance.randrange(len(CLIENT_IDS))
        arguments: dict[str, Any] = {
            "group": self._group(),
            "member": f"consumer-{CLIENT_IDS[who]}",
            "epoch": epoch,
            "names": names if joins or self.chance.random() < 0.2 else None,
            "owned": "empty" if joins else self.chance.choice(["none", "all", "all", "empty"]),
            "version": self.chance.choice([0, 1, 1]),
        }
        if joins:
            arguments["instance"] = self._instance(who)
            if self.chance.random() < 0.1:
                arguments["timeout_ms"] = self.chance.choice([-1, 0, 1_000])
        if self.chance.random() < 0.1:
            arguments["assignor"] = self.chance.choice(["range", "uniform", "best"])
        return "beat", arguments

    def _describe(self, client: int) -> tuple[str, dict[str, Any]]:
        if self.chance.random() < 0.5:
            return "describe", {"groups": self.groups, "version": self.chance.randrange(7)}
        return "describe_consumer", {"groups": self.groups, "version": self.chance.choice([0, 1])}

    def _list(self, client: int) -> tuple[str, dict[str, Any]]:
        states = self.chance.choice([[], ["Stable"], ["Empty", "stable"], ["Nothing"]])
        types = self.chance.choice([[], ["classic"], ["Consumer"], ["nothing"]])
        return "list", {"states": states, "types": types, "version": self.chance.randrange(6)}

    def _delete(self, client: int) -> tuple[str, dict[str, Any]]:
        return "delete", {
            "groups": self.chance.choice([self.groups[:1], self.groups]),
            "version": self.chance.randrange(3),
        }


assert {f"consumer-{name}" for name in CLIENT_IDS} <= CHOSEN_MEMBERS
