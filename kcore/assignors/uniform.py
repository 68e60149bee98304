"""`uniform` of consumer groups (KIP-848)."""

from kcore.assignors.api import GroupAssignment, Members, PartitionAssignorError, TopicLike
from kcore_ext.assign import uniform


class UniformAssignor:
    """Spreads partitions evenly and moves few: KIP-848's default, as of Kafka 4.1 to 4.3.

    Works over names or topic ids. With equal subscriptions members differ by one partition at most and no assignment as
    balanced moves less; with unequal ones each topic is even among its subscribers. Racks are not looked at.
    """

    name = "uniform"

    def assign(self, members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment:
        """The next target assignment.

        Args:
            members: the members. A topic they name that does not exist counts for the question whether subscriptions
                are equal and else for nothing; a topic *id* that does not exist is an error.
            topics: the topics, keyed by name or by id (with `names` for members that subscribe by name).
            previous: the target so far. Handing back the GroupAssignment of the last call is the cheap way: nothing is
                converted. None: the members' `owned`, which also counts for members that `previous` does not have (so a
                static member that comes back can bring its predecessor's target).

        Raises:
            PartitionAssignorError: a subscribed topic id does not exist (KIP-848: the group keeps its old target).
        """
        assignment, missing = uniform.assign(members, topics, previous)
        refuse_unknown_ids(missing)
        return assignment


def refuse_unknown_ids(missing: list[str | bytes]) -> None:
    """Raises PartitionAssignorError when a topic id is among the topics that do not exist."""
    for topic in missing:
        if isinstance(topic, bytes):
            raise PartitionAssignorError(f"member is subscribed to a topic that does not exist: {topic.hex()}")
