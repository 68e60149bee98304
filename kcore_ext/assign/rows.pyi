"""The partitions of each member as arrays, and the comparison of two assignments in this form."""

from kcore_ext.assign.model import Topics

class AssignedRows:
    """The arrays of a `GroupAssignment`: a row for each member, with its partitions in ascending order.

    Attributes:
        topics: the assigned topics.
        exclusive: True if a partition has at most one owner. This is False only for share groups.
    """

    topics: Topics
    exclusive: bool
