"""Random requests of well-behaved members of both group protocols, for the comparison with Apache Kafka.

Each member sends the request that a real consumer would send in its state: it joins, syncs, sends heartbeats, revokes
partitions and joins again after an error. Members switch between the classic protocol and KIP-848 while others stay, so
that groups migrate in both directions. Topics gain partitions, disappear and appear again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages import (
    consumer_group_heartbeat,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    sync_group,
)
from kcore.protocol.messages.metadata import MetadataRequest
from tools.differential.admin import Admin
from tools.differential.groups import Groups
from tools.differential.program import Call, Step
from tools.differential.share import Share
from tools.differential.side import CLIENT_IDS, Side
from tools.differential.topics import CREATE

SESSION_MS: Final = 60_000
RESOLVED_MS: Final = 150
"""Time until the servers have resolved a pattern of topics, in ms."""
IDLE_CLIENT: Final = 3
"""The number of a client without a member, which waits while the requests of other clients wait."""
NO_ASSIGNOR: Final = "no assignor"
COOPERATIVE: Final = "cooperative-sticky"
LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID})
"""Errors after which a member joins as a new one."""
AGAIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
"""Errors after which a classic member joins again with its id."""


class _Member:
    """A member's state on one side.

    Attributes:
        kind: `classic` or `consumer`.
        phase: of a classic member `join`, `sync` or `stable`.
        member_id: the id, or "" if the server has not chosen one yet.
        epoch: the generation or member epoch.
        owned: the owned partitions: topic -> numbers.
        assigned: the assignment of the last heartbeat response, or None if the member owns exactly that.
        others: the members that the leader assigns partitions to: id -> subscribed topics.
        protocol: the name of the assignor in the last JoinGroup response.
    """

    def __init__(self, kind: str, member_id: str) -> None:
        self.kind = kind
        self.phase = "join"
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}
        self.assigned: dict[str, list[int]] | None = None
        self.others: dict[str, list[str]] = {}
        self.protocol = ""


def _member(side: Side, group: str, name: str, kind: str) -> _Member:
    """Returns the state of a member. A member that changes its kind begins without an id, like a restarted process."""
    key = f"{group}/{name}"
    known = side.states.get(key)
    if known is None or known.kind != kind:
        known = side.states[key] = _Member(kind, f"consumer-{name}" if kind == "consumer" else "")
    return known


def _tick(side: Side, group: str, member: str, kind: str, version: int, **more: Any) -> tuple[Any, int]:
    """Builds the request that a member sends next, and selects its version."""
    state = _member(side, group, member, kind)
    if kind == "consumer":
        return _beat(side, group, state, **more)
    if state.phase == "join":
        return _join(group, state, version, **more)
    if state.phase == "sync":
        return _sync(side, group, state, min(version, 5), more.get("instance"))
    return heartbeat.HeartbeatRequest(
        group_id=group, generation_id=state.epoch, member_id=state.member_id, group_instance_id=more.get("instance")
    ), min(version, 4)


def _join(group: str, state: _Member, version: int, names: list[str], **more: Any) -> tuple[Any, int]:
    protocols = []
    for name in more["protocols"]:
        owned = [TopicPartition(topic=topic, partitions=numbers) for topic, numbers in sorted(state.owned.items())]
        subscription = ConsumerProtocolSubscription(
            topics=names, owned_partitions=owned if name == COOPERATIVE else (), generation_id=state.epoch or -1
        )
        data = subscription.encode_versioned(more["format"])
        protocols.append(join_group.JoinGroupRequestProtocol(name=name, metadata=data))
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=more.get("session_ms", SESSION_MS),
        rebalance_timeout_ms=more.get("rebalance_ms", SESSION_MS),
        member_id=state.member_id,
        group_instance_id=more.get("instance"),
        protocol_type="consumer",
        protocols=protocols,
    ), version


def _sync(side: Side, group: str, state: _Member, version: int, instance: str | None) -> tuple[Any, int]:
    assignments = []
    # Both sides use the same label for a member, but different ids.
    ordered = sorted(state.others, key=lambda each: side.label("member", each))
    for position, member_id in enumerate(ordered):
        topics = []
        for topic in sorted(state.others[member_id]):
            sharing = [each for each in ordered if topic in state.others[each]]
            numbers = range(side.states.get(f"partitions of {topic}", 0))
            own = [number for number in numbers if number % len(sharing) == sharing.index(member_id)]
            if own:
                topics.append(TopicPartition(topic=topic, partitions=own))
        data = ConsumerProtocolAssignment(assigned_partitions=topics).encode_versioned(position % 4)
        assignments.append(sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=data))
    return sync_group.SyncGroupRequest(
        group_id=group,
        generation_id=state.epoch,
        member_id=state.member_id,
        group_instance_id=instance,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name=state.protocol if version >= 5 else None,
        assignments=assignments,
    ), version


def _beat(side: Side, group: str, state: _Member, names: list[str], **more: Any) -> tuple[Any, int]:
    joins = state.epoch == 0
    if joins:
        state.owned, state.assigned = {}, None
    reports = joins
    if state.assigned is not None and more["revokes"]:
        reports, state.owned, state.assigned = True, state.assigned, None
    full = joins or more.get("full", False)
    pattern = more.get("pattern")
    assignor = more.get("assignor", NO_ASSIGNOR)
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=state.member_id,
        member_epoch=state.epoch,
        instance_id=more.get("instance") if full else None,
        rebalance_timeout_ms=more.get("rebalance_ms", SESSION_MS) if full else -1,
        subscribed_topic_names=names if full and pattern is None else None,
        subscribed_topic_regex=pattern if full else None,
        server_assignor=assignor if full and assignor != NO_ASSIGNOR else None,
        topic_partitions=[
            consumer_group_heartbeat.TopicPartitions(topic_id=side.topic_id(topic), partitions=numbers)
            for topic, numbers in sorted(state.owned.items())
        ]
        if reports or full
        else None,
    ), 1


def _learn(side: Side, response: Any, group: str, member: str, kind: str, **_: Any) -> None:
    state = _member(side, group, member, kind)
    code = response.error_code
    if kind == "consumer":
        if code in LOST:
            state.epoch = 0
        elif not code:
            state.epoch = response.member_epoch
            if response.assignment is not None:
                names = {topic_id: name for name, topic_id in side.topic_ids.items()}
                state.assigned = {
                    names.get(row.topic_id, "unknown"): list(row.partitions)
                    for row in response.assignment.topic_partitions
                }
    elif code in LOST:
        state.phase, state.member_id, state.owned = "join", "", {}
    elif code in AGAIN:
        state.phase = "join"
    elif isinstance(response, join_group.JoinGroupResponse):
        _learn_join(state, response)
    elif isinstance(response, sync_group.SyncGroupResponse) and not code:
        state.phase = "stable"
        assignment, _ = ConsumerProtocolAssignment.decode_versioned(response.assignment or b"\0\0\0\0\0\0\0\0\0\0")
        state.owned = {row.topic: list(row.partitions) for row in assignment.assigned_partitions}


def _learn_join(state: _Member, response: join_group.JoinGroupResponse) -> None:
    if response.member_id:
        state.member_id = response.member_id
    if response.error_code:
        return
    state.epoch, state.phase, state.protocol = response.generation_id, "sync", response.protocol_name or ""
    state.others = {}
    if response.leader == response.member_id:
        for each in response.members:
            subscription, _ = ConsumerProtocolSubscription.decode_versioned(each.metadata)
            state.others[each.member_id] = list(subscription.topics)


def _leave(side: Side, group: str, member: str, kind: str, instance: str | None, temporary: bool) -> tuple[Any, int]:
    """Builds the last request of a member: LeaveGroup, or a heartbeat with epoch -1 or -2 (a temporary leave)."""
    state = _member(side, group, member, kind)
    member_id = state.member_id
    side.states.pop(f"{group}/{member}")
    if kind == "consumer":
        return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=-2 if temporary and instance else -1, instance_id=instance
        ), 1
    row = leave_group.MemberIdentity(member_id=member_id, group_instance_id=instance)
    return leave_group.LeaveGroupRequest(group_id=group, members=[row]), 4


def _commit(
    side: Side, group: str, member: str, kind: str, topic: str, delta: int, instance: str | None, version: int
) -> tuple[Any, int]:
    state = _member(side, group, member, kind)
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    row = offset_commit.OffsetCommitRequestTopic(name=topic, topic_id=side.topic_id(topic), partitions=[partition])
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=state.epoch + delta,
        member_id=state.member_id,
        group_instance_id=instance if version >= 7 else None,
        topics=[row],
    ), version


def _pause(side: Side, ms: int) -> tuple[Any, int]:
    """Waits; its request only shows that the server is alive."""
    if side.name == "Kafka":
        time.sleep(ms / 1000)
    return MetadataRequest(topics=[], allow_auto_topic_creation=False), 9


def _learn_created(side: Side, response: Any, name: str, partitions: int, **more: Any) -> None:
    CREATE.learn(side, response, name=name, partitions=partitions, **more)  # type: ignore[misc]
    for topic in response.topics:
        if not topic.error_code:
            side.states[f"partitions of {topic.name}"] = partitions


def _learn_partitions(side: Side, response: Any, rows: list[Any], **_: Any) -> None:
    for row in response.results:
        if not row.error_code:
            side.states[f"partitions of {row.name}"] = rows[0][1]


def _learn_deleted(side: Side, response: Any, **_: Any) -> None:
    for row in response.responses:
        if not row.error_code:
            side.states[f"partitions of {row.name}"] = 0


class Members:
    """Lists of requests of up to three members of a group, which change their protocol and their subscription."""

    NAME = "members"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE._replace(learn=_learn_created),
        "partitions": Admin.CALLS["partitions"]._replace(learn=_learn_partitions),
        "delete_topic": Admin.CALLS["delete"]._replace(learn=_learn_deleted),
        "configure": Share.CALLS["configure"],
        "tick": Call(_tick, _learn, waits=True),
        "leave": Call(_leave),
        "commit": Call(_commit),
        "pause": Call(_pause),
        **{name: Groups.CALLS[name] for name in ("fetch_offsets", "describe", "describe_consumer", "list", "delete")},
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two topics and 20 to 60 random requests."""
        topics = [f"{name}-a", f"{name}-b"]
        steps = [
            Step(0, "create_topic", {"name": topic, "partitions": count})
            for topic, count in zip(topics, (4, 2), strict=True)
        ]
        drawer = MembersDrawer(chance, name, topics)
        for _ in range(chance.randrange(20, 60)):
            steps += drawer.steps()
        return steps


