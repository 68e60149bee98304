"""The assignor `uniform` of consumer groups (KIP-848)."""

from kcore.assignors.api import GroupAssignment, Members, PartitionAssignorError, TopicLike
from kcore_ext.assign import uniform


class UniformAssignor:
    """The assignor that distributes partitions evenly with few moves: KIP-848's default, as of Kafka 4.1 to 4.3.

    Members may subscribe by topic name or by topic id. With equal subscriptions, members differ by at most one
    partition, and no equally balanced assignment moves fewer partitions. With unequal subscriptions, each topic is
    spread evenly over its subscribers. The assignor ignores racks.
    """

    name = "uniform"

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """Returns the next target assignment.

        Args:
            members: the members. A subscribed topic name that does not exist adds no partitions, but counts when
                subscriptions are compared. A topic id that does not exist is an error.
            topics: the topics, keyed by name or by id (with `names` for members that subscribe by name).
            previous: the previous target. Passing the GroupAssignment of the last call avoids conversions. If
                `previous` is None or lacks a member, the member's `owned` is its previous target. If a static member
                returns with a new member id, the caller can set `owned` to the target of its old member id.

        Raises:
            PartitionAssignorError: a subscribed topic id does not exist (KIP-848: the group keeps its old target).
        """
        assignment, missing = uniform.assign(members, topics, previous)
        refuse_unknown_ids(missing)
        return assignment


def refuse_unknown_ids(missing: list[str | bytes]) -> None:
    """Raises PartitionAssignorError if a topic id does not exist."""
    for topic in missing:
        if isinstance(topic, bytes):
            raise PartitionAssignorError(f"a member is subscribed to a topic id that does not exist: {topic.hex()}")
