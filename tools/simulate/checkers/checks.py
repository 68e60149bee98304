"""The checkers that run during a simulation: observations of clients, ownership of partitions, and rules for the node's
memory.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from kcore.engine import Engine
from kcore.log.interface import PartitionKey
from kcore.protocol.topic_partition import TopicPartition
from tools.simulate.batches import decode
from tools.simulate.checkers.failure import SimulationFailure
from tools.simulate.checkers.logged import LoggedErrors
from tools.simulate.checkers.observer import summary
from tools.simulate.clients.member import Member
from tools.simulate.clients.streams import StreamsMember
from tools.simulate.history import ACKNOWLEDGED, REFUSED

if TYPE_CHECKING:
    from tools.simulate.world import World


class Checks:
    """The checks of one simulation.

    Attributes:
        counts: the number of checks by checker.
        repeating: the client that sends requests without a pause, or None.
        logged: the errors that kcore has logged.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._history = world.history
        self._choice = random.Random(f"{world.plan.seed}/checks")
        self._values: dict[tuple[TopicPartition, int], bytes | None] = {}
        self._epochs: dict[str, int] = {}
        self._ends: dict[PartitionKey, tuple[int, int]] = {}
        self.counts: dict[str, int] = {}
        self.repeating: str | None = None
        self.logged = LoggedErrors()

    def require(self, condition: bool, checker: str, message: str) -> None:
        """Raises SimulationFailure unless the condition holds."""
        self.counts[checker] = self.counts.get(checker, 0) + 1
        if not condition:
            raise SimulationFailure(checker, message)

    # ---- observations of clients

    def saw_record(self, partition: TopicPartition, offset: int, value: bytes | None, committed: bool) -> None:
        """Checks a record that a client has read."""
        topic = self._world.plan.topics.get(partition.topic)
        if value is None and topic is not None and topic.compacted:
            return  # a tombstone, which has no name
        key = partition, offset
        first = self._values.setdefault(key, value)
        self.require(first == value, "durability", f"{partition}@{offset} was {first!r} and is {value!r}")
        write = self._history.writes.get(value or b"")
        self.require(write is not None, "durability", f"{partition}@{offset} is {value!r}, which no client has sent")
        assert write is not None, "checked above"
        self.require(write.partition == partition, "durability", f"{value!r} is in {partition}")
        self.require(write.result != REFUSED, "refused writes", f"{value!r} was refused and is in {partition}")
        transaction = write.transaction
        if committed and transaction is not None:
            self.require(
                transaction.commit_sent and transaction.result != "aborted",
                "read committed",
                f"{value!r} of transaction {transaction.name} was read before its commit",
            )
            self._history.committed_reads.append((partition, offset, value or b""))

    def saw_end(self, partition: TopicPartition, high_watermark: int, sent_ms: int) -> None:
        """Checks that a partition's end in a response is above all records acknowledged before the request."""
        if partition.topic not in self._world.plan.topics:
            return
        end = self._history.known_end(partition, sent_ms)
        self.require(
            high_watermark >= end,
            "stale reads",
            f"{partition} ends at {high_watermark}; acknowledged: below {end}",
        )

    def saw_committed(self, group: str, partition: TopicPartition, offset: int, sent_ms: int) -> None:
        """Checks a committed offset that a client has fetched: an overwritten or refused offset must not appear."""
        if partition.topic not in self._world.plan.topics:
            return  # offsets end with their topic, which the administrator deletes and creates again
        commits = self._history.offsets.get((group, partition), [])
        floor_ms = max(
            (each.sent_ms for each in commits if each.result == ACKNOWLEDGED and each.done_ms <= sent_ms), default=-1
        )
        valid = {each.offset for each in commits if each.result != REFUSED and each.done_ms >= floor_ms}
        if floor_ms < 0:
            valid.add(-1)
        self.require(
            offset in valid,
            "committed offsets",
            f"{group} {partition}: {offset} was fetched; possible: {sorted(valid)[-5:]}",
        )

    def saw_delivery(self, group: str, partition: TopicPartition, offset: int, count: int, sent_ms: int) -> None:
        """Checks a record that a share group has delivered."""
        record = self._history.share(group, partition, offset)
        record.acquired += 1
        self.require(
            not 0 <= record.accepted_ms < sent_ms,
            "share records",
            f"{group} delivers {partition}@{offset} again, which was accepted at {record.accepted_ms}",
        )
        limit = self._world.delivery_limit
        self.require(1 <= count <= limit, "share records", f"{partition}@{offset} has delivery count {count}")
        if count >= limit:
            record.rejected = True  # archived after this delivery, unless it is accepted

    # ---- regular checks

    def regular(self) -> None:
        """Runs the cheap checks. The simulation calls this method periodically."""
        self.require(self.repeating is None, "pauses", f"{self.repeating} repeats requests without a pause")
        self.logs()
        self._ownership()
        if self._world.node.running:
            self._positions()
            self._group_epochs()

    def logs(self) -> None:
        """Checks that a fault explains every exception that kcore has logged."""
        self.require(self.logged.first is None, "exceptions", str(self.logged.first))

    def _ownership(self) -> None:
        """Checks that no partition has two owners that the coordinator would both accept."""
        owners: dict[tuple[str, TopicPartition], Member | StreamsMember] = {}
        observer = self._world.observer
        for client in self._world.clients.values():
            if not isinstance(client, (Member, StreamsMember)) or not client.alive or client.closed:
                continue
            group = client.options["group"]
            if isinstance(client, Member) and client.skipped_epochs and observer.is_consumer_group(group):
                continue
            for partition in client.owned:
                if isinstance(client, Member) and partition.topic not in self._world.plan.topics:
                    continue  # the topic's name may have another id by now
                other = owners.setdefault((group, partition), client)
                claimants = () if other is client else (client, other)
                valid = [each.name for each in claimants if observer.accepts(group, each.member_id, each.epoch)]
                self.require(len(valid) < 2, "ownership", f"{group} {partition} belongs to {valid}")

    def _positions(self) -> None:
        """Checks that log start, last stable offset and high watermark are in order, and that the last two never
        decrease.
        """
        engine = self._world.node.engine
        for partition in engine.partitions:
            log = partition.log
            name = TopicPartition(partition.topic, partition.index)
            start, end = log.log_start_offset, log.high_watermark
            stable = partition.last_stable_offset
            self.require(start <= end, "offsets", f"{name} starts at {start} and ends at {end}")
            self.require(stable <= end, "offsets", f"{name} is stable up to {stable} and ends at {end}")
            known = self._ends.get(log.key, (0, 0))
            self.require(
                start >= known[0] and end >= known[1], "offsets", f"{name} went back from {known} to {(start, end)}"
            )
            self._ends[log.key] = start, end
            topic = self._world.plan.topics.get(name.topic)
            if topic is not None and topic.retention_ms is not None:
                self._retained(name, known[0], start, topic.retention_ms)
            elif topic is not None:
                below = self._history.deleted_below.get(name, 0)
                self.require(start <= below, "deletion", f"{name} starts at {start}; deleted: below {below}")

    def _retained(self, partition: TopicPartition, before: int, start: int, retention_ms: int) -> None:
        """Checks the age of the records that retention has deleted since the last check."""
        if before == start:
            return
        for write in self._history.writes.values():
            if write.partition == partition and before <= write.offset < start:
                age_ms = self._world.node.clock.latest_ms - write.timestamp_ms
                self.require(age_ms >= retention_ms, "retention", f"{write.value!r} was deleted {age_ms} ms old")

    def _group_epochs(self) -> None:
        """Checks that the durable epoch of a consumer group never decreases."""
        if not self._world.observer.at_rest():
            return
        for group_id in (*self._world.plan.groups, *self._world.plan.streams_groups):
            group = self._world.observer.group(group_id)
            epoch = getattr(group, "group_epoch", None)
            if epoch is not None:
                known = self._epochs.get(group_id, 0)
                self.require(
                    epoch >= known or self._was_removed(group_id),
                    "epochs",
                    f"{group_id} went back from epoch {known} to {epoch}",
                )
                self._epochs[group_id] = epoch

    def _was_removed(self, group_id: str) -> bool:
        """Returns True if the group may have been removed from the log, so that its epochs may have started again.

        This is the case if the log has a tombstone of the group, or if records were deleted or compacted.
        """
        log = self._world.store.copy()
        try:
            for key in log.partitions():
                partition = log.get(key)
                if partition is None or key.topic_id != self._world.observer.topic_id("__consumer_offsets"):
                    continue
                if partition.log_start_offset or partition.cleaned_to:
                    return True
                for _, batch in partition.batches():
                    if any(each.value is None and _names_group(each.key, group_id) for each in decode(bytes(batch))):
                        return True
        finally:
            log.close()
        return False

    # ---- replay

    def replay(self) -> None:
        """Checks that a second engine on a copy of the log has the same state as the running engine."""
        world = self._world
        if not world.observer.at_rest():
            return
        expected = summary(world.node.engine)
        log = world.store.copy()
        uuids = random.Random(0)
        try:
            engine = Engine(log, world.node.engine.config, world.node.clock, lambda: uuids.randbytes(16))
            rebuilt = summary(engine)
        finally:
            log.close()
        differences = [
            f"{key}: memory {expected.get(key)!r}, log {rebuilt.get(key)!r}"
            for key in sorted(expected.keys() | rebuilt.keys())
            if expected.get(key) != rebuilt.get(key)
        ]
        self.require(not differences, "replay", "; ".join(differences[:3]))

    # ---- responses

    def unanswered(self, client: str, request: Any) -> None:
        """Reports a request that got no response although no fault disturbed it."""
        self.require(False, "responses", f"{client} got no response to {type(request).__name__}")


def _names_group(key: bytes | None, group_id: str) -> bool:
    """Returns True for a key of `__consumer_offsets` whose only field is the id of the group."""
    name = group_id.encode()
    return key is not None and len(key) == 4 + len(name) and key[2:] == len(name).to_bytes(2, "big") + name
