"""Compares the compiled assignment steps of members, and the compiled table of partition owners, with their reference
implementation.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.group.consumer.assignment import CurrentAssignment, Owned, Target, heartbeat_assignment
from kcore.group.consumer.states import STABLE, UNREVOKED
from kcore.protocol.messages.consumer_group_heartbeat import Assignment, TopicPartitions
from kcore_ext.assign.model import Topics, sorted_keys, uuid_key
from kcore_ext.group.consumer_assignment import PartitionOwners, SubscribedTopics, next_partitions, with_granted
from tests.reference import consumer_assignment as reference

TOPICS = [bytes([number]) * 16 for number in range(6)]
SOME = (0, 1)
targets = st.dictionaries(
    st.sampled_from(TOPICS), st.one_of(st.just(SOME), st.sets(st.integers(0, 3), min_size=1).map(sorted).map(tuple))
)
steps = st.lists(
    st.tuples(st.sampled_from("ab"), targets, st.sets(st.sampled_from(TOPICS)), st.booleans(), st.integers(0, 1)),
    max_size=30,
)


class Members:
    """Two members. Both implementations compute each change of their assignments."""

    def __init__(self) -> None:
        self.owners, self.expected = PartitionOwners(), reference.PartitionOwners()
        self.current = {"a": CurrentAssignment(), "b": CurrentAssignment()}
        self.epoch = 1

    def step(self, member: str, target: Target, hidden: set[bytes], leaves: bool, raises: int) -> tuple[Any, Any]:
        """Moves a member towards a target, or removes it.

        Returns:
            The result of the step and the owners of all topics, as computed by the compiled code and by the reference.
        """
        self.epoch += raises
        before = self.current[member]

        def subscribed(topic_id: bytes) -> bool:
            return topic_id not in hidden

        arguments = (before.assigned, before.revoking, target, self.epoch)
        found = next_partitions(*arguments, self.owners, subscribed)
        expected = reference.next_partitions(*arguments, self.expected, subscribed)
        # Now, because `with_granted` may change the kept partitions.
        results = [([listed(part) for part in each[:3]], each[3]) for each in (found, expected)]
        kept, revoking, granted, _ = found
        if revoking:
            after = CurrentAssignment(before.member_epoch, before.member_epoch, UNREVOKED, kept, revoking)
        else:
            assigned = with_granted(kept, granted)
            after = CurrentAssignment(self.epoch, before.member_epoch, STABLE, assigned)
        self.owners.replace(before, None if leaves else after)
        self.expected.replace(before, None if leaves else after)
        self.current[member] = CurrentAssignment() if leaves else after
        owners = [[each.of(topic_id) for topic_id in TOPICS] for each in (self.owners, self.expected)]
        return (results[0], owners[0]), (results[1], owners[1])


def listed(owned: Owned) -> list[tuple[bytes, list[tuple[int, int]]]]:
    """Returns partitions in the order that responses and records have."""
    return [(topic_id, list(partitions.items())) for topic_id, partitions in owned.items()]


@given(steps)
def test_the_steps_and_owners_equal_the_reference_implementation(
    history: list[tuple[str, Target, set[bytes], bool, int]],
) -> None:
    members = Members()
    for step in history:
        found, expected = members.step(*step)
        assert found == expected


def test_a_partition_never_gets_a_second_owner_in_the_same_epoch() -> None:
    """Assigning a partition to a second member in the same epoch raises an error.

    Topics with equal partitions share one map of owners. A change for one topic must not change the others.
    """
    owners = PartitionOwners()
    _, _, granted, waits = next_partitions({}, {}, dict.fromkeys(TOPICS, SOME), 5, owners, lambda _: True)
    assert not waits
    first = CurrentAssignment(5, 4, STABLE, granted)
    owners.replace(None, first)
    with pytest.raises(ValueError, match="has an owner in epoch 5"):
        owners.replace(None, CurrentAssignment(5, 4, STABLE, {TOPICS[3]: {1: 5}}))
    owners.replace(None, CurrentAssignment(6, 5, STABLE, {TOPICS[2]: {1: 6}, TOPICS[4]: {7: 6}}))
    assert owners.of(TOPICS[2]) == {0: 5, 1: 6}
    assert owners.of(TOPICS[4]) == {0: 5, 1: 5, 7: 6}
    assert owners.of(TOPICS[1]) == owners.of(TOPICS[3]) == {0: 5, 1: 5}
    owners.replace(first, None)
    assert [owners.of(topic_id) for topic_id in TOPICS] == [{}, {}, {1: 6}, {}, {7: 6}, {}]


def test_a_topic_is_subscribed_if_it_exists_and_the_member_names_it() -> None:
    names = {TOPICS[0]: "named", TOPICS[1]: "other"}

    def by_id(topic_id: bytes) -> object:
        return SimpleNamespace(name=names[topic_id]) if topic_id in names else None

    subscribed = SubscribedTopics(by_id, frozenset({"named", "absent"}))
    assert [subscribed(topic_id) for topic_id in TOPICS[:3]] == [True, False, False]
    known = SubscribedTopics(by_id, frozenset({"named"}), Topics({TOPICS[2]: 1}))
    assert [known(topic_id) for topic_id in TOPICS[:3]] == [True, False, True]


def test_the_assignment_of_a_response_has_every_partition() -> None:
    owned = {TOPICS[1]: {2: 5, 0: 4}, TOPICS[0]: {1: 5}}
    expected = [
        TopicPartitions(topic_id=TOPICS[1], partitions=[2, 0]),
        TopicPartitions(topic_id=TOPICS[0], partitions=[1]),
    ]
    assert heartbeat_assignment(owned) == Assignment(topic_partitions=expected)


@given(st.lists(st.binary(min_size=16, max_size=16), unique=True))
def test_topic_ids_are_sorted_as_signed_halves(ids: list[bytes]) -> None:
    assert sorted_keys(ids) == sorted(ids, key=uuid_key)


@pytest.mark.parametrize(
    ("keys", "error"), [([b"1" * 15], ValueError), (["a", b"1" * 16], TypeError), ([1], TypeError)]
)
def test_other_keys_of_topics_are_refused(keys: list[object], error: type[Exception]) -> None:
    with pytest.raises(error):
        sorted_keys(keys)  # type: ignore[arg-type]
