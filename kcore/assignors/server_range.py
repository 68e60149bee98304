"""`range` of consumer groups (KIP-848): the plain ranges, without racks."""

from kcore.assignors.api import GroupAssignment, Members, TopicLike
from kcore.assignors.uniform import refuse_unknown_ids
from kcore_ext.assign import ranges


class ServerRangeAssignor:
    """Gives every subscriber of a topic a run of its partitions; the first members (static ones first) have one
    more."""

    name = "range"

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """The next target assignment; see `UniformAssignor.assign`. `previous` is not used: ranges are not sticky.

        Raises:
            PartitionAssignorError: a subscribed topic id does not exist.
        """
        assignment, missing = ranges.assign(members, topics, False)
        refuse_unknown_ids(missing)
        return assignment
