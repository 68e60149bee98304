"""Random traffic of all kinds through a real engine, and the engine's own state to compare a rebuild with."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.states import GroupState
from kcore.log import LmdbLogEngine
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription
from kcore.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kcore.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kcore.protocol.messages.read_share_group_state import (
    PartitionData as ReadPartition,
)
from kcore.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.protocol.messages.write_share_group_state import (
    PartitionData as WritePartition,
)
from kcore.protocol.messages.write_share_group_state import StateBatch, WriteShareGroupStateRequest, WriteStateData
from kcore.runtime import Pending
from kcore.share.state import SharePartitionKey, key_of
from kcore.spark.events.sources import ServerSource
from kcore.spark.state.tables import group_shard_rows, share_state_rows, transaction_rows
from kcore_ext.share.states import ShareState
from tests import kit
from tests.nodes import node_of
from tests.spark.streams_traffic import StreamsTraffic
from tests.transaction.world import Identity, World

STATE_TABLES = {
    "groups",
    "members",
    "assignments",
    "regexes",
    "offsets",
    "transactions",
    "share_topics",
    "share_states",
}
HISTORY = {"kcore.snapshot.min.bytes": 2**60, "log.cleaner.backoff.ms": 2**60}
"""Settings that keep the whole history: they prevent snapshots and compaction."""
QUICK_ENDS = {
    "offsets.retention.minutes": 600,
    "transactional.id.expiration.ms": 7_200_000,
    "group.consumer.assignment.interval.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.num.standby.replicas": 1,
    "group.share.assignment.interval.ms": 0,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
}

PartitionTuple = tuple[str, int]
Rows = list[tuple[str, str]]


class PartitionSnapshot(NamedTuple):
    """The state of a coordinator partition at one moment.

    Attributes:
        end: its end offset.
        rows: the engine's state.
        unwritten: classic groups during a rebalance; joins are not written, so the log has the previous generation.
    """

    end: int
    rows: Rows
    unwritten: frozenset[str]


NodeSnapshot = dict[PartitionTuple, PartitionSnapshot]
UNWRITTEN = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


class FolderWorld(World):
    """A node on a data folder, which real clients may have used before.

    Args:
        folder: the data folder.
        wall_ms: the time at the start; not before the newest timestamp in the folder.
        settings: by Kafka's names.
        topics: topics to create, name -> partition count.
    """

    SETTINGS: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: Path, wall_ms: int, settings: dict[str, Any], topics: dict[str, int]) -> None:
        super().__init__(settings, topics, log=LmdbLogEngine(folder, "os"), wall_ms=wall_ms)


class Sender:
    """The engine of a world, as a target of requests."""

    def __init__(self, world: World) -> None:
        self._world = world

    def send(self, request: Any, version: int | None = None) -> Any:
        response = self._world.start(request, type(request).MAX_VERSION if version is None else version)
        self._world.settle()
        if isinstance(response, Pending) and not response.done:
            self._world.advance(1)  # a first join waits for the end of its round
            self._world.settle()
        return response.response if isinstance(response, Pending) else response


def shown(rows: Any, unwritten: Collection[str] = ()) -> Rows:
    """Returns rows in a comparable order and form.

    Leaves out `unwritten` groups with their members, because the log does not contain joins.
    """
    found = []
    for table, row in rows:
        if table in STATE_TABLES and not (table in ("groups", "members") and row["group_id"] in unwritten):
            row.pop("coordinator_partition", None)
            found.append((table, repr(sorted(row.items()))))
    return sorted(found)


def live(world: World) -> NodeSnapshot:
    """Returns the state of every coordinator partition from the engine's own state machines."""
    engine = world.engine
    ends = {part[:2]: part.end or 0 for part in ServerSource(node_of(Sender(world))).parts()}
    found = {}
    for shard in engine.groups:
        topic_partition = ("__consumer_offsets", shard.index)
        unwritten = frozenset(
            group_id
            for group_id, group in shard.machine.groups.items()
            if isinstance(group, ClassicGroup) and group.state in UNWRITTEN
        )
        found[topic_partition] = PartitionSnapshot(
            ends[topic_partition], shown(group_shard_rows(shard.machine), unwritten), unwritten
        )
    assert engine.transactions.shards is not None
    for transactions in engine.transactions.shards:
        topic_partition = ("__transaction_state", transactions.index)
        found[topic_partition] = PartitionSnapshot(
            ends[topic_partition], shown(transaction_rows(transactions.machine)), frozenset()
        )
    for shares in engine.share.shards or ():
        topic_partition = ("__share_group_state", shares.index)
        found[topic_partition] = PartitionSnapshot(
            ends[topic_partition], shown(share_state_rows(shares.machine)), frozenset()
        )
    return found


