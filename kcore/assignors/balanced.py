"""The assignor `kcore.balanced`, which optimizes the balance first, then the moves, then the rack matches."""

from kcore.assignors.api import EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import flow


class BalancedAssignor:
    """kcore's own assignor, which computes a minimum cost flow. Its result is optimal for equal and unequal
    subscriptions.

    It minimises, in this order:

    1. the sum of the squared loads, and thereby the largest load and the sum of the differences between loads
    2. the number of partitions that a member loses although it still subscribes to their topic
    3. the number of partitions without a replica on their member's rack

    Member ids break ties. `Member.owned` or `previous` define the current owners. If two members claim a partition, the
    member of the newer generation keeps it; of equal generations, the member with the lower id.

    The assignor is eager: the result gives a partition to its new member at once. The coordinator of a consumer group
    still waits until the old member has revoked the partition. A classic group must use this assignor with eager
    rebalancing.
    """

    name = "kcore.balanced"
    protocols = (EAGER,)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """Assigns partitions like `Assignor.assign`. Skips topics that do not exist."""
        return flow.assign(members, topics, previous)
