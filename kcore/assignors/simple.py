"""The assignor `simple` of share groups (KIP-932)."""

from collections.abc import Collection, Mapping

from kcore.assignors.api import GroupAssignment, Members, TopicLike
from kcore.assignors.uniform import refuse_unknown_ids
from kcore_ext.assign import simple


class SimpleAssignor:
    """The assignor of share groups: each partition has at least one reader and at most ceil(members / partitions)
    (Kafka 4.1 to 4.3).

    With unequal subscriptions, every topic is shared among its own subscribers. A partition without subscribers is
    removed from the target (Kafka 4.3 keeps it forever).
    """

    name = "simple"

    def assign(
        self,
        members: Members,
        topics: TopicLike,
        previous: GroupAssignment | None = None,
        *,
        assignable: Mapping[str, Collection[int]] | Mapping[bytes, Collection[int]] | None = None,
    ) -> GroupAssignment:
        """Returns the next target assignment, in which partitions may have several readers.

        Args:
            members: the members of the share group, in any order.
            topics: the topics that exist.
            previous: the previous target; None: the members' `owned`.
            assignable: topic -> partitions whose share state is initialised; None: all. Other partitions are not
                assigned.

        Raises:
            PartitionAssignorError: a subscribed topic id does not exist.
        """
        assignment, missing = simple.assign(members, topics, previous, assignable)
        refuse_unknown_ids(missing)
        return assignment
