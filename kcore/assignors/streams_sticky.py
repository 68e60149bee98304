"""The assignor `sticky` of streams groups, which assigns tasks (KIP-1071)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kcore.assignors.api import GroupAssignment, PartitionAssignorError
from kcore_ext.assign import streams
from kcore_ext.assign.model import Topics
from kcore_ext.assign.streams import StreamsMember

__all__ = ["StickyTaskAssignor", "StreamsAssignment", "StreamsMember", "Subtopology"]


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of a topology that is executed as a unit.

    Attributes:
        partitions: the number of tasks, which is the largest partition count among the subtopology's input topics.
        stateful: True if it has changelog topics, and therefore standbys.
    """

    partitions: int
    stateful: bool = False


@dataclass(frozen=True, slots=True)
class StreamsAssignment:
    """The tasks of all members. Each attribute is a mapping: member id -> subtopology id -> partitions.

    Attributes:
        active: every task exactly once.
        standby: copies of stateful tasks; a process never has two copies of the same task.
        warmup: always empty; Kafka 4.3 assigns none.
    """

    active: GroupAssignment
    standby: GroupAssignment
    warmup: GroupAssignment


class StickyTaskAssignor:
    """The assignor that keeps a task on its member if possible (as Kafka 4.3). Otherwise, it moves the task to a member
    with a standby or, without a standby, to the least loaded process.

    Among equally loaded processes or members, the assignor chooses as Kafka does. The choice depends on their ids and
    on the order in which Kafka's priority queue returns equal elements.
    """

    name = "sticky"

    def assign(
        self,
        members: Iterable[StreamsMember] | Mapping[str, StreamsMember],
        subtopologies: Mapping[str, Subtopology],
        *,
        num_standby_replicas: int = 0,
    ) -> StreamsAssignment:
        """Assigns all tasks.

        Args:
            members: the members with their process ids, and with the tasks of their previous target assignment.
            subtopologies: subtopology id -> subtopology.
            num_standby_replicas: `num.standby.replicas`: copies of each stateful task.

        Raises:
            PartitionAssignorError: there are tasks but no member.
        """
        listed = list(members.values() if isinstance(members, Mapping) else members)
        topics = Topics({name: part.partitions for name, part in subtopologies.items()})
        if not listed and topics.total_partitions:
            raise PartitionAssignorError("no process is available to run a task")
        stateful = [name for name, part in subtopologies.items() if part.stateful]
        return StreamsAssignment(*streams.assign(listed, topics, stateful, num_standby_replicas))
