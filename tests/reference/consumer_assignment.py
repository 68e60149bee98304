"""The reference implementation of `kcore_ext.group.consumer_assignment`."""

from __future__ import annotations

from collections.abc import Callable

from kcore.group.consumer.assignment import NO_PARTITIONS, CurrentAssignment, Owned, Target


class PartitionOwners:
    """The owned partitions of a group as a dictionary of dictionaries: topic id -> partition -> member epoch of the
    owner.
    """

    def __init__(self) -> None:
        self._epochs: dict[bytes, dict[int, int]] = {}

    def of(self, topic_id: bytes) -> dict[int, int]:
        """Returns the owned partitions of a topic with their owners' epochs."""
        return self._epochs.get(topic_id, NO_PARTITIONS)

    def replace(self, before: CurrentAssignment | None, after: CurrentAssignment | None) -> None:
        """Replaces the owned partitions of a member whose assignment changed.

        Raises:
            ValueError: another member owns a partition in the same epoch or a newer one.
        """
        if before is not None:
            self._remove(before.assigned, before.member_epoch)
            self._remove(before.revoking, before.member_epoch)
        if after is not None:
            self._add(after.assigned, after.member_epoch)
            self._add(after.revoking, after.member_epoch)

    def _remove(self, owned: Owned, member_epoch: int) -> None:
        for topic_id, partitions in owned.items():
            of_topic = self._epochs.get(topic_id, {})
            for partition in partitions:
                if of_topic.get(partition) == member_epoch:
                    del of_topic[partition]
            if not of_topic:
                self._epochs.pop(topic_id, None)

    def _add(self, owned: Owned, member_epoch: int) -> None:
        for topic_id, partitions in owned.items():
            for partition in partitions:
                of_topic = self._epochs.setdefault(topic_id, {})
                if of_topic.get(partition, member_epoch - 1) >= member_epoch:
                    raise ValueError(f"partition {partition} of {topic_id.hex()} has an owner")
                of_topic[partition] = member_epoch


def next_partitions(
    assigned: Owned,
    revoking_before: Owned,
    target: Target,
    epoch: int,
    owners: PartitionOwners,
    subscribed: Callable[[bytes], bool],
) -> tuple[Owned, Owned, Owned, bool]:
    """Computes a member's next step: the partitions to keep, to revoke and to grant, and whether the member waits."""
    kept: Owned = {}
    revoking: Owned = {}
    for topic_id, partitions in assigned.items():
        staying = set(target[topic_id]) if topic_id in target and subscribed(topic_id) else set()
        for owned, stays in ((kept, True), (revoking, False)):
            part = {partition: since for partition, since in partitions.items() if (partition in staying) is stays}
            if part:
                owned[topic_id] = part
    granted: Owned = {}
    waits = False
    for topic_id, wanted in target.items():
        if not subscribed(topic_id):
            continue
        missing = [partition for partition in wanted if partition not in kept.get(topic_id, NO_PARTITIONS)]
        taken = owners.of(topic_id).keys() - revoking_before.get(topic_id, NO_PARTITIONS).keys()
        free = {partition: epoch for partition in missing if partition not in taken}
        waits = waits or len(free) < len(missing)
        if free:
            granted[topic_id] = free
    return kept, revoking, granted, waits
