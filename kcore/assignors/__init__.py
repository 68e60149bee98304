"""All partition assignors of Kafka, with Kafka's results wherever Kafka is deterministic, and the assignor
`kcore.balanced`.

    from kcore.assignors import Member, Topics, get

    assignment = get("range").assign([Member("a", ["orders"]), Member("b", ["orders"])], Topics({"orders": 5}))
    assignment["a"]["orders"]      # (0, 1, 2)

`get(name, group_type)` finds an assignor, `measure` computes figures of a result, and `kcore.assignors.arrays` applies
assignors to numpy arrays. The compiled package `kcore_ext.assign` computes the assignments.
"""

from kcore.assignors.api import (
    COOPERATIVE,
    EAGER,
    Assignor,
    GroupAssignment,
    Member,
    MemberAssignment,
    PartitionAssignorError,
    TopicPartition,
    Topics,
    assignment_of,
    checked,
    get,
    load_all,
    names,
    validate,
)
from kcore.assignors.measure import Measures, measure

__all__ = [
    "COOPERATIVE",
    "EAGER",
    "Assignor",
    "GroupAssignment",
    "Measures",
    "Member",
    "MemberAssignment",
    "PartitionAssignorError",
    "TopicPartition",
    "Topics",
    "assignment_of",
    "checked",
    "get",
    "load_all",
    "measure",
    "names",
    "validate",
]