class MembersDrawer:
    """Draws the steps of a test program of the area `members`.

    Args:
        chance: the source of randomness.
        name: the beginning of all names.
        topics: the names of the two topics.
    """

    def __init__(self, chance: random.Random, name: str, topics: list[str]) -> None:
        self.chance = chance
        self.group = f"{name}-g"
        self.topics = topics
        self.size = chance.choice([2, 3])
        kinds = chance.choice([["classic", "consumer"], ["classic", "consumer"], ["consumer"], ["classic"]])
        # If the members get different numbers of partitions, Kafka's assignor `uniform` gives the larger number to the
        # member whose id has the lower hash.
        uniform = "classic" not in kinds and self.size == 2
        self.assignor = chance.choice(["range", "uniform"]) if uniform else "range"
        self.possible = kinds
        self.kinds = [chance.choice(kinds) for _ in range(self.size)]
        static = chance.choice([0, 0, 0.5, 1])
        self.instances = [f"i{n}" if chance.random() < static else None for n in range(self.size)]
        # The server chooses the ids of classic members by chance, and assignors order members by their ids. A mixed
        # group therefore has only static members, whose instance ids come first, or members with different topics.
        self.apart = len(kinds) > 1 and static < 1
        if self.apart:
            self.size = 2
        self.names = [self._names() for _ in range(self.size)]
        if self.apart:
            self.names = [topics[:1], topics[1:]]
        # The servers resolve a pattern a moment after the response. If a member with a pattern joins after a leave and
        # before the next assignment, Kafka may assign topics to it that do not match.
        self.with_patterns = not self.apart and chance.random() < 0.2
        self.patterns = [self._pattern() for _ in range(self.size)]
        self.protocols = [self._protocols() for _ in range(self.size)]
        self.formats = [chance.randrange(4) for _ in range(self.size)]

    def steps(self) -> list[Step]:
        """Returns the steps of one random action of a member."""
        client = self.chance.randrange(self.size)
        kinds = {
            self._ticks: 30, self._change: 2, self._commit: 3, self._fetch: 1, self._describe: 2, self._topic: 1,
        }  # fmt: skip
        if not self.with_patterns:
            kinds |= {self._leave: 2, self._switch: 2}
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        return kind(client)

    def _names(self) -> list[str]:
        # The assignor `uniform` orders several topics by their random ids.
        several = self.topics if self.assignor == "range" else self.topics[:1]
        return self.chance.choice([self.topics[:1], self.topics[:1], self.topics[1:], several])

    def _pattern(self) -> str | None:
        ends = [".*", "[a]", "b|c", "(", "none"] if self.assignor == "range" else ["[a]", "b", "none"]
        pattern = self.topics[0][:-1] + self.chance.choice(ends)
        return pattern if self.with_patterns and self.chance.random() < 0.4 else None

    def _protocols(self) -> list[str]:
        return self.chance.choice([["range"], ["range", COOPERATIVE], [COOPERATIVE], [COOPERATIVE, "range"]])

    def tick(self, client: int, **more: Any) -> Step:
        """Returns the step with the next request of a member."""
        return Step(
            client,
            "tick",
            {
                "group": self.group,
                "member": CLIENT_IDS[client],
                "kind": self.kinds[client],
                "version": self.chance.choice([5, 6, 7, 8, 9, 9]),
                "names": self.names[client],
                "instance": self.instances[client],
                "protocols": self.protocols[client],
                "format": self.formats[client],
                "pattern": self.patterns[client],
                "assignor": self.assignor,
                "revokes": self.chance.random() < 0.75,
                **more,
            },
        )

    def _ticks(self, client: int) -> list[Step]:
        clients = [client] if self.chance.random() < 0.6 else range(self.size)
        return [step for each in clients for step in [self.tick(each), *self._pauses()]]

    def _pauses(self) -> list[Step]:
        """Returns the pause after a request that may start the resolution of a pattern."""
        return [Step(IDLE_CLIENT, "pause", {"ms": RESOLVED_MS})] if self.with_patterns else []

    def _leave(self, client: int) -> list[Step]:
        return [
            Step(
                client,
                "leave",
                {
                    "group": self.group,
                    "member": CLIENT_IDS[client],
                    "kind": self.kinds[client],
                    "instance": self.instances[client],
                    "temporary": self.chance.random() < 0.5,
                },
            )
        ]

    def _switch(self, client: int) -> list[Step]:
        """Restarts a member, possibly with the other protocol. It leaves first, unless it crashes."""
        left = self._leave(client) if self.apart or self.chance.random() < 0.7 else []
        self.kinds[client] = self.chance.choice(self.possible)
        return [*left, self.tick(client)]

    def _change(self, client: int) -> list[Step]:
        """Changes a member's subscription or its protocols."""
        if self.chance.random() < 0.6 and not self.apart:
            self.names[client] = self._names()
            self.patterns[client] = self._pattern()
        else:
            self.protocols[client] = self._protocols()
        return [self.tick(client, full=True), *self._pauses()]

    def _commit(self, client: int) -> list[Step]:
        arguments = {
            "group": self.group,
            "member": CLIENT_IDS[client],
            "kind": self.kinds[client],
            "topic": self.chance.choice(self.topics),
            "delta": self.chance.choices([0, -1, 1], [8, 2, 1])[0],
            "instance": self.instances[client],
            "version": self.chance.randrange(2, 11),
        }
        return [Step(client, "commit", arguments)]

    def _fetch(self, client: int) -> list[Step]:
        arguments = {"group": self.group, "topics": None, "stable": False, "version": 8, "member": None, "delta": 0}
        return [Step(client, "fetch_offsets", arguments)]

    def _describe(self, client: int) -> list[Step]:
        call = self.chance.choice(["describe", "describe_consumer"])
        return [Step(client, call, {"groups": [self.group], "version": 5 if call == "describe" else 1})]

    def _topic(self, client: int) -> list[Step]:
        name = self.topics[1]
        rows = [(name, self.chance.choice([3, 4] if self.assignor == "range" else [4]), None)]
        if self.chance.random() < 0.5:
            return [
                Step(
                    client,
                    "partitions",
                    {"rows": rows, "check": False, "version": 3},
                )
            ]
        if self.chance.random() < 0.5:
            return [Step(client, "delete_topic", {"names": [name], "by_id": False, "version": 6})]
        return [Step(client, "create_topic", {"name": name, "partitions": 2})]
