"""`kcore.balanced`: as balanced as the subscriptions allow, then as few moves as possible, then as many rack
matches."""

from kcore.assignors.api import EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import flow


class BalancedAssignor:
    """An assignor of kcore's own: a minimum cost flow, optimal for equal and unequal subscriptions.

    Among all valid assignments it takes one with the least sum of squared loads (then also the smallest largest load
    and the smallest sum of differences); among those one in which the fewest partitions leave a member that may keep
    them; among those one with the most partitions on their member's rack. Ties go by member id. What members have is
    `Member.owned` or `previous`; of two claimants the newer generation, then the lower member id, keeps a partition.

    Eager: what it takes from one member it gives to the other at once. Server-side groups hand over safely anyway; a
    classic group must use it with eager rebalancing.
    """

    name = "kcore.balanced"
    protocols = (EAGER,)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """See `Assignor.assign`. Topics that do not exist are skipped."""
        return flow.assign(members, topics, previous)
