"""Random requests of consumers that commit offsets within transactions, for the comparison with Apache Kafka.

Members of classic groups and of KIP-848 commit with their id and epoch, or with those of an earlier time, while groups
rebalance, transactions end, time out or are fenced, and topics and groups disappear.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from kcore.protocol.messages import add_partitions_to_txn, txn_offset_commit
from tools.differential.admin import Admin
from tools.differential.groups import Groups
from tools.differential.program import Call, Step, learned_epoch
from tools.differential.side import CLIENT_IDS, Side
from tools.differential.topics import CREATE
from tools.differential.transactions import Transactions, producer_of

PARTITIONS = 2


def _commit(
    side: Side, tid: str, delta: int, group: str, member: str | None, offsets: list[tuple[str, int, int]], **more: Any
) -> tuple[Any, int]:
    """Builds a TxnOffsetCommit, from version 3 on with the id and epoch of a member."""
    version = more["version"]
    producer_id, epoch = producer_of(side, tid, delta)
    member_id, generation = ("", -1) if member is None else learned_epoch(side, f"{group}/{member}", more["age"])
    topics: dict[str, list[Any]] = {}
    for topic, partition, offset in offsets:
        row = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=more["leader_epoch"] if version >= 2 else -1,
            committed_metadata=more["metadata"],
        )
        topics.setdefault(topic, []).append(row)
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=tid,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        **(
            {"generation_id": generation, "member_id": member_id, "group_instance_id": more["instance"]}
            if version >= 3
            else {}
        ),
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=n, partitions=p) for n, p in topics.items()],
    ), version


def _verify(side: Side, rows: list[tuple[str, int, bool, dict[str, list[int]]]], version: int) -> tuple[Any, int]:
    """Builds an AddPartitionsToTxn of a broker, which adds or verifies partitions of several transactions."""
    transactions = []
    for tid, delta, verify, topics in rows:
        producer_id, epoch = producer_of(side, tid, delta)
        named = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=n, partitions=p) for n, p in topics.items()]
        transactions.append(
            add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=tid, producer_id=producer_id, producer_epoch=epoch, verify_only=verify, topics=named
            )
        )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=transactions), version


class ExactlyOnce:
    """Lists of random requests that use two transactional ids, two topics and a group with up to three members."""

    NAME = "exactly_once"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "delete_topic": Admin.CALLS["delete"],
        "txn_commit": Call(_commit),
        "verify": Call(_verify),
        **{name: Transactions.CALLS[name] for name in ("init", "add_partitions", "add_offsets", "end", "describe")},
        **{
            name: Groups.CALLS[name]
            for name in (
                "join", "sync", "leave", "beat", "commit", "fetch_offsets", "delete_offsets", "delete",
                "describe_consumer",
            )
        },
    }  # fmt: skip

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two topics and 15 to 45 random requests."""
        topics = [f"{name}-a", f"{name}-b"]
        steps = [Step(0, "create_topic", {"name": topic, "partitions": PARTITIONS}) for topic in topics]
        drawer = _Drawer(chance, name, topics)
        steps += [drawer.step() for _ in range(chance.randrange(15, 45))]
        return steps


