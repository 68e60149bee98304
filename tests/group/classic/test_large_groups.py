"""Classic groups with thousands of members, protocols or topics: no step takes long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.group import metadata_bound
from kcore.group.apis import leave_group
from kcore.group.classic import protocols
from kcore.group.classic.protocols import topic_names
from kcore.group.classic.records import group_snapshot
from kcore.protocol import DecodeError
from kcore.protocol.consumer_protocol import Subscription
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from kcore.runtime.slices import Slices
from tests.group.classic.world import World


def subscription(*topics: str, user_data: bytes | None = None) -> bytes:
    return Subscription(topics=topics, user_data=user_data).encode_versioned(0)


@pytest.fixture
def world() -> World:
    return World({"kcore.max.group.metadata.bytes": 8 << 20})


def join_all(world: World, metadata: list[bytes]) -> list[str]:
    """Makes members join together, one for each subscription in `metadata`. Returns their member ids."""
    for each in metadata:
        world.join(offer=[("range", each)], version=3)
    world.context.advance(1)
    members = list(world.group().members)
    assert len(members) == len(metadata)
    return members


def count_slices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that grows by one entry each time the event loop runs a slice of work."""
    steps: list[int] = []
    step = Slices.step

    def counted(slices: Slices) -> bool:
        if slices:
            steps.append(1)
        return step(slices)

    monkeypatch.setattr(Slices, "step", counted)
    return steps


# ---- the leader


def test_after_the_leader_left_the_oldest_member_leads(world: World) -> None:
    members = join_all(world, [subscription("topic")] * 4)
    assert world.group().leader_id == members[0]
    world.leave(members[1])
    world.leave(members[0])
    assert world.group().leader_id == members[2]
    world.leave(members[2])
    world.leave(members[3])
    assert world.group().leader_id is None


def test_members_that_leave_together_do_not_search_for_a_leader_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nineteen of 20 members leave, and the group looks for its new leader only afterwards.

    With a search at each leave, 10,000 leaves would examine 50,000,000 entries of members that have already left.
    """
    members = join_all(world, [subscription("topic")] * 20)
    group = world.group()
    searches: list[int] = []
    found = type(group).leader_id.fget
    assert found is not None
    monkeypatch.setattr(
        type(group), "leader_id", property(lambda self: searches.append(1) or found(self), type(group).leader_id.fset)
    )
    for member in [group.members[member_id] for member_id in members[:19]]:
        group.remove_member(member)
    assert not searches
    assert group.leader_id == members[19]
    assert group_snapshot(group).value.leader == members[19]  # type: ignore[union-attr]


def test_a_static_member_that_returns_leads_if_it_was_the_oldest(world: World) -> None:
    """After the leader has left, the static member is the oldest member, because its new id inherits the position of
    its old id.
    """
    world.join(offer=[("range", subscription("topic"))], version=3)
    world.join(instance="one", offer=[("range", subscription("topic"))])
    world.join(offer=[("range", subscription("topic"))], version=3)
    world.context.advance(1)
    first, _, _ = world.group().members
    world.leave(first)
    world.join(instance="one", offer=[("range", subscription("topic"))])
    assert world.group().leader_id == world.group().static_members["one"]


# ---- subscriptions


def test_long_subscriptions_are_read_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one slice, the subscriptions of 40 members with 60,000 topics each would take 1,100 ms at the end of the join
    phase.
    """
    monkeypatch.setattr(protocols, "NAMES_PER_SLICE", 10)
    steps = count_slices(monkeypatch)
    metadata = [subscription(*[f"t{member}-{topic}" for topic in range(25)]) for member in range(4)]
    join_all(world, metadata)
    assert world.group().subscribed_topics == {f"t{member}-{topic}" for member in range(4) for topic in range(25)}
    assert len(steps) == 10, "100 names, 10 in the decision: 9 steps with names, and the end"


def test_topics_are_unknown_until_they_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "NAMES_PER_SLICE", 2)
    monkeypatch.setattr(world.context, "finish", lambda: None)
    join_all(world, [subscription("a", "b", "c")])
    group = world.group()
    assert group.subscribed_topics is None
    assert group.is_subscribed_to("z")
    world.context.slices.finish()
    assert group.subscribed_topics == {"a", "b", "c"}
    assert not group.is_subscribed_to("z")