class ConsumerMember:
    """A member of a consumer group (KIP-848) that acknowledges its assignment."""

    def __init__(self, group: str, member_id: str, instance_id: str | None, body: dict[str, Any]) -> None:
        self.group = group
        self.member_id = member_id
        self.instance_id = instance_id
        self.body = body
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    def beat(self, sender: Sender, epoch: int | None = None) -> bool:
        """Sends a heartbeat. Returns False if the group no longer knows the member."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=self.epoch if epoch is None else epoch,
            topic_partitions=self.owned,
            **(self.body if self.epoch == 0 and epoch is None else {}),
        )
        response = sender.send(request)
        if response.error_code:
            return False
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = [
                TopicPartitions(topic_id=topic.topic_id, partitions=list(topic.partitions))
                for topic in response.assignment.topic_partitions
            ]
        return True


class Traffic:
    """A generator of commits, deletions, groups of all protocols, migrations, transactions, share states and expiries.

    Args:
        world: the node, which must have the topics of `TOPICS`.
        chance: the random number generator.
        groups: the number of groups that commit.
        burst: the maximum number of partitions in a commit.
    """

    TOPICS = {"t": 50, "u": 20}  # noqa: RUF012

    def __init__(self, world: World, chance: random.Random, groups: int = 40, burst: int = 50) -> None:
        self._world = world
        self._sender = Sender(world)
        self._chance = chance
        self._groups = groups
        self._burst = burst
        self._open: dict[str, Identity] = {}
        self._members: list[ConsumerMember] = []
        self._sharing: dict[str, tuple[str, int]] = {}  # member of a share group -> its group and epoch
        self._made = 0
        streams = self._streams = StreamsTraffic(self._sender.send, chance)
        self._steps: dict[Callable[[], None], int] = {
            self._commit: 40,
            self._simple_classic: 3,
            self._classic: 3,
            self._consumer_join: 4,
            self._consumer_beat: 25,
            self._consumer_leave: 2,
            self._move: 1,
            streams.join: 4,
            streams.beat: 15,
            streams.leave: 1,
            self._share_join: 3,
            self._share_beat: 10,
            self._share_leave: 1,
            self._share_offsets: 2,
            self._share_state: 12,
            self._begin: 5,
            self._pending: 10,
            self._end: 6,
            self._delete_group: 1,
            self._delete_offsets: 2,
            self._topic_comes_and_goes: 1,
            self._time: 1,
        }

    def everything(self) -> None:
        """Runs each kind of action a few times, then advances the time until all state expires."""
        for step in [*self._steps] * 4:
            self._world.advance(10)
            step()
        self._world.settle()
        for _ in range(4):
            self._world.advance(4 * 3_600_000)
            self._world.settle()
        self._open.clear()
        self._members.clear()
        self._streams.clear()
        self._sharing.clear()

    def step(self) -> None:
        """Runs one action."""
        self._world.advance(self._chance.randrange(1, 50))
        self._chance.choices(list(self._steps), list(self._steps.values()))[0]()

    def _group(self) -> str:
        return f"g{self._chance.randrange(self._groups)}"

    def _offsets(self, topic: str, partitions: int) -> dict[tuple[str, int], int]:
        count = self._chance.randrange(1, self._burst + 1)
        return {(topic, self._chance.randrange(partitions)): self._chance.randrange(1_000) for _ in range(count)}

    def _commit(self) -> None:
        topic, partitions = self._chance.choice(list(self.TOPICS.items()))
        remark = self._chance.choice(["", "", "a remark"])
        request = kit.commit(self._group(), self._offsets(topic, partitions), metadata=remark)
        self._sender.send(request, kit.COMMIT_VERSION)

    def _new(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    # ---- classic groups

    def _simple_classic(self) -> None:
        session_ms = self._chance.choice([6_000, 600_000])  # the first ones expire at the next jump of time
        kit.stable_alone(self._sender, self._new("work"), session_ms=session_ms)

    def _classic(self) -> None:
        """Runs two members, one of which leaves. The other one may commit."""
        group = self._new("pair")
        first, generation = kit.stable_alone(self._sender, group, session_ms=600_000)
        second = kit.new_member(self._sender, group, session_ms=600_000)
        world = self._world
        joining = [world.start(kit.join(group, member_id, session_ms=600_000), 9) for member_id in (second, first)]
        world.settle()
        responses = [pending.response if isinstance(pending, Pending) else pending for pending in joining]
        assert [response.error_code for response in responses] == [0, 0]
        generation = responses[1].generation_id
        syncs = [
            world.start(kit.sync(group, member_id, generation, given), 5)
            for member_id, given in ((second, None), (first, {first: b"some", second: b"others"}))
        ]
        world.settle()
        assert [(s.response if isinstance(s, Pending) else s).error_code for s in syncs] == [0, 0]
        if self._chance.random() < 0.5:
            self._sender.send(kit.commit(group, {("t", 0): 7}, first, generation), kit.COMMIT_VERSION)
        if self._chance.random() < 0.5:
            self._sender.send(kit.leave(group, second))

    # ---- consumer groups

    def _consumer_join(self) -> None:
        body: dict[str, Any] = {"rebalance_timeout_ms": 60_000}
        if self._chance.random() < 0.3:
            body |= {
                "subscribed_topic_names": [],
                "subscribed_topic_regex": self._chance.choice(["t", "[tu]", "u|x.*"]),
            }
        else:
            body["subscribed_topic_names"] = self._chance.choice([["t"], ["u"], ["t", "u"]])
        body["server_assignor"] = self._chance.choice([None, "uniform", "range"])
        group = f"modern{self._chance.randrange(6)}"
        instance_id = self._new("i") if self._chance.random() < 0.3 else None
        member = ConsumerMember(group, self._new("member"), instance_id, body)
        if member.beat(self._sender):
            self._members.append(member)

    def _consumer_beat(self) -> None:
        if self._members:
            group = self._chance.choice(self._members).group
            for member in [one for one in self._members if one.group == group]:
                if not member.beat(self._sender):
                    self._members.remove(member)

    def _consumer_leave(self) -> None:
        if self._members:
            member = self._members.pop(self._chance.randrange(len(self._members)))
            away = member.instance_id is not None and self._chance.random() < 0.5
            member.beat(self._sender, -2 if away else -1)

    def _move(self) -> None:
        """Runs a classic group. A member with the protocol of KIP-848 joins this group, and leaves it again."""
        group = self._new("moved")
        subscription = ConsumerProtocolSubscription(topics=["t"]).encode_versioned(1)
        options = {"protocol_type": PROTOCOL_TYPE, "protocol": "range", "metadata": subscription}
        member = kit.new_member(self._sender, group, session_ms=600_000, **options)
        joined = self._sender.send(kit.join(group, member, session_ms=600_000, **options))
        assignments = {member: b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"}
        given = kit.sync(
            group, member, joined.generation_id, assignments, protocol_type=PROTOCOL_TYPE, protocol="range"
        )
        assert self._sender.send(given).error_code == 0
        other = ConsumerMember(
            group, self._new("member"), None, {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
        )
        assert other.beat(self._sender)
        if self._chance.random() < 0.5:
            other.beat(self._sender, -1)
        else:
            self._members.append(other)

    # ---- share groups

    def _share_group(self) -> str:
        return f"queue{self._chance.randrange(4)}"

    def _share_join(self) -> None:
        self._share_send(self._new("sharer"), self._share_group(), 0, self._chance.choice([["t"], ["u"], ["t", "u"]]))

    def _share_send(self, member_id: str, group: str, epoch: int, topics: list[str] | None = None) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        response = self._sender.send(request)
        if response.error_code or epoch < 0:
            self._sharing.pop(member_id, None)
        else:
            self._sharing[member_id] = (group, response.member_epoch)

    def _share_beat(self) -> None:
        group = self._share_group()
        for member_id, (of, epoch) in list(self._sharing.items()):
            if of == group:
                self._share_send(member_id, group, epoch)

    def _share_leave(self) -> None:
        if self._sharing:
            member_id = self._chance.choice(list(self._sharing))
            self._share_send(member_id, self._sharing[member_id][0], -1)

    def _share_offsets(self) -> None:
        """Alters or deletes the offsets of a group. If the group has members, the request is refused."""
        group = f"idle{self._chance.randrange(3)}" if self._chance.random() < 0.7 else self._share_group()
        if self._chance.random() < 0.3:
            deleted = DeleteShareGroupOffsetsRequestTopic(topic_name="t")
            self._sender.send(DeleteShareGroupOffsetsRequest(group_id=group, topics=[deleted]))
            return
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=self._chance.randrange(50))
            for index in self._chance.sample(range(8), 3)
        ]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)
        self._sender.send(AlterShareGroupOffsetsRequest(group_id=group, topics=[topic]))

    def _share_states(self) -> dict[SharePartitionKey, ShareState]:
        shards = self._world.engine.share.shards
        return {key_of(state): state for shard in shards or () for state in shard.machine.states.values()}

    def _share_state(self) -> None:
        """Reads or writes delivery states as a partition leader does."""
        info = self._world.engine.topics.by_name("t")
        assert info is not None
        group = self._chance.choice([self._share_group(), f"idle{self._chance.randrange(3)}"])
        partition = self._chance.randrange(8)
        if self._chance.random() < 0.2:
            read = ReadPartition(partition=partition, leader_epoch=self._chance.randrange(4))
            topics = [ReadStateData(topic_id=info.topic_id, partitions=[read])]
            self._sender.send(ReadShareGroupStateRequest(group_id=group, topics=topics))
            return
        state = self._share_states().get(SharePartitionKey(group, info.topic_id, partition))
        start_offset = max(0, -1 if state is None else state.start_offset)
        counts = {
            offset: -1 if of_batch in (2, 4) else count
            for first, last, of_batch, count in (() if state is None else state.batches)
            for offset in range(first, last + 1)
        }
        batches = []
        first = start_offset + self._chance.randrange(60)
        for offset in range(first, first + self._chance.randrange(20)):
            if counts.get(offset, 0) >= 0:  # otherwise its delivery is complete
                to, count = self._chance.choice([0, 2, 4]), counts.get(offset, 0) + 1
                batches.append(
                    StateBatch(first_offset=offset, last_offset=offset, delivery_state=to, delivery_count=count)
                )
        written = WritePartition(
            partition=partition,
            state_epoch=-1,
            leader_epoch=-1,
            start_offset=self._chance.choice([-1, start_offset + self._chance.randrange(4)]),
            delivery_complete_count=self._chance.randrange(-1, 9),
            state_batches=batches,
        )
        topic = WriteStateData(topic_id=info.topic_id, partitions=[written])
        self._sender.send(WriteShareGroupStateRequest(group_id=group, topics=[topic]))

    # ---- transactions

    def _begin(self) -> None:
        tid = f"tx{self._chance.randrange(12)}"
        if tid not in self._open:
            timeout_ms = self._chance.choice([60_000, 600_000])  # the first ones end by themselves at the next jump
            self._open[tid] = self._world.begin(tid, timeout_ms)

    def _pending(self) -> None:
        if self._open:
            tid = self._chance.choice(sorted(self._open))
            group = self._group()
            if self._world.add_offsets(tid, self._open[tid], group):
                del self._open[tid]
                return
            for _ in range(self._chance.randrange(1, 6)):
                offset, index = self._chance.randrange(1_000), self._chance.randrange(4)
                self._world.commit_offset(tid, self._open[tid], group, offset, index=index)

    def _end(self) -> None:
        if self._open:
            tid = self._chance.choice(sorted(self._open))
            self._world.end(tid, self._open.pop(tid), self._chance.random() < 0.6)

    # ---- deletions and time

    def _delete_group(self) -> None:
        named = [f"work{self._chance.randrange(1, 50)}", f"idle{self._chance.randrange(3)}", self._share_group()]
        self._sender.send(DeleteGroupsRequest(groups_names=[self._group(), self._chance.choice(named)]))

    def _delete_offsets(self) -> None:
        parts = [OffsetDeleteRequestPartition(partition_index=index) for index in range(5)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=parts)]
        self._sender.send(OffsetDeleteRequest(group_id=self._group(), topics=topics))

    def _topic_comes_and_goes(self) -> None:
        topic = self._new("x")
        self._world.create_topic(topic, 10)
        for _ in range(3):
            self._sender.send(kit.commit(self._group(), self._offsets(topic, 10)), kit.COMMIT_VERSION)
        self._world.delete_topic(topic)

    def _time(self) -> None:
        """Sometimes advances the time, so that members, transactions, offsets and ids expire."""
        self._world.advance(self._chance.choice([10_000, 120_000, 4 * 3_600_000]))
        self._world.settle()
