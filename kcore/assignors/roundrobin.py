"""`roundrobin` of classic groups."""

from kcore.assignors.api import EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import roundrobin


class RoundRobinAssignor:
    """Deals all partitions, topic by topic, to members in a ring; members that do not subscribe are passed over.

    With equal subscriptions members differ by one partition at most; with unequal ones there is no bound. Neither
    sticky nor rack aware.
    """

    name = "roundrobin"
    protocols = (EAGER,)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """See `Assignor.assign`. Topics that do not exist are skipped; `previous` is not used."""
        return roundrobin.assign(members, topics)
