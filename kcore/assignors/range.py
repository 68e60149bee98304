"""The assignor `range` of classic groups: contiguous partitions of each topic, by rack if possible (KIP-881)."""

from kcore.assignors.api import EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import ranges


class RangeAssignor:
    """The assignor that gives each subscriber of a topic a range of consecutive partitions. If the partitions do not
    divide evenly, the first members receive one more than the others.

    Members are ordered by instance id, then by member id. Topics of equal size with the same subscribers give each
    member the same partition numbers. Members first receive partitions with a replica on their own rack, unless every
    partition has replicas on all racks of its topic. Balance per topic takes precedence over co-partitioning, and
    co-partitioning over racks.
    The assignor is not sticky: it ignores owned partitions.
    """

    name = "range"
    protocols = (EAGER,)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """Assigns partitions like `Assignor.assign`. Skips topics that do not exist; ignores `previous`."""
        assignment, _ = ranges.assign(members, topics, True)
        return assignment
