"""The rules for offsets of a classic group: commits, deletions, and the start of the retention time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kcore.group.classic.states import GroupState
from kcore.group.group import COMMIT_TIMESTAMP, ExpirationBase
from tests.group.classic.test_matrices import cells
from tests.group.classic.world import COMPLETING, DEAD, EMPTY, META, NOBODY, PREPARING, STABLE, World

COMMIT_REQUESTS: dict[str, Callable[[World], tuple[str, str | None, int]]] = {
    "anonymous": lambda w: ("", None, -1),
    "member": lambda w: (w.follower, None, w.generation),
    "member, other generation": lambda w: (w.follower, None, 99),
    "member, no generation": lambda w: (w.follower, None, -1),
    "unknown id": lambda w: (NOBODY, None, w.generation),
    "pending id": lambda w: (w.pending, None, w.generation),
    "instance of another": lambda w: (w.follower, "one", w.generation),
    "unknown instance": lambda w: (w.follower, "nine", w.generation),
    "only an instance": lambda w: ("", "one", -1),
}

COMMIT = {
    #                                   absent Empty  Preparing Completing Stable Dead
    "anonymous":                        ("-",  0,     25,       25,        25,    15),
    "member":                           ("-",  25,    0,        27,        0,     15),
    "member, other generation":         ("-",  25,    22,       22,        22,    15),
    "member, no generation":            ("-",  0,     22,       22,        22,    15),
    "unknown id":                       ("-",  25,    25,       25,        25,    15),
    "pending id":                       ("-",  25,    25,       25,        25,    15),
    "instance of another":              ("-",  25,    82,       82,        82,    15),
    "unknown instance":                 ("-",  25,    25,       25,        25,    15),
    "only an instance":                 ("-",  0,     82,       82,        82,    15),
}  # fmt: skip


@pytest.mark.parametrize(("row", "state", "expected"), cells(COMMIT))
def test_validation_of_an_offset_commit_depends_on_caller_and_state(row: str, state: GroupState, expected: int) -> None:
    """Checks the table of OffsetCommit results by caller and state."""
    world = World().build(state)
    member_id, instance_id, generation_id = COMMIT_REQUESTS[row](world)
    assert world.group().validate_offset_commit(member_id, instance_id, generation_id, 9, False) == expected


TXN_COMMIT = {
    #                                   absent Empty  Preparing Completing Stable Dead
    "anonymous":                        ("-",  0,     0,        0,         0,     15),
    "member":                           ("-",  25,    0,        0,         0,     15),
    "member, other generation":         ("-",  25,    22,       22,        22,    15),
    "unknown id":                       ("-",  25,    25,       25,        25,    15),
    "instance of another":              ("-",  25,    82,       82,        82,    15),
}  # fmt: skip


@pytest.mark.parametrize(("row", "state", "expected"), cells(TXN_COMMIT))
def test_validation_of_a_transactional_commit_depends_on_caller_and_state(
    row: str, state: GroupState, expected: int
) -> None:
    """Checks the table of TxnOffsetCommit results by caller and state. Commits without a member id are accepted, and so
    are commits in CompletingRebalance.
    """
    world = World().build(state)
    member_id, instance_id, generation_id = COMMIT_REQUESTS[row](world)
    assert world.group().validate_offset_commit(member_id, instance_id, generation_id, 5, True) == expected


@pytest.mark.parametrize("state", [PREPARING, STABLE])
def test_an_accepted_commit_re_arms_the_session(state: GroupState) -> None:
    """A member's commit re-arms its session. A commit without a member id changes nothing."""
    world = World().build(state)
    member = world.group().members[world.leader]
    world.context.advance(3000)
    world.group().offset_commit_accepted(NOBODY)
    assert member.timer.deadline_ms < world.context.now.now_ms + member.session_timeout_ms
    world.group().offset_commit_accepted(world.leader)
    assert member.timer.deadline_ms == world.context.now.now_ms + member.session_timeout_ms


@pytest.mark.parametrize(
    ("state", "protocol_type", "metadata", "code", "subscribed", "other"),
    [
        (EMPTY, "consumer", META, 0, False, False),
        (STABLE, "consumer", META, 0, True, False),
        (PREPARING, "consumer", META, 0, True, False),
        (STABLE, "consumer", b"\x00", 0, True, True),  # unknown subscriptions count as all topics
        (STABLE, "consumer", b"\xff\xff" + META[2:], 0, True, True),  # a negative version
        (STABLE, "consumer", b"\x00\x00abcd", 0, True, True),  # four letters read as a count of topics
        (STABLE, "connect", META, 68, False, False),
        (EMPTY, "connect", META, 0, False, False),
        (DEAD, "consumer", META, 69, True, False),
    ],
)
def test_offset_delete_keeps_offsets_of_subscribed_topics(
    state: GroupState, protocol_type: str, metadata: bytes, code: int, subscribed: bool, other: bool
) -> None:
    """OffsetDelete does not delete offsets of subscribed topics (KIP-496). Covers each state and protocol type of the
    group.
    """
    world = _one_member(protocol_type, metadata)
    group = world.group()
    if state is EMPTY:
        world.leave(world.leader)
    elif state is PREPARING:
        world.join(world.leader, protocol_type=protocol_type, offer=[("range", metadata)])
        world.context.advance(0)
        world.assign_id(protocol_type=protocol_type)
        world.join(world.leader, protocol_type=protocol_type, offer=[("range", metadata), ("more", b"")])
    elif state is DEAD:
        group.transition(DEAD, "the test wants it")
    assert group.state is state
    assert group.validate_offset_delete() == code
    assert (group.is_subscribed_to("topic"), group.is_subscribed_to("other")) == (subscribed, other)


def _one_member(protocol_type: str, metadata: bytes) -> World:
    world = World()
    world.leader = world.assign_id(protocol_type=protocol_type, offer=[("range", metadata)])
    world.join(world.leader, protocol_type=protocol_type, offer=[("range", metadata)])
    world.context.advance(1)
    world.sync(world.leader, {world.leader: b"x"}, protocol_type=protocol_type)
    assert world.state is STABLE
    return world


def test_retention_starts_when_the_group_became_empty_or_at_the_commit() -> None:
    """If the group had members, retention starts when it became empty, otherwise at the commit. During a rebalance no
    offset expires.
    """
    simple = World()
    group = simple.context.machine.get_or_create_group("g")
    assert group.offset_expiration_base() == COMMIT_TIMESTAMP
    emptied = World().build(EMPTY)
    emptied.context.advance(50)
    assert emptied.group().offset_expiration_base() == ExpirationBase(emptied.group().state_timestamp_ms)
    emptied.group().state_timestamp_ms = -1  # records before version 2 have no timestamp
    assert emptied.group().offset_expiration_base() == COMMIT_TIMESTAMP
    stable = World().build(STABLE)
    assert stable.group().offset_expiration_base() == ExpirationBase(None, frozenset({"topic"}))
    for state in (PREPARING, COMPLETING):
        assert World().build(state).group().offset_expiration_base() is None
    assert _one_member("connect", META).group().offset_expiration_base() is None
    assert _one_member("consumer", b"?").group().offset_expiration_base() is None
