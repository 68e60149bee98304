"""`range` of classic groups: contiguous partitions a topic, co-partitioned, rack aware (KIP-881)."""

from kcore.assignors.api import EAGER, GroupAssignment, Members, TopicLike
from kcore_ext.assign import ranges


class RangeAssignor:
    """Gives every subscriber of a topic a run of its partitions; the first members have one more.

    Members are ordered by instance id, then by member id. Topics of one size with the same subscribers give each member
    the same partition numbers. When racks are known and not every partition is on all of them, partitions on a member's
    rack go first (balance per topic before co-partitioning before racks). Not sticky: what members own does
    not count.
    """

    name = "range"
    protocols = (EAGER,)

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """See `Assignor.assign`. Topics that do not exist are skipped; `previous` is not used."""
        assignment, _ = ranges.assign(members, topics, True)
        return assignment
