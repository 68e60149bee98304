"""The assignor `range` of consumer groups (KIP-848), without racks."""

from kcore.assignors.api import GroupAssignment, Members, TopicLike
from kcore.assignors.uniform import refuse_unknown_ids
from kcore_ext.assign import ranges


class ServerRangeAssignor:
    """The assignor that gives each subscriber of a topic a range of consecutive partitions. If the partitions do not
    divide evenly, the first members receive one more than the others.

    Static members come before other members.
    """

    name = "range"

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """Returns the next target assignment. Unlike `UniformAssignor.assign` it ignores `previous`.

        Raises:
            PartitionAssignorError: a subscribed topic id does not exist.
        """
        assignment, missing = ranges.assign(members, topics, False)
        refuse_unknown_ids(missing)
        return assignment
