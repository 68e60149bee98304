"""The limit on the number of distinct topics to which the members of a consumer group may subscribe by name.

Without it, 40 heartbeats of 700 KB could make a group with 800,000 absent topics. Each later join of any member would
block the event loop for half a second.
"""

from __future__ import annotations

from kcore.protocol.error_codes import ErrorCode
from tests.group.consumer.members import Member, World

LIMIT = 2_000


def world() -> World:
    return World({"a": 4}, kcore_max_request_elements=LIMIT // 2)


def names(first: int, count: int) -> list[str]:
    return [f"absent-{number}" for number in range(first, first + count)]


def join(target: World, member_id: str, topics: list[str]) -> Member:
    member = Member(target, member_id)
    member.join(topics)
    assert member.epoch, "the member has joined"
    return member


def refused(member: Member, topics: list[str]) -> bool:
    response = member.send(rebalance_timeout_ms=1_000, subscribed_topic_names=topics, topic_partitions=[])
    if response.error_code:
        assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert f"the maximum is {LIMIT}" in (response.error_message or "")
    return bool(response.error_code)


def test_the_members_of_a_group_name_a_limited_number_of_topics() -> None:
    target = world()
    join(target, "one", names(0, 1_000))
    join(target, "two", names(1_000, 999))
    target.records()
    assert refused(Member(target, "three"), names(5_000, 2))
    assert target.records() == []
    assert not refused(Member(target, "three"), names(5_000, 1)), "exactly the limit"
    assert not refused(Member(target, "four"), names(500, 1_000)), "all of these topics are named already"
    assert refused(Member(target, "five"), ["a"])


def test_the_topics_that_only_the_member_itself_named_do_not_count_when_it_changes_them() -> None:
    target = world()
    one = join(target, "one", names(0, 1_000))
    join(target, "two", names(1_000, 1_000))
    assert not refused(one, names(3_000, 1_000))
    assert refused(one, names(4_000, 1_001))
    assert not refused(one, names(4_000, 5))
    assert not refused(Member(target, "three"), names(5_000, 995))


def test_the_topics_of_a_pattern_do_not_count() -> None:
    target = world()
    join(target, "one", names(0, 1_000))
    join(target, "two", names(1_000, 1_000))
    three = Member(target, "three")
    fields = {"rebalance_timeout_ms": 1_000, "topic_partitions": []}
    assert three.send(**fields, subscribed_topic_regex="a").error_code == ErrorCode.NONE