def test_a_new_generation_ends_the_reading_of_an_older_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "NAMES_PER_SLICE", 2)
    monkeypatch.setattr(world.context, "finish", lambda: None)
    (member,) = join_all(world, [subscription("a", "b", "c")])
    world.join(member, offer=[("range", subscription("d", "e", "f"))], version=3)
    assert world.generation == 2
    world.context.slices.finish()
    assert world.group().subscribed_topics == {"d", "e", "f"}


def test_long_subscriptions_are_read_after_a_load(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "NAMES_PER_SLICE", 2)
    (member,) = join_all(world, [subscription("a", "b", "c")])
    world.sync(member, {member: b""})
    world.restart()
    assert world.group().subscribed_topics == {"a", "b", "c"}


def test_more_topics_than_are_remembered_count_as_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose members subscribe to more topics than the limit counts as subscribed to all topics.

    The group remembers topic names, which take more memory than the metadata that contains them.
    `kcore.max.group.metadata.bytes` limits only the metadata.
    """
    monkeypatch.setattr(protocols, "MAX_SUBSCRIBED_TOPICS", 3)
    members = join_all(world, [subscription("a", "b"), subscription("b", "c")])
    assert world.group().subscribed_topics == {"a", "b", "c"}
    world.join(members[0], offer=[("range", subscription("a", "d"))], version=3)
    world.join(members[1], offer=[("range", subscription("b", "c"))], version=3)
    assert world.group().subscribed_topics is None


@given(st.binary(max_size=40) | st.builds(subscription, st.text(max_size=3), user_data=st.binary() | st.none()))
def test_topic_names_equal_those_of_the_codec(metadata: bytes) -> None:
    try:
        expected = Subscription.decode(metadata, 0, 2).topics if metadata[:1] < b"\x80" and len(metadata) > 1 else None
    except (DecodeError, UnicodeDecodeError):
        expected = None
    try:
        names = [*topic_names(metadata)]
    except ValueError:
        assert expected is None
    else:
        assert expected is not None
        assert names == [*expected]


# ---- protocols


def test_protocols_beyond_a_few_count_their_memory(world: World) -> None:
    """From a certain number of protocols on, each further protocol of a member counts towards the memory limit of its
    group.

    Otherwise 300 members with 24,000 empty protocols each would take 700 MB, and 1,600 ms when they leave.
    """
    few = metadata_bound.FEW_PROTOCOLS
    empty = tuple((f"p{number}", b"") for number in range(few + 3))
    assert metadata_bound.protocols_bytes(empty[:few]) == 2 * few
    assert metadata_bound.protocols_bytes(empty) == 2 * len(empty) + 3 * metadata_bound.PROTOCOL_BYTES
    limit = (8 << 20) // metadata_bound.MAX_GROUP_SHARE
    most = limit // metadata_bound.PROTOCOL_BYTES
    offer = [(f"{number:04}", b"") for number in range(most + few)]
    call = world.join(offer=offer, version=3)
    assert call.response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not world.join(offer=offer[: most // 2], version=3).done


# ---- leaving


def test_many_members_leave_in_several_decisions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A LeaveGroup request of many members runs in slices, and its response lists all members.

    In a single step, 22,000 members would take 250 ms.
    """
    monkeypatch.setattr(leave_group, "FEW_MEMBERS", 2)
    world.context.slices.requests.enabled = True
    members = join_all(world, [subscription("topic")] * 5)
    steps = count_slices(monkeypatch)
    response = world.leave(*members[:2], "unknown", *members[2:])
    assert len(steps) == 4, "the first part at once; a slice for each other part, one to end the work, and one to join"
    assert [*response.members] == [
        MemberResponse(
            member_id=member_id,
            group_instance_id=None,
            error_code=ErrorCode.UNKNOWN_MEMBER_ID if member_id == "unknown" else 0,
        )
        for member_id in (*members[:2], "unknown", *members[2:])
    ]
    assert not world.group().members


def test_a_group_that_refuses_a_long_request_refuses_it_as_a_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leave_group, "FEW_MEMBERS", 2)
    world.context.unload()
    assert world.leave("a", "b", "c") == LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
