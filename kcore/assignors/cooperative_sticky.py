"""`cooperative-sticky` of classic groups (KIP-429)."""

from kcore.assignors.api import COOPERATIVE, EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import sticky


class CooperativeStickyAssignor:
    """The sticky assignment in two phases: what moves is first revoked, and given away in the next round.

    What members own is `Member.owned` (the subscription's owned partitions); the generation is the subscription's, else
    the four bytes of user data. Partitions held back are `GroupAssignment.withheld`; when there are any, the members
    that lose them rejoin once they have let go, and the next call hands them out.
    """

    name = "cooperative-sticky"
    protocols = (COOPERATIVE, EAGER)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """See `Assignor.assign`. `previous`, if given, replaces what the members own."""
        return sticky.assign(members, topics, True, previous)
