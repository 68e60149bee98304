"""Reads the memory of the running engine: members and epochs of groups, and a summary of its durable state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.engine import Engine
from kcore.protocol.topic_partition import TopicPartition
from kcore.runtime import ShardState
from kcore.share.state import key_of

if TYPE_CHECKING:
    from tools.simulate.world import World


class Observer:
    """A read-only view of the state that the engine has in memory."""

    def __init__(self, world: World) -> None:
        self._world = world

    def group(self, group_id: str) -> Any:
        """Returns a group's object. Returns None if there is no group, the node is down, or its shard is not loaded."""
        node = self._world.node
        if not node.running:
            return None
        for shard in node.engine.groups:
            if shard.state is ShardState.ACTIVE and group_id in shard.machine.groups:
                return shard.machine.groups[group_id]
        return None

    def is_consumer_group(self, group_id: str) -> bool:
        """Returns True for a loaded consumer group, which may have classic members."""
        return hasattr(self.group(group_id), "group_epoch")

    def topic_id(self, name: str) -> bytes | None:
        """Returns the id of a topic, or None."""
        topic = self._world.node.engine.topics.by_name(name)
        return None if topic is None else topic.topic_id

    def members(self, group_id: str) -> list[tuple[str, int]]:
        """Returns (member id, epoch) of each member of a group. The epoch of a classic group is its generation."""
        group = self.group(group_id)
        if group is None:
            return []
        members_ = []
        for member_id, member in group.members.items():
            current = getattr(member, "current", None)
            epoch = group.generation_id if current is None else current.member_epoch
            members_.append((member_id, int(epoch)))
        return sorted(members_)

    def accepts(self, group_id: str, member_id: str, epoch: int) -> bool:
        """Returns True if the coordinator would accept a commit of a member in an epoch.

        In a consumer group, older epochs count as accepted, because a member has an older epoch if its last response
        was lost.
        """
        group = self.group(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None:
            return False
        if hasattr(member, "current"):
            return bool(0 < epoch <= member.current.member_epoch)
        return bool(group.generation_id == epoch)

    def partitions_of(self, producer_id: int, epoch: int) -> list[TopicPartition]:
        """Returns the partitions in which a producer id has durable records with a later epoch than `epoch`."""
        if not self.at_rest():
            return []
        partitions = []
        for partition in self._world.node.engine.partitions:
            entry = partition.producers.entries.get(producer_id)
            if entry is not None and entry.epoch > epoch and not partition.internal:
                partitions.append(TopicPartition(partition.topic, partition.index))
        return sorted(partitions)

    def is_member(self, group_id: str, request: Any) -> bool:
        """Returns True if the coordinator would accept the member and epoch of an OffsetCommit request."""
        return self.accepts(group_id, request.member_id, request.generation_id_or_member_epoch)

    def loads(self) -> tuple[int, int] | None:
        """Returns numbers that change with each load of the group shards, or None if a shard is not loaded."""
        node = self._world.node
        if not node.running or any(shard.state is not ShardState.ACTIVE for shard in node.engine.groups):
            return None
        return node.starts, sum(shard.generation for shard in node.engine.groups)

    def at_rest(self) -> bool:
        """Returns True if memory should match the log: everything is loaded, and nothing is uncommitted."""
        node = self._world.node
        if not node.running:
            return False
        engine = node.engine
        pipeline = engine.pipeline
        if pipeline.dirty or pipeline.committing or engine.loading or engine.slices or engine.pipeline.uncertain:
            return False
        if any(partition.recovering for partition in engine.partitions):
            return False  # transaction markers wait for this partition
        shards = ([engine.control.shard], engine.groups, engine.transactions.shards, engine.share.shards)
        return all(shard.state is ShardState.ACTIVE for owned in shards for shard in owned or ())


def summary(engine: Engine) -> dict[str, Any]:
    """Returns the part of an engine's durable state that must be equal in two engines on one log."""
    state: dict[str, Any] = {}
    for topic in engine.topics.all():
        state[f"topic {topic.name}"] = (topic.topic_id, topic.partitions)
        for index in range(topic.partitions):
            partition = engine.partitions.get(topic.name, index)
            if partition is not None:
                log = partition.log
                state[f"partition {topic.name}-{index}"] = (
                    log.log_start_offset,
                    log.high_watermark,
                    partition.last_stable_offset,
                )
    for shard in engine.groups:
        machine = shard.machine
        for group_id in machine.offsets.groups():
            state[f"offsets {group_id}"] = {
                (topic, number): value.committed_offset
                for topic, numbers in machine.offsets.topics(group_id).items()
                for number, value in numbers.items()
            }
        for group_id, group in machine.groups.items():
            if hasattr(group, "group_epoch"):
                known: dict[str, Any] = getattr(group, "members", {})
                members = {
                    name: member.current.member_epoch for name, member in known.items() if hasattr(member, "current")
                }
                state[f"group {group_id}"] = (group.group_epoch, members)
    for transactions in engine.transactions.shards or ():
        for name, value in transactions.machine.transactions.items():
            state[f"transaction {name}"] = (value.producer_id, value.producer_epoch, str(value.state))
    for share in engine.share.shards or ():
        for delivery in share.machine.states.values():
            state[f"share {key_of(delivery)}"] = (delivery.state_epoch, delivery.start_offset, list(delivery.batches))
    return state
