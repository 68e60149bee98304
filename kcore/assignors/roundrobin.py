"""`roundrobin` of classic groups."""

from kcore.assignors.api import EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import roundrobin


class RoundRobinAssignor:
    """Assigns all partitions, topic by topic, to members in a ring; skips members that do not subscribe.

    With equal subscriptions, members differ by at most one partition; with unequal ones there is no bound. It is
    neither sticky nor rack aware.
    """

    name = "roundrobin"
    protocols = (EAGER,)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """Assigns partitions like `Assignor.assign`. Skips topics that do not exist; ignores `previous`."""
        return roundrobin.assign(members, topics)
