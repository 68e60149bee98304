"""The assignor `roundrobin` of classic groups."""

from kcore.assignors.api import EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import roundrobin


class RoundRobinAssignor:
    """The assignor that goes through all partitions, topic by topic, and gives each to the next member that subscribes
    to its topic.

    With equal subscriptions, members differ by at most one partition; with unequal subscriptions there is no bound. The
    assignor is neither sticky nor rack aware.
    """

    name = "roundrobin"
    protocols = (EAGER,)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """Assigns partitions like `Assignor.assign`. Skips topics that do not exist; ignores `previous`."""
        return roundrobin.assign(members, topics)
