"""Who has which partition, as far as it matters: the epoch in which its owner is. Derived from the members."""

from __future__ import annotations

from kcore.group.consumer.assignment import NO_PARTITIONS, CurrentAssignment, Owned


class PartitionOwners:
    """The member epoch of each partition's owner; a partition that nobody has is not in it.

    A partition is a member's own as long as it may use it or has not confirmed to have given it up.
    """

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[bytes, dict[int, int]] = {}

    def of(self, topic_id: bytes) -> dict[int, int]:
        """The owned partitions of a topic, with their owners' epochs; to be read alone."""
        return self._epochs.get(topic_id, NO_PARTITIONS)

    def replace(self, before: CurrentAssignment | None, after: CurrentAssignment | None) -> None:
        """A member's assignment changed: takes out what it had, and puts in what it has.

        Raises:
            ValueError: somebody else has a partition in the same epoch or a newer one; two owners must not be.
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
                # Another epoch is another owner, who came while records in between were compacted away.
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
                        f"partition {partition} of {topic_id.hex()} is owned in epoch {present}, "
                        f"and cannot be given out in epoch {member_epoch}"
                    )
                of_topic[partition] = member_epoch
