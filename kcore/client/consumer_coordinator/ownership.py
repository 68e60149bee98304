"""The partitions of a member, and the order in which it has lost partitions and memberships."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kcore.errors import CommitFailedError
from kcore.protocol.topic_partition import TopicPartition

NOT_IN_GROUP: Final = "the member is not in the group: it was removed, or has not joined yet"
EMPTY: Final[frozenset[TopicPartition]] = frozenset()


class Ownership:
    """The partitions of a member, and a count of its losses.

    The member joins again in the background. An offset that the user's code computed before a loss must not be
    committed with the epoch of a later membership. The coordinator would accept such a commit, although the partition
    may have had another owner meanwhile. So each commit carries the value of `losses` that the user's code has seen.

    Attributes:
        losses: the number of times that partitions or the membership were lost or given up.
        membership_lost_at: the value of `losses` when the last membership ended; 0: no membership has ended.
    """

    def __init__(self) -> None:
        self.losses = 0
        self.membership_lost_at = 0
        self._partitions: frozenset[TopicPartition] = EMPTY
        self._lost_at: dict[TopicPartition, int] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that the member owns."""
        return self._partitions

    @partitions.setter
    def partitions(self, partitions: frozenset[TopicPartition]) -> None:
        lost = self._partitions - partitions
        if lost:
            self.losses += 1
            self._lost_at.update(dict.fromkeys(lost, self.losses))
        self._partitions = partitions

    def end_membership(self) -> None:
        """Records that the member was fenced, or has left because it did not poll in time."""
        self.losses += 1
        self.membership_lost_at = self.losses

    def membership_error(self, seen_losses: int) -> CommitFailedError | None:
        """Returns an error for a commit if the membership has ended since `losses` had the value `seen_losses`; else
        None.
        """
        if self.membership_lost_at <= seen_losses:
            return None
        return CommitFailedError(
            "the member was removed from the group since the last poll or event: begin again at the committed offsets"
        )

    def commit_error(self, partitions: Iterable[TopicPartition], seen_losses: int) -> CommitFailedError | None:
        """Returns an error for a commit if the member must no longer commit the offset of one of the partitions; else
        None.

        Partitions that the member never owned cause no error here: the coordinator checks their commits. The Java
        client does the same.

        Args:
            partitions: the partitions of the commit.
            seen_losses: the value of `losses` that the user's code has seen.
        """
        error = self.membership_error(seen_losses)
        if error is not None:
            return error
        for partition in partitions:
            lost_at = self._lost_at.get(partition)
            if lost_at is not None and (lost_at > seen_losses or partition not in self._partitions):
                return CommitFailedError(
                    f"partition {partition.topic}-{partition.partition} does not belong to the member any more: its "
                    "new owner begins at the committed offset"
                )
        return None