class _Drawer:
    def __init__(self, chance: random.Random, name: str, topics: list[str]) -> None:
        self.chance = chance
        self.group = f"{name}-g"
        self.tids = [f"{name}-t", f"{name}-u"]
        self.topics = topics
        self.new_protocol = chance.random() < 0.5  # transactions as of KIP-890, or as before
        self.kind = chance.choice(["classic", "consumer", "none"])
        self.static = chance.random() < 0.3
        self.weights = {
            self._init: 5, self._add_offsets: 4, self._txn_commit: 12, self._end: 7, self._verify: 2, self._fetch: 8,
            self._commit: 4, self._delete_offsets: 2, self._delete: 1, self._delete_topic: 0.4, self._describe: 1,
        }  # fmt: skip
        if self.kind == "classic":
            self.weights |= {self._join: 5, self._sync: 4, self._leave: 1}
        elif self.kind == "consumer":
            self.weights |= {self._beat: 8}

    def step(self) -> Step:
        client = self.chance.randrange(3)
        (kind,) = self.chance.choices(list(self.weights), list(self.weights.values()))
        call, arguments = kind(CLIENT_IDS[client], f"i{client % 2}" if self.static else None)
        return Step(client, call, arguments)

    def _member(self, member: str) -> str:
        return f"consumer-{member}" if self.kind == "consumer" else member

    def _tid(self) -> str:
        return self.chance.choices(self.tids, [8, 3])[0]

    def _delta(self) -> int:
        return self.chance.choices([0, -1, 1], [90, 6, 4])[0]

    def _offsets(self) -> list[tuple[str, int, int]]:
        topic = self.chance.choice(self.topics) if self.chance.random() < 0.96 else f"{self.topics[0]}-none"
        numbers = self.chance.sample(range(PARTITIONS), self.chance.choice([1, 1, 2]))
        return [(topic, number, self.chance.randrange(-1, 90)) for number in numbers]

    def _init(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        tid = self._tid()
        return "init", {
            "tid": tid, "timeout_ms": 60_000, "known": self.chance.choice(["none", "none", tid]),
            "delta": self._delta(), "version": self.chance.randrange(6), "known_as": tid,
        }  # fmt: skip

    def _add_offsets(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        version = 4 if self.new_protocol else self.chance.randrange(4)
        return "add_offsets", {"tid": self._tid(), "delta": self._delta(), "group": self.group, "version": version}

    def _txn_commit(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        mixed = self.chance.random() < 0.08
        return "txn_commit", {
            "tid": self._tid(),
            "delta": self._delta(),
            "group": self.group,
            "member": self._member(member) if self.kind != "none" and self.chance.random() < 0.7 else None,
            "age": self.chance.choices([0, -1, 1], [80, 14, 6])[0],
            "instance": instance if self.chance.random() < 0.9 else "other",
            "offsets": self._offsets(),
            "leader_epoch": self.chance.choice([-1, 0, 5]),
            "metadata": self.chance.choices(["", "note", None, "x" * 4_100], [6, 3, 1, 1])[0],
            "version": 5 if self.new_protocol != mixed else self.chance.randrange(5),
        }

    def _end(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        mixed = self.chance.random() < 0.08
        version = 5 if self.new_protocol != mixed else self.chance.randrange(5)
        committed = self.chance.random() < 0.6
        return "end", {"tid": self._tid(), "delta": self._delta(), "committed": committed, "version": version}

    def _verify(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        tids = self.chance.sample(self.tids, self.chance.choice([1, 1, 2]))
        rows = []
        for tid in tids:
            topic = self.chance.choice([*self.topics, self.topics[0] + "-none"])
            rows.append((tid, self._delta(), self.chance.random() < 0.7, {topic: [self.chance.randrange(3)]}))
        return "verify", {"rows": rows, "version": self.chance.choice([4, 5])}

    def _fetch(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        named = {self.chance.choice(self.topics): [0, 1]}
        return "fetch_offsets", {
            "group": self.group,
            "topics": named if self.chance.random() < 0.4 else None,
            "stable": self.chance.random() < 0.6,
            "version": self.chance.randrange(2, 11),
            "member": self._member(member) if self.kind == "consumer" and self.chance.random() < 0.3 else None,
            "delta": 0,
        }

    def _commit(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        return "commit", {
            "group": self.group,
            "member": self._member(member) if self.kind != "none" else None,
            "delta": self.chance.choice([0, 0, 0, -1]),
            "offsets": [(topic, number, offset, "") for topic, number, offset in self._offsets()],
            "version": self.chance.randrange(2, 11),
        }

    def _delete_offsets(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        return "delete_offsets", {"group": self.group, "topics": {self.chance.choice(self.topics): [0, 1]}}

    def _delete(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        return "delete", {"groups": [self.group], "version": 2}

    def _delete_topic(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        return "delete_topic", {"names": [self.topics[1]], "by_id": False, "version": 6}

    def _describe(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        if self.chance.random() < 0.5:
            return "describe", {"tids": self.tids}
        return "describe_consumer", {"groups": [self.group], "version": 1}

    def _join(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        return "join", {
            "group": self.group, "member": member, "known": self.chance.random() < 0.7, "instance": instance,
            "protocols": [("range", b"\0\1\0\0\0\1\0\4none" + bytes(8))], "version": self.chance.choice([3, 4, 5, 9]),
        }  # fmt: skip

    def _sync(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        empty = b"\0\1" + bytes(4) + b"\xff\xff\xff\xff"
        return "sync", {
            "group": self.group, "member": member, "delta": 0, "version": 3, "instance": instance,
            "assignments": dict.fromkeys(CLIENT_IDS[:3], empty),
        }  # fmt: skip

    def _leave(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        return "leave", {"group": self.group, "members": [(member, instance)], "version": 4}

    def _beat(self, member: str, instance: str | None) -> tuple[str, dict[str, Any]]:
        epoch = self.chance.choices(["join", "0", "leave", "leave-static"], [30, 50, 6, 4])[0]
        joins = epoch == "join"
        return "beat", {
            "group": self.group, "member": self._member(member), "epoch": epoch,
            "names": self.topics[:1] if joins else None, "owned": "empty" if joins else "all", "version": 1,
            "instance": instance if joins else None,
        }  # fmt: skip
