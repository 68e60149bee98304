"""Tests of reconciliation: the steps in which a member of a consumer group reaches its target assignment.

The tests check the table of steps, KIP-848's worked example of a rebalance, and random groups.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.errors import KafkaError
from kcore.group.consumer.assignment import NEW_MEMBER, CurrentAssignment, Owned, Target
from kcore.group.consumer.reconcile import reconcile
from kcore.group.consumer.states import RECONCILIATION, EpochState, MemberState, Step
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import TopicPartitions
from kcore_ext.group.consumer_assignment import PartitionOwners
from tests.group.consumer.members import Owned as Reported
from tests.group.consumer.members import reported

FOO, BAR = b"f" * 16, b"b" * 16
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


@pytest.mark.parametrize("situation", RECONCILIATION, ids=str)
def test_every_combination_has_its_step(situation: EpochState) -> None:
    """As in Kafka 4.3, members that own their target keep their partitions. Members with revoked partitions wait until
    the client has released them. All others move towards their target.
    """
    state, at_target, holds, changed = situation
    if state is UNRELEASED or (state is STABLE and not at_target) or (state is UNREVOKED and not holds):
        expected = Step.NEXT
    elif state is UNKNOWN:
        expected = Step.FENCE if holds else Step.NEXT_IN_TARGET_EPOCH
    else:
        expected = Step.SHRINK if changed else Step.KEEP
    assert RECONCILIATION[situation] is expected


class Table:
    """Members of a group without a shard: their assignments, their targets, and a map of the partitions' owners."""

    def __init__(self, epoch: int, **members: dict[bytes, list[int]]) -> None:
        self.owners = PartitionOwners()
        self.members: dict[str, CurrentAssignment] = {}
        self.targets: dict[str, Target] = {}
        for name, owned in members.items():
            self.members[name] = CurrentAssignment(
                epoch, epoch - 1, STABLE, {t: dict.fromkeys(parts, epoch) for t, parts in owned.items()}
            )
            self.owners.replace(None, self.members[name])

    def beat(self, name: str, epoch: int, owned: Reported | None = None) -> tuple[str, int, dict[bytes, list[int]]]:
        before = self.members.get(name, NEW_MEMBER)
        after = reconcile(
            before,
            epoch,
            self.targets[name],
            owners=self.owners,
            reported=None if owned is None else reported(owned),
            subscribed=lambda _: True,
            has_topics=True,
            changed=False,
        )
        if after is not before:
            self.owners.replace(before, after)
            self.members[name] = after
        return after.state.name, after.member_epoch, {t: sorted(p) for t, p in after.assigned.items()}


def test_partitions_move_to_a_third_member_one_heartbeat_at_a_time() -> None:
    """Partitions of three topics move to a third member. Members do not wait for each other."""
    table = Table(10, m1={FOO: [0, 1, 2], BAR: [0, 1]}, m2={FOO: [3, 4, 5], BAR: [2]})
    table.targets = {
        "m1": {FOO: (0, 1), BAR: (0,)},
        "m2": {FOO: (2, 3), BAR: (2,)},
        "m3": {FOO: (4, 5), BAR: (1,)},
    }
    steps = [
        table.beat("m3", 11, {}),
        table.beat("m1", 11),
        table.beat("m2", 11),
        table.beat("m3", 11),
        table.beat("m1", 11, {FOO: [0, 1], BAR: [0]}),
        table.beat("m2", 11),
        table.beat("m3", 11),
        table.beat("m2", 11, {FOO: [3], BAR: [2]}),
        table.beat("m3", 11, {BAR: [1]}),
    ]
    assert steps == [
        ("UNRELEASED", 11, {}),
        ("UNREVOKED", 10, {FOO: [0, 1], BAR: [0]}),
        ("UNREVOKED", 10, {FOO: [3], BAR: [2]}),
        ("UNRELEASED", 11, {}),
        ("STABLE", 11, {FOO: [0, 1], BAR: [0]}),
        ("UNREVOKED", 10, {FOO: [3], BAR: [2]}),
        ("UNRELEASED", 11, {BAR: [1]}),
        ("STABLE", 11, {FOO: [2, 3], BAR: [2]}),
        ("STABLE", 11, {FOO: [4, 5], BAR: [1]}),
    ]


def test_a_member_with_a_state_of_a_newer_version_is_fenced_until_it_owns_nothing() -> None:
    """The log has a member state that this version of kcore does not know (UNKNOWN). The member is fenced until it has
    dropped all partitions. Then it gets its target, in the target's epoch.
    """
    table = Table(5, m={FOO: [0]})
    table.members["m"] = CurrentAssignment(5, 4, UNKNOWN, {FOO: {0: 5}})
    table.targets["m"] = {FOO: (0, 1)}
    for owned in (None, {FOO: [0]}):
        with pytest.raises(KafkaError) as raised:
            table.beat("m", 6, owned)
        assert raised.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert table.beat("m", 6, {}) == ("STABLE", 6, {FOO: [0, 1]})


partitions = st.frozensets(st.integers(0, 5), max_size=6)


@given(has=partitions, others=partitions, wanted=partitions, says=st.none() | partitions, step=st.integers(0, 2))
def test_a_step_assigns_only_free_partitions(
    has: frozenset[int], others: frozenset[int], wanted: frozenset[int], says: frozenset[int] | None, step: int
) -> None:
    """For any assignment, target and report, the member gets only free partitions, and keeps none that it must
    revoke.
    """
    others -= has
    before = CurrentAssignment(4, 3, STABLE, {FOO: dict.fromkeys(has, 4)} if has else {})
    owners = PartitionOwners()
    owners.replace(None, before)
    owners.replace(None, CurrentAssignment(4, 3, STABLE, {FOO: dict.fromkeys(others, 4)} if others else {}))
    after = reconcile(
        before,
        4 + step,
        {FOO: tuple(sorted(wanted))} if wanted else {},
        owners=owners,
        reported=None if says is None else [TopicPartitions(topic_id=FOO, partitions=sorted(says))],
        subscribed=lambda _: True,
        has_topics=True,
        changed=False,
    )
    assigned, revoking = set(after.assigned.get(FOO, ())), set(after.revoking.get(FOO, ()))
    if not step:
        assert after is before
        return
    assert not assigned & others
    assert assigned <= wanted
    gives_up = has - wanted
    if gives_up and (says is None or says & gives_up):
        assert (after.state, after.member_epoch, assigned, revoking) == (UNREVOKED, 4, set(has & wanted), set(gives_up))
    else:
        assert (after.member_epoch, assigned, revoking) == (4 + step, set(wanted - others), set())
        assert after.state is (UNRELEASED if wanted & others else STABLE)
    epochs = after.assigned.get(FOO, {})
    assert all(epochs[p] == (4 if p in has else 4 + step) for p in assigned)


def test_two_owners_are_refused() -> None:
    """The log is invalid if a record assigns a partition to a second member in the same or an older epoch."""
    owners = PartitionOwners()
    one: Owned = {FOO: {0: 5}}
    owners.replace(None, CurrentAssignment(5, 4, STABLE, one))
    for epoch in (4, 5):
        with pytest.raises(ValueError, match="owner in epoch 5"):
            owners.replace(None, CurrentAssignment(epoch, 3, STABLE, {FOO: {0: epoch}}))
    owners.replace(
        None, CurrentAssignment(6, 5, STABLE, {FOO: {0: 6}})
    )  # compaction removed the last record of the owner
    owners.replace(CurrentAssignment(5, 4, STABLE, one), None)
    assert owners.of(FOO) == {0: 6}
