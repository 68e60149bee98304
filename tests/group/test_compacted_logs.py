"""A compacted log of `__consumer_offsets` gives the same groups and offsets as the whole log.

Compaction keeps the last record of each key below a batch, and may drop tombstones. It keeps every record from that
batch on. It never compacts records of open transactions. The replay of a group must therefore accept records that are
missing, such as the former assignment of a member, and must give the same state for each such log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from kcore.group.apis.consumer_group_describe import ConsumerGroupDescribeApi
from kcore.group.apis.describe_groups import DescribeGroupsApi
from kcore.group.apis.list_groups import ListGroupsApi
from kcore.group.apis.streams_group_describe import StreamsGroupDescribeApi
from kcore.group.consumer.group import ConsumerGroup
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kcore_ext.batch import BatchBuilder, build_control_batch, iter_records, parse_header
from tests.group.consumer.members import GROUP, Member, World
from tests.group.context import GroupContext
from tests.group.migration.test_model import Roll
from tests.group.offsets.world import OffsetsContext
from tests.group.streams.test_model import Model as StreamsModel

CUTS = 6
"""The number of compactions of one log, each at a random batch."""

COMMIT = 1
"""The type in the key of a marker that commits a transaction."""


class Batch(NamedTuple):
    """A batch of the log.

    Attributes:
        producer_id: the producer of a transaction; -1 for other batches.
        marker: True for a marker that commits, False for one that aborts, None for a batch with data.
        timestamp_ms: the timestamp of the first record.
        records: keys and values, in order; None is the value of a tombstone.
    """

    producer_id: int
    marker: bool | None
    timestamp_ms: int
    records: Sequence[tuple[bytes, bytes | None]]

    def encoded(self) -> bytearray:
        """Returns the batch as it is appended to a log."""
        if self.marker is not None:
            values = {"producer_id": self.producer_id, "producer_epoch": 0, "timestamp_ms": self.timestamp_ms}
            return bytearray(build_control_batch(int(self.marker), 0, **values))
        size_bytes = sum(100 + len(key) + len(value or b"") for key, value in self.records) + 100
        is_transactional = self.producer_id >= 0
        builder = BatchBuilder(
            size_bytes,
            base_timestamp_ms=self.timestamp_ms,
            producer_id=self.producer_id,
            producer_epoch=0 if is_transactional else -1,
            transactional=is_transactional,
        )
        for key, value in self.records:
            assert builder.append(self.timestamp_ms, key, value)
        return bytearray(builder.build())


def batches_of(world: GroupContext) -> list[Batch]:
    """Returns the log of a node with one partition of `__consumer_offsets`."""
    found = []
    for _, data in world.log().batches(start=0):
        header = parse_header(data)
        records = [(bytes(record.key or b""), record.value) for record in iter_records(data)]
        marker = records[0][0][3] == COMMIT if header.is_control else None
        found.append(Batch(header.producer_id, marker, header.base_timestamp_ms, records))
    return found


def fates(batches: Sequence[Batch]) -> list[bool | None]:
    """Returns True for each batch whose records count, False for an aborted one, None for an open transaction."""
    result: list[bool | None] = [
        True if batch.producer_id < 0 or batch.marker is not None else None for batch in batches
    ]
    for index, batch in enumerate(batches):
        if batch.marker is not None:
            for earlier in range(index):
                if result[earlier] is None and batches[earlier].producer_id == batch.producer_id:
                    result[earlier] = batch.marker
    return result


def compacted(batches: Sequence[Batch], end: int, drops_tombstones: bool) -> list[Batch]:
    """Compacts the batches before the index `end`, or before an earlier one that is not in an open transaction."""
    while None in fates(batches[:end]):
        end -= 1
    cleaned = [batch for batch, fate in zip(batches[:end], fates(batches[:end]), strict=True) if fate]
    last = {
        key: (index, number)
        for index, batch in enumerate(cleaned)
        if batch.marker is None
        for number, (key, _) in enumerate(batch.records)
    }
    kept = []
    for index, batch in enumerate(cleaned):
        if batch.marker is None:
            records = [
                (key, value)
                for number, (key, value) in enumerate(batch.records)
                if last[key] == (index, number) and not (value is None and drops_tombstones)
            ]
            batch = batch._replace(records=records)  # noqa: PLW2901
        if batch.records:
            kept.append(batch)
    return [*kept, *batches[end:]]


def load(source: GroupContext, batches: Sequence[Batch], make: Callable[[], GroupContext]) -> GroupContext:
    """Returns a new node that has loaded the batches, with the topics and the time of `source`."""
    world = make()
    for batch in batches:
        world.log().append(batch.encoded(), world.shard.leader_epoch)
    world.engine.commit()
    world.topics, world.metadata_version = source.topics, source.metadata_version
    world.clock.advance(source.clock.monotonic_ms() - world.clock.monotonic_ms())
    world.restart()
    return world


def groups_of(world: GroupContext, names: Sequence[str]) -> list[Any]:
    """Returns the descriptions of all groups, and the details of consumer groups that no response shows."""
    shards = world.shards
    responses = [
        world.call(ListGroupsApi(shards), ListGroupsRequest()),
        world.call(DescribeGroupsApi(shards), DescribeGroupsRequest(groups=names)),
        world.call(ConsumerGroupDescribeApi(shards, world.consumer), ConsumerGroupDescribeRequest(group_ids=names)),
        world.call(StreamsGroupDescribeApi(shards, world.streams), StreamsGroupDescribeRequest(group_ids=names)),
    ]
    for response in responses:
        for group in response.groups:
            if hasattr(group, "members"):
                group.members = sorted(group.members, key=lambda member: str(member.member_id))
    return [*responses, *map(details, world.machine.groups.values())]


def details(group: Any) -> Any:
    """Returns the state of a consumer group that no response shows; None for other groups."""
    if not isinstance(group, ConsumerGroup):
        return None
    members = {name: (member.current, member.metadata) for name, member in sorted(group.members.items())}
    return group.metadata_hash, group.assigned_at_ms, group.static_members, group.subscriptions.resolved, members


def assert_compactions_load_alike(
    source: GroupContext, make: Callable[[], GroupContext], view: Callable[[Any], Any], seed: int
) -> None:
    """Loads the log of `source` and compactions of it at random batches. All must give the same state."""
    batches = batches_of(source)
    whole = view(load(source, batches, make))
    rng = random.Random(seed)
    for drops_tombstones in (False, True) * (CUTS // 2):
        end = rng.randint(1, len(batches))
        loaded = load(source, compacted(batches, end, drops_tombstones), make)
        assert view(loaded) == whole, (end, len(batches), drops_tombstones)


@pytest.mark.parametrize("seed", range(6))
def test_groups_that_migrate(seed: int) -> None:
    """Members of both protocols join and leave one group, which changes its type."""
    roll = Roll(seed)
    for classic in (True, False, True, False):
        roll.start(classic)
        roll.run(25)
        if roll.rng.random() < 0.4:
            roll.stop(roll.clients[0])
        assert_compactions_load_alike(
            roll.world, lambda: Roll(seed).world, lambda world: groups_of(world, [GROUP]), seed
        )


class Members:
    """Random changes of a consumer group: members join, leave, return, and change all parts of their metadata."""

    SUBSCRIPTIONS = (
        {"subscribed_topic_names": ["a"]},
        {"subscribed_topic_names": ["a", "b"]},
        {"subscribed_topic_names": []},
        {"subscribed_topic_regex": "a|c.*"},
        {"subscribed_topic_regex": ".*"},
        {"subscribed_topic_regex": ""},
    )

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World({"a": 3, "b": 2})
        self.members: list[Member] = []

    def step(self) -> None:
        rng = self.rng
        action = rng.choice([self.join, self.change, self.ack, self.ack, self.ack, self.leave, self.wait])
        if self.members or action == self.join:
            action()
        if rng.random() < 0.05:
            self.world.make_topic(rng.choice("abcd"), rng.randint(3, 5))

    def join(self) -> None:
        number = self.rng.randrange(5)
        member = Member(self.world, f"m{number}-{self.rng.randrange(2)}", f"i{number}" if number < 2 else None)
        subscription = {"subscribed_topic_names": [], **self.rng.choice(self.SUBSCRIPTIONS)}
        if not member.send(rebalance_timeout_ms=9_000, topic_partitions=[], **subscription).error_code:
            self.members.append(member)

    def change(self) -> None:
        changes = ({"rack_id": f"r{self.rng.randrange(3)}"}, {"server_assignor": "range"}, *self.SUBSCRIPTIONS)
        self.rng.choice(self.members).send(**self.rng.choice(changes))

    def ack(self) -> None:
        self.rng.choice(self.members).ack()

    def leave(self) -> None:
        member = self.rng.choice(self.members)
        member.leave(-2 if member.instance_id is not None and self.rng.random() < 0.7 else -1)
        self.members.remove(member)

    def wait(self) -> None:
        self.world.advance(self.rng.choice([100, 5_000, 30_000]))


@pytest.mark.parametrize("seed", range(8))
def test_consumer_groups(seed: int) -> None:
    members = Members(seed)
    for _ in range(2):
        for _ in range(60):
            members.step()
        assert_compactions_load_alike(members.world, World, lambda world: groups_of(world, [GROUP]), seed)


@pytest.mark.parametrize("seed", range(4))
def test_streams_groups(seed: int) -> None:
    model = StreamsModel(seed)
    for _ in range(3):
        for _ in range(40):
            model.step()
        assert_compactions_load_alike(
            model.world, lambda: StreamsModel(seed).world, lambda world: groups_of(world, ["app"]), seed
        )


@pytest.mark.parametrize("seed", range(8))
def test_offsets_and_transactions(seed: int) -> None:
    """Commits, commits in transactions, markers and deletions. Transactions of two producers overlap."""
    rng = random.Random(seed)
    world = OffsetsContext(topics={"t": 2, "u": 2})
    for _ in range(60):
        offsets = {rng.choice("tu"): {rng.randrange(2): rng.randrange(1_000)}}
        step = rng.randrange(6)
        if step < 2:
            world.commit_offsets(rng.choice("gh"), offsets)
        elif step < 4:
            world.commit_in_transaction(rng.choice("gh"), offsets, producer_id=rng.choice([7, 8]))
        elif step == 4:
            world.end_transaction(rng.choice([7, 8]), commit=rng.random() < 0.6)
        else:
            world.delete_offsets(rng.choice("gh"), {topic: list(parts) for topic, parts in offsets.items()})
    assert_compactions_load_alike(world, OffsetsContext, offsets_of, seed)


def offsets_of(world: OffsetsContext) -> Any:
    """Returns the committed and pending offsets, without their positions in the log, which `load` changes."""
    state = world.state()
    committed = {
        (group, topic, partition): (offset.committed_offset, offset.metadata, offset.commit_timestamp_ms)
        for group, topics in state["offsets"].items()
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }
    return state["groups"], committed, {key: offset.committed_offset for key, offset in state["pending"].items()}
