"""`simple` of share groups (KIP-932)."""

from collections.abc import Collection, Mapping

from kcore.assignors.api import GroupAssignment, Members, TopicLike
from kcore.assignors.uniform import refuse_unknown_ids
from kcore_ext.assign import simple


class SimpleAssignor:
    """Shares partitions: each has ceil(members / partitions) readers at most and one at least (Kafka 4.1 to 4.3).

    With unequal subscriptions every topic is shared among its own subscribers. A partition that no member subscribes to
    any more leaves the target (Kafka 4.3 keeps it for ever).
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
        """The next target assignment; see `UniformAssignor.assign`.

        Args:
            members: the members.
            topics: the topics that exist.
            previous: the target so far; None: the members' `owned`.
            assignable: topic -> partitions whose share state is initialised; None: all. Others are given to
                nobody.

        Raises:
            PartitionAssignorError: a subscribed topic id does not exist.
        """
        assignment, missing = simple.assign(members, topics, previous, assignable)
        refuse_unknown_ids(missing)
        return assignment
