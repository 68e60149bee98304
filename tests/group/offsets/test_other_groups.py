"""The offset APIs on groups that are not classic. Each type of group decides itself which offset requests are valid."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kcore.group.group import COMMIT_TIMESTAMP, ExpirationBase, Group, GroupType
from kcore.group.offsets.commit import PlannedTopic
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Record
from tests.group.offsets.world import OffsetsContext


class EpochGroup(Group):
    """A group with epochs, like those of KIP-848: its only member "m" has epoch 5 and subscribes to "topic"."""

    __slots__ = ("group_type", "members")

    def __init__(self, group_type: GroupType = GroupType.CONSUMER, members: int = 1) -> None:
        super().__init__("g")
        self.group_type = group_type
        self.members = members

    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def is_empty(self) -> bool:
        return not self.members

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        transactional: bool,
        topics: Sequence[PlannedTopic] = (),
    ) -> ErrorCode:
        if self.group_type is GroupType.SHARE:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if member_id != "m":
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation_id == 5 else ErrorCode.STALE_MEMBER_EPOCH

    def offset_commit_accepted(self, member_id: str) -> None:
        assert member_id == "m"

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if self.group_type is GroupType.SHARE:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if member_id is None:
            return ErrorCode.NONE if member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        if member_id != "m":
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == 5 else ErrorCode.STALE_MEMBER_EPOCH

    def validate_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND if self.group_type is GroupType.SHARE else ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic == "topic"

    def offset_expiration_base(self) -> ExpirationBase | None:
        return ExpirationBase(None, {"topic"}) if self.members else COMMIT_TIMESTAMP

    def validate_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def tombstones(self) -> list[Record]:
        raise AssertionError("tombstones of this group are not expected")

    def on_loaded(self) -> None:
        raise AssertionError("no log holds this group")

    def on_unloaded(self) -> None:
        """Does nothing: the group has no timers."""


@pytest.fixture
def context() -> OffsetsContext:
    context = OffsetsContext({"offsets.retention.minutes": 10}, {"topic": 2, "other": 1})
    context.machine.groups["g"] = EpochGroup()
    return context


@pytest.mark.parametrize(
    ("member", "epoch", "code", "transactional"),
    [("m", 5, 0, 0), ("m", 4, 113, 22), ("m", 6, 113, 22), ("x", 5, 25, 25), ("", -1, 25, 25)],
)
def test_a_transaction_has_no_error_for_epochs(context, member, epoch, code, transactional):
    who = {"member": member, "generation": epoch}
    assert context.commit_offsets("g", {"topic": {0: 1}}, **who) == [code]
    assert context.commit_in_transaction("g", {"topic": {0: 1}}, **who) == [transactional]


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [(None, -1, 0), (None, 0, -1), ("m", 5, 0), ("m", 4, 113), ("m", 6, 113), ("", -1, 25), ("x", 5, 25)],
)
def test_fetch_returns_the_groups_error_without_topics(context, member, epoch, code):
    context.commit_offsets("g", {"topic": {0: 1}}, member="m", generation=5)
    found = context.fetch("g", {"topic": [0]}, member=member, epoch=epoch)
    assert found == (code or {"topic": {0: (1, -1, "", 0)}})


def test_a_fetch_treats_a_share_group_as_missing(context):
    context.machine.groups["g"] = EpochGroup(GroupType.SHARE)
    assert context.commit_offsets("g", {"topic": {0: 1}}) == [69]
    assert context.commit_in_transaction("g", {"topic": {0: 1}}) == [69]
    assert context.fetch("g", {"topic": [0]}) == {"topic": {0: (-1, -1, "", 0)}}
    assert context.fetch("g", None) == {}
    assert context.delete_offsets("g", {"topic": [0]}) == 69


def test_an_empty_share_group_does_not_expire(context):
    context.machine.groups["g"] = EpochGroup(GroupType.SHARE, members=0)
    context.advance(60 * 60_000)
    assert context.records() == []
    assert "g" in context.machine.groups


def test_offsets_of_subscribed_topics_are_neither_deleted_nor_expired(context):
    who = {"member": "m", "generation": 5}
    context.commit_offsets("g", {"topic": {0: 1, 1: 2}, "other": {0: 3}}, **who)
    assert context.delete_offsets("g", {"topic": [0, 7], "other": [0]}) == {
        "topic": [(0, 86), (7, 3)],
        "other": [(0, 0)],
    }
    context.commit_offsets("g", {"other": {0: 3}}, **who)
    context.advance(60 * 60_000)
    assert context.fetch("g", None) == {"topic": {0: (1, -1, "", 0), 1: (2, -1, "", 0)}}


def test_a_partition_of_another_kind_of_group_survives_a_replayed_offset(context):
    group = context.machine.groups["g"]
    context.commit_offsets("g", {"topic": {0: 1}}, member="m", generation=5)
    assert context.machine.groups["g"] is group
