"""Random requests of groups whose offsets expire, for the comparison with Apache Kafka.

Offsets expire after `offsets.retention.minutes`, which is one minute, or after the retention time of an OffsetCommit of
v2 to v4. Members, transactions and deletions keep or remove them meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.consumer_protocol import ConsumerProtocolSubscription
from kcore.protocol.messages import join_group, offset_commit
from tools.differential.exactly_once import ExactlyOnce
from tools.differential.groups import Groups
from tools.differential.members import Members
from tools.differential.program import Call, Step, learned_epoch
from tools.differential.side import Side
from tools.differential.streams import Streams
from tools.differential.topics import CREATE
from tools.differential.transactions import Transactions

EXPIRY_SETTINGS: Final = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "200",
    "group.consumer.session.timeout.ms": "300000",
    "group.consumer.max.session.timeout.ms": "300000",
    "group.streams.session.timeout.ms": "300000",
    "group.streams.max.session.timeout.ms": "300000",
}
"""The settings of both servers for this area. No session ends during a test program."""
SHORT_MS: Final = 950
"""The retention time in requests, in ms. It ends between two steps, which are `CHECKED_MS` apart."""
AFTER_SHORT_MS: Final = 2_200
CHECKED_MS: Final = 700
"""Time after which both servers have checked all offsets, in ms."""
HALF_MS: Final = 30_000
"""About half of `offsets.retention.minutes`, in ms."""
PARTITIONS: Final = 2
LONG_SESSION_MS: Final = 300_000


def _commit(
    side: Side, group: str, member: str | None, offsets: list[tuple[str, int]], retention_ms: int, version: int
) -> tuple[Any, int]:
    """Builds an OffsetCommit, in v2 to v4 with a retention time in ms."""
    member_id, epoch = ("", -1) if member is None else learned_epoch(side, f"{group}/{member}", 0)
    rows = [
        offset_commit.OffsetCommitRequestTopic(
            name=topic,
            topic_id=side.topic_id(topic),
            partitions=[
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=3, committed_metadata=""
                )
            ],
        )
        for topic, number in offsets
    ]
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        retention_time_ms=retention_ms if version <= 4 else -1,
        topics=rows,
    ), version


def _join(side: Side, group: str, member: str, topics: list[str], kind: str) -> tuple[Any, int]:
    """Builds a JoinGroup of v3, to which the coordinator responds at once if the group has no other member."""
    known = side.members.get(f"{group}/{member}")
    data = ConsumerProtocolSubscription(topics=topics).encode_versioned(0) if kind == "consumer" else b"x"
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=LONG_SESSION_MS,
        rebalance_timeout_ms=LONG_SESSION_MS,
        member_id=known[0] if known else "",
        protocol_type=kind,
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=data)],
    ), 3


class Expiry:
    """Lists of requests of groups of several types, with pauses after which offsets have expired."""

    NAME = "expiry"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "commit": Call(_commit),
        "join": Call(_join, Groups.CALLS["join"].learn, waits=True),
        "pause": Members.CALLS["pause"],
        "streams_beat": Streams.CALLS["beat"],
        "streams_describe": Streams.CALLS["describe"],
        **{name: Groups.CALLS[name] for name in (
            "sync", "leave", "beat", "fetch_offsets", "delete_offsets", "describe", "describe_consumer", "list",
        )},
        **{name: ExactlyOnce.CALLS[name] for name in ("txn_commit", "delete_topic")},
        **{name: Transactions.CALLS[name] for name in ("init", "end")},
    }  # fmt: skip

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two topics, and bursts of requests with pauses between them."""
        steps = [Step(0, "create_topic", {"name": f"{name}-{end}", "partitions": PARTITIONS}) for end in "ab"]
        drawer = _Drawer(chance, name)
        pauses = chance.choice(
            [
                [AFTER_SHORT_MS] * 3,
                [AFTER_SHORT_MS] * 3,
                [HALF_MS, HALF_MS + 6_000, HALF_MS + 6_000],
                [2 * HALF_MS + 4_000, AFTER_SHORT_MS, AFTER_SHORT_MS],
            ]
        )
        for pause_ms in pauses:
            for _ in range(chance.randrange(3, 9)):
                # Some actions end the retention of offsets or of the group at once. The next check must see them.
                steps += [*drawer.steps(), Step(3, "pause", {"ms": CHECKED_MS})]
            steps.append(Step(3, "pause", {"ms": pause_ms}))
            steps += drawer.shown()
        return steps


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.group = f"{name}-g"
        self.topics = [f"{name}-a", f"{name}-b"]
        self.tid = f"{name}-t"
        self.kind = chance.choice(["simple", "classic", "classic", "connect", "consumer", "consumer", "streams"])
        self.transactional = chance.random() < 0.35
        self.began = False

    def steps(self) -> list[Step]:
        """Returns the steps of one random action."""
        kinds: dict[Any, float] = {self._commit: 9, self._delete_offsets: 0.7, self._delete_topic: 0.3}
        if self.kind != "simple":
            kinds |= {self._join: 4, self._leave: 2}
        if self.transactional:
            kinds |= {self._txn_commit: 4, self._end: 2}
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        return list(kind())

    def shown(self) -> list[Step]:
        """Returns requests that show which offsets and which group remain."""
        rows: list[tuple[str, dict[str, Any]]] = [
            (
                "fetch_offsets",
                {"group": self.group, "topics": None, "stable": self.chance.random() < 0.3, "version": 7},
            ),
            ("list", {"states": [], "types": [], "version": 5}),
        ]
        if self.kind in ("classic", "connect"):
            rows.append(("describe", {"groups": [self.group], "version": 5}))
        elif self.kind == "consumer":
            rows.append(("describe_consumer", {"groups": [self.group], "version": 1}))
        elif self.kind == "streams":
            rows.append(("streams_describe", {"groups": [self.group]}))
        return [Step(2, *row) for row in rows]

    def _member(self) -> str:
        return f"{self.kind}-one" if self.kind in ("consumer", "streams") else "one"

    def _offsets(self) -> list[tuple[str, int]]:
        topics = self.chance.sample(self.topics, self.chance.choice([1, 1, 2]))
        return [(topic, self.chance.randrange(PARTITIONS)) for topic in topics]

    def _commit(self) -> list[Step]:
        version = self.chance.choice([2, 3, 4, 5, 7, 8, 9, 10])
        return [
            Step(
                0,
                "commit",
                {
                    "group": self.group,
                    "member": self._member() if self.kind != "simple" and self.chance.random() < 0.6 else None,
                    "offsets": self._offsets(),
                    "retention_ms": self.chance.choice([-1, SHORT_MS, SHORT_MS, 0, -2, 600_000]),
                    "version": version,
                },
            )
        ]

    def _join(self) -> list[Step]:
        topics = self.topics[:1] if self.chance.random() < 0.7 else self.topics[1:]
        arguments: dict[str, Any] = {"group": self.group, "member": self._member()}
        if self.kind in ("classic", "connect"):
            kind = "consumer" if self.kind == "classic" else "connect"
            synced = {"delta": 0, "assignments": {"one": b"\0\1" + bytes(8)}, "version": 3}
            joined = Step(0, "join", {**arguments, "topics": topics, "kind": kind})
            return [joined, Step(0, "sync", {**arguments, **synced})]
        epoch = "join" if self.chance.random() < 0.7 else "0"
        owned = "empty" if epoch == "join" else "none"
        if self.kind == "consumer":
            names = topics if epoch == "join" else None
            return [Step(0, "beat", {**arguments, "epoch": epoch, "names": names, "owned": owned, "version": 1})]
        topology = [(topics, [])] if epoch == "join" else None
        return [
            Step(
                0,
                "streams_beat",
                {
                    **arguments, "epoch": epoch, "topology": topology, "owned": owned,
                    "process": "p" if epoch == "join" else None,
                },
            )
        ]  # fmt: skip

    def _leave(self) -> list[Step]:
        arguments: dict[str, Any] = {"group": self.group}
        if self.kind in ("classic", "connect"):
            return [Step(0, "leave", {**arguments, "members": [("one", None)], "version": 4})]
        arguments |= {"member": self._member(), "epoch": "leave", "owned": "none"}
        if self.kind == "consumer":
            return [Step(0, "beat", {**arguments, "names": None, "version": 1})]
        return [Step(0, "streams_beat", {**arguments, "topology": None})]

    def _txn_commit(self) -> list[Step]:
        first = [] if self.began else [self._init()]
        self.began = True
        return [
            *first,
            Step(
                1,
                "txn_commit",
                {
                    "tid": self.tid, "delta": 0, "group": self.group, "member": None, "age": 0, "instance": None,
                    "offsets": [(topic, number, 4) for topic, number in self._offsets()], "leader_epoch": -1,
                    "metadata": "", "version": 5,
                },
            ),
        ]  # fmt: skip

    def _init(self) -> Step:
        return Step(
            1,
            "init",
            {
                "tid": self.tid, "timeout_ms": 600_000, "known": "none", "delta": 0, "version": 4,
                "known_as": self.tid,
            },
        )  # fmt: skip

    def _end(self) -> list[Step]:
        if not self.began:
            return []
        committed = self.chance.random() < 0.6
        return [Step(1, "end", {"tid": self.tid, "delta": 0, "committed": committed, "version": 5})]

    def _delete_offsets(self) -> list[Step]:
        return [Step(0, "delete_offsets", {"group": self.group, "topics": {self.topics[0]: [0, 1]}})]

    def _delete_topic(self) -> list[Step]:
        return [Step(0, "delete_topic", {"names": [self.topics[1]], "by_id": False, "version": 6})]
