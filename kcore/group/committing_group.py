"""The base class of consumer and streams groups: the rules for the offsets that their members commit and fetch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kcore.group.epoch_group import Assignment, EpochGroup, Member
from kcore.protocol.error_codes import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from kcore.group.offsets.commit import PlannedTopic

MEMBER_EPOCHS_SINCE: Final = 9
"""The first version of OffsetCommit that supports STALE_MEMBER_EPOCH."""


class CommittingGroup(EpochGroup[Member, Assignment]):
    """A group with epochs whose members commit offsets: a consumer or streams group."""

    __slots__ = ()

    def uses_generations(self, member: Member) -> bool:
        """Returns True if the member uses the classic protocol, whose requests have a generation as the epoch."""
        return False

    @abstractmethod
    def member_epoch(self, member: Member) -> int:
        """Returns the epoch of a member."""

    @abstractmethod
    def had_all(self, member: Member, epoch: int, topics: Iterable[PlannedTopic]) -> bool:
        """Returns True if the member has owned every partition of a commit since `epoch` or earlier."""

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        transactional: bool,
        topics: Iterable[PlannedTopic] = (),
    ) -> ErrorCode:
        """Returns NONE if the commit is allowed, else the error.

        A commit with an older epoch is allowed for partitions that the member has owned since that epoch (KIP-1251).
        """
        if generation_id < 0 and not self.members:
            return NO_ERROR
        if transactional and generation_id < 0 and not member_id and group_instance_id is None:
            return NO_ERROR
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and api_version < MEMBER_EPOCHS_SINCE and not self.uses_generations(member):
            return ErrorCode.UNSUPPORTED_VERSION
        epoch = self.member_epoch(member)
        if generation_id == epoch or (generation_id < epoch and self.had_all(member, generation_id, topics)):
            return NO_ERROR
        return self._wrong_epoch(member)

    def offset_commit_accepted(self, member_id: str) -> None:
        """Does nothing: in a group with epochs, a commit does not extend the session."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Checks member id and epoch.

        For an epoch without a member id, the error is UNKNOWN_SERVER_ERROR, as in Kafka.
        """
        if member_id is None:
            return NO_ERROR if member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return NO_ERROR if member_epoch == self.member_epoch(member) else self._wrong_epoch(member)

    def _wrong_epoch(self, member: Member) -> ErrorCode:
        return ErrorCode.ILLEGAL_GENERATION if self.uses_generations(member) else ErrorCode.STALE_MEMBER_EPOCH
