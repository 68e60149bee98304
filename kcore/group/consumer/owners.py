"""The member epoch of each partition's owner, derived from the members."""

from __future__ import annotations

from kcore.group.consumer.assignment import NO_PARTITIONS, CurrentAssignment, Owned


class PartitionOwners:
    """The member epochs of partition owners; partitions without an owner have no entry.

    A member owns a partition while it may use it, and until it confirms the revocation.
    """

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[bytes, dict[int, int]] = {}

    def of(self, topic_id: bytes) -> dict[int, int]:
        """Returns the owned partitions of a topic with their owners' epochs; callers must not change them."""
        return self._epochs.get(topic_id, NO_PARTITIONS)

    def replace(self, before: CurrentAssignment | None, after: CurrentAssignment | None) -> None:
        """Replaces the partitions of a member whose assignment changed.

        Raises:
            ValueError: another member owns a partition in the same epoch or a newer one; a partition must not have
                two owners.
        """
        if before is not None:
            self._remove(before.assigned, before.member_epoch)
            self._remove(before.revoking, before.member_epoch)
        if after is not None:
            self._add(after.assigned, after.member_epoch)
            self._add(after.revoking, after.member_epoch)

    def _remove(self, owned: Owned, member_epoch: int) -> None:
        epochs = self._epochs
        for topic_id, partitions in owned.items():
            of_topic = epochs.get(topic_id)
            if of_topic is None:
                continue
            for partition in partitions:
                # Another epoch belongs to a later owner; the records in between were compacted away.
                if of_topic.get(partition) == member_epoch:
                    del of_topic[partition]
            if not of_topic:
                del epochs[topic_id]

    def _add(self, owned: Owned, member_epoch: int) -> None:
        epochs = self._epochs
        for topic_id, partitions in owned.items():
            of_topic = epochs.get(topic_id)
            if of_topic is None:
                of_topic = epochs[topic_id] = {}
            for partition in partitions:
                present = of_topic.get(partition)
                if present is not None and present >= member_epoch:
                    raise ValueError(
                        f"partition {partition} of {topic_id.hex()} has an owner in epoch {present} "
                        f"and cannot be assigned in epoch {member_epoch}"
                    )
                of_topic[partition] = member_epoch
