from collections.abc import Callable
from typing import Any, final

from kcore_ext.assign.model import Topics
from kcore_ext.codec.fields import FieldLayout

@final
class SubscribedTopics:
    """A callable that tests if a member subscribes to the topic with a given id.

    Args:
        by_id: returns the topic of an id, or None.
        names: the names of the member's topics.
        known: some of the topics to which the member subscribes. The test is faster for these topics. None: no topics.
    """

    def __init__(self, by_id: Callable[[bytes], Any], names: frozenset[str], known: Topics | None = None) -> None: ...
    def __call__(self, topic_id: bytes) -> bool: ...

@final
class PartitionOwners:
    """The member epochs of partition owners; partitions without an owner have no entry.

    A member owns a partition from its assignment until the member confirms its revocation.
    """

    def of(self, topic_id: bytes) -> dict[int, int]:
        """Returns the owned partitions of a topic with their owners' epochs; callers must not change them."""

    def replace(self, before: Any, after: Any) -> None:
        """Replaces the partitions of a member whose `CurrentAssignment` changed from `before` to `after`.

        None means that the member has no assignment.

        Raises:
            ValueError: another member owns a partition in the same or a newer epoch. A partition must not have two
                owners.
        """

def next_partitions(
    assigned: dict[bytes, dict[int, int]],
    revoking_before: dict[bytes, dict[int, int]],
    target: dict[bytes, tuple[int, ...]],
    epoch: int,
    owners: PartitionOwners,
    subscribed: Callable[[bytes], bool],
) -> tuple[dict[bytes, dict[int, int]], dict[bytes, dict[int, int]], dict[bytes, dict[int, int]], bool]:
    """Determines the partitions that a member keeps, must revoke, and receives in its next step towards its target.

    Args:
        assigned: the partitions that the member may use, with their assignment epochs.
        revoking_before: the partitions that the member had to revoke before this step.
        target: the partitions of the member's target assignment.
        epoch: the assignment epoch of new partitions.
        owners: the owners of partitions.
        subscribed: returns True if the member subscribes to the topic with the given id. A `SubscribedTopics` is faster
            than a function.

    Returns:
        A tuple (kept, revoked, granted, waits). `kept` has the partitions that the member keeps, and `revoked` those
        that it must revoke. `granted` has the new partitions of its target that no other member owns. `waits` is True
        if another member still owns a partition of the target. Do not change the inner dictionaries, because one
        dictionary may belong to several topics.
    """

def with_granted(
    kept: dict[bytes, dict[int, int]], granted: dict[bytes, dict[int, int]]
) -> dict[bytes, dict[int, int]]:
    """Merges the partitions that a member keeps with those granted to it. Changes `kept`, unless `kept` is empty."""

def topics_of(owned: dict[bytes, dict[int, int]], layout: FieldLayout) -> list[Any]:
    """Returns the topics and their partitions as messages.

    Do not change the lists of partitions, because one list may belong to several topics.

    Args:
        owned: the partitions by topic id.
        layout: the class of a topic, with its fields for the id (0) and for the list of partitions (1).
    """
