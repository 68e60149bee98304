"""The assignor `cooperative-sticky` of classic groups (KIP-429)."""

from kcore.assignors.api import COOPERATIVE, EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import sticky


class CooperativeStickyAssignor:
    """The sticky assignor in two phases: partitions that move are first revoked, and assigned in the next rebalance.

    `Member.owned` (the subscription's owned partitions) defines the current owners. The generation comes from the
    subscription. If the subscription has none, the first four bytes of its user data are the generation.
    `GroupAssignment.withheld` contains the partitions to revoke. Their previous owners revoke them and rejoin, and the
    next call assigns them.
    """

    name = "cooperative-sticky"
    protocols = (COOPERATIVE, EAGER)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """Assigns partitions like `Assignor.assign`. `previous`, if given, replaces the members' owned partitions."""
        return sticky.assign(members, topics, True, previous)
