"""Any sequence of commits, transactions, deletions, expiration, failures and restarts, compared with a small
independent model.

The model computes each result from a flat list of all logged entries, whereas the engine has nested dictionaries. Both
must agree at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kcore.group.apis.delete_groups import DeleteGroupsApi
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from tests.group.offsets.world import OffsetsContext
from tests.harness import WALL_MS

RETENTION_MS = 60 * 60_000
CHECK_MS = 10 * 60_000

GROUPS = st.sampled_from(["a", "b", "c"])
TOPICS = st.sampled_from(["t", "u"])
PARTITIONS = st.integers(0, 2)
PRODUCERS = st.sampled_from([7, 8])
OFFSETS = st.dictionaries(
    TOPICS, st.dictionaries(PARTITIONS, st.integers(0, 1 << 40), min_size=1, max_size=3), min_size=1, max_size=2
)

Where = tuple[str, str, int]


@dataclass
class Entry:
    """One entry of the model's log: an offset of a partition or, if `offset` is None, the removal of the offset."""

    where: Where
    offset: int | None
    producer_id: int = -1
    committed_ms: int = 0
    expires_ms: int | None = None
    settled: bool | None = None  # the marker of its transaction: True for commit, False for abort


@dataclass
class Model:
    """A simple model of committed offsets: the entries of the log, and the ids of the existing groups."""

    log: list[Entry] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)

    def materialised(self) -> dict[Where, Entry]:
        """Returns the committed entry of each partition: the last entry that is not transactional or whose transaction
        is committed. A later removal deletes it.
        """
        found: dict[Where, Entry] = {}
        for fact in self.log:
            if fact.offset is None:
                found.pop(fact.where, None)
            elif fact.producer_id < 0 or fact.settled:
                found[fact.where] = fact
        return found

    def pending(self) -> set[tuple[int, Where]]:
        """Returns the partitions that have an offset in an open transaction, unless a later removal deleted it."""
        found: set[tuple[int, Where]] = set()
        for fact in self.log:
            if fact.offset is None:
                found = {(producer, where) for producer, where in found if where != fact.where}
            elif fact.producer_id >= 0 and fact.settled is None:
                found.add((fact.producer_id, fact.where))
        return found

    def remove(self, where: Where) -> None:
        # The removal also deletes the pending offsets of the partition, before either kind of marker.
        for fact in self.log:
            if fact.where == where and fact.producer_id >= 0 and fact.settled is None:
                fact.settled = False
        self.log.append(Entry(where, None))

    def settle(self, producer_id: int, committed: bool) -> None:
        for fact in self.log:
            if fact.producer_id == producer_id and fact.settled is None:
                fact.settled = committed

    def expire(self, now_ms: int) -> None:
        pending_keys = {where for _, where in self.pending()}
        for where, fact in self.materialised().items():
            due_ms = fact.committed_ms + RETENTION_MS if fact.expires_ms is None else fact.expires_ms
            if now_ms >= due_ms and where not in pending_keys:
                self.remove(where)
        used = {where[0] for where in [*self.materialised(), *(where for _, where in self.pending())]}
        self.groups &= used


class OffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        settings_ = {"offsets.retention.minutes": 60, "group.initial.rebalance.delay.ms": 0}
        self.context = OffsetsContext(settings_, {"t": 3, "u": 3})
        self.model = Model()
        self.next_look_ms = CHECK_MS

    @property
    def now_ms(self) -> int:
        return WALL_MS + self.context.clock.monotonic_ms()

    @rule(group=GROUPS, offsets=OFFSETS, retention_ms=st.sampled_from([-1, 0, 20 * 60_000]))
    def commit(self, group: str, offsets: dict[str, dict[int, int]], retention_ms: int) -> None:
        assert set(self.context.commit_offsets(group, offsets, version=4, retention_ms=retention_ms)) == {0}
        self.model.groups.add(group)
        for topic, partitions in offsets.items():
            for partition, offset in partitions.items():
                expires_ms = None if retention_ms < 0 else self.now_ms + retention_ms
                fact = Entry((group, topic, partition), offset, -1, self.now_ms, expires_ms)
                self.model.log.append(fact)

    @rule(group=GROUPS, offsets=OFFSETS)
    def commit_that_fails(self, group: str, offsets: dict[str, dict[int, int]]) -> None:
        self.context.fail_next_commit()
        assert set(self.context.commit_offsets(group, offsets)) == {16}
        self._reloaded()

    @rule(group=GROUPS, offsets=OFFSETS, producer_id=PRODUCERS)
    def commit_in_transaction(self, group: str, offsets: dict[str, dict[int, int]], producer_id: int) -> None:
        assert set(self.context.commit_in_transaction(group, offsets, producer_id=producer_id)) == {0}
        self.model.groups.add(group)
        for topic, partitions in offsets.items():
            for partition, offset in partitions.items():
                self.model.log.append(Entry((group, topic, partition), offset, producer_id, self.now_ms))

    @rule(producer_id=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.context.end_transaction(producer_id, committed)
        self.model.settle(producer_id, committed)

    @rule(group=GROUPS, topic=TOPICS, partitions=st.lists(PARTITIONS, min_size=1, max_size=3))
    def delete_offsets(self, group: str, topic: str, partitions: list[int]) -> None:
        response = self.context.delete_offsets(group, {topic: partitions})
        if group not in self.model.groups:
            assert response == 69
            return
        assert response == {topic: [(partition, 0) for partition in partitions]}
        for partition in partitions:
            self.model.remove((group, topic, partition))

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        (result,) = self.context.call(DeleteGroupsApi(self.context.shards), request).results
        assert result.error_code == (0 if group in self.model.groups else 69)
        for where in [*self.model.materialised(), *(where for _, where in self.model.pending())]:
            if where[0] == group:
                self.model.remove(where)
        self.model.groups.discard(group)

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.context.delete_topic(topic)
        self.context.topics.add(topic, 3)  # with the same id again; earlier offsets are deleted nevertheless
        for where in [*self.model.materialised(), *(where for _, where in self.model.pending())]:
            if where[1] == topic:
                self.model.remove(where)

    @rule(minutes=st.integers(1, 45))
    def time_passes(self, minutes: int) -> None:
        for _ in range(minutes):
            self.context.advance(60_000)
            if self.context.clock.monotonic_ms() >= self.next_look_ms:
                self.model.expire(self.now_ms)
                self.next_look_ms += CHECK_MS

    @rule()
    def restart(self) -> None:
        self.context.restart()
        self._reloaded()

    def _reloaded(self) -> None:
        """Sets the time of the next expiration check after a reload, and checks that the offsets are unchanged."""
        self.next_look_ms = self.context.clock.monotonic_ms() + CHECK_MS
        self.same_offsets()

    @invariant()
    def same_offsets(self) -> None:
        expected = {where: fact.offset for where, fact in self.model.materialised().items()}
        pending_keys = {where for _, where in self.model.pending()}
        found = {}
        for group in ("a", "b", "c"):
            stable = self.context.fetch(group, {topic: [0, 1, 2] for topic in ("t", "u")}, stable=True)
            for topic, partitions in self.context.fetch(group, None).items():
                for partition, (offset, *_) in partitions.items():
                    found[group, topic, partition] = offset
            for topic, partitions in stable.items():
                for partition, (_, _, _, code) in partitions.items():
                    assert (code == 88) == ((group, topic, partition) in pending_keys)
        assert found == expected

    @invariant()
    def same_groups_and_counts(self) -> None:
        machine = self.context.machine
        assert set(machine.groups) == self.model.groups
        assert machine.offsets.offset_count == len(self.model.materialised())
        pending_keys = {(p, where[0], where[1], where[2]) for p, where in self.model.pending()}
        assert set(self.context.state()["pending"]) == pending_keys

    def teardown(self) -> None:
        self.context.assert_restart_changes_nothing()


TestOffsets = OffsetsMachine.TestCase
TestOffsets.settings = settings(max_examples=30, stateful_step_count=25, deadline=None, print_blob=True)
