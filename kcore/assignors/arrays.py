"""The assignors over numpy arrays: members, topics and partitions are numbers, without a Python object per partition.

The module is for simulations and planning: 10,000 members and 1,000,000 partitions take a few milliseconds and a few
megabytes. The partitions of all topics have consecutive numbers. The number of a partition is the number of its topic's
first partition, plus the partition's index in the topic. Members and topics are numbered in sorted order: member 0 has
the first member id, and topic 0 has the first name (or topic id).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kcore_ext.assign import flow, ranges, simple, streams, uniform
from kcore_ext.assign import roundrobin as ring
from kcore_ext.assign import sticky as _sticky
from kcore_ext.assign.problem import Problem

Ints = npt.NDArray[np.int32]

__all__ = [
    "Group",
    "balanced",
    "cooperative_sticky",
    "range_",
    "roundrobin",
    "rows_of",
    "server_range",
    "share_simple",
    "sticky",
    "streams_sticky",
    "uniform_",
]


class Group:
    """The members and topics of a group as arrays. The object is immutable: create a new one when they change.

    Args:
        topic_partitions: the number of partitions of each topic, shape (topics,).
        members: number of members; may be omitted if `kind_of` is set.
        kind_of: for each member, the index of its subscription in `kinds`, shape (members,). None: 0 for all members.
        kinds: the different subscriptions, each an ascending sequence of topic numbers. None: a single subscription to
            all topics.
        order: the member numbers in the order that range and round robin use, static members first (KIP-345). None: 0,
            1, 2, ...
        generations: the generation of each member's assignment, shape (members,); for the sticky assignors.
        member_racks: rack number of every member, -1 for none, shape (members,).
        partition_racks: the pair of arrays (first, racks). Partition p has the racks racks[first[p]:first[p + 1]].

    Raises:
        ValueError: shapes or numbers do not fit together.
    """

    __slots__ = ("first", "problem")

    def __init__(
        self,
        topic_partitions: npt.ArrayLike,
        members: int | None = None,
        *,
        kind_of: npt.ArrayLike | None = None,
        kinds: Sequence[npt.ArrayLike] | None = None,
        order: npt.ArrayLike | None = None,
        generations: npt.ArrayLike | None = None,
        member_racks: npt.ArrayLike | None = None,
        partition_racks: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    ) -> None:
        counts = np.ascontiguousarray(topic_partitions, dtype=np.int32)
        if kind_of is None:
            if members is None:
                raise ValueError("members or kind_of is needed")
            kind_of = np.zeros(members, dtype=np.int32)
        rows = [np.arange(counts.size, dtype=np.int32)] if kinds is None else [np.asarray(k, np.int32) for k in kinds]
        bounds = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum([row.size for row in rows], out=bounds[1:])
        both = partition_racks is not None and member_racks is not None
        rack_first, rack_list = partition_racks if partition_racks is not None else (None, None)
        self.problem = Problem.from_arrays(
            counts,
            kind_of,
            bounds,
            np.concatenate(rows) if rows else np.zeros(0, np.int32),
            order,
            generations,
            member_racks if both else None,
            rack_first,
            rack_list,
        )
        self.first: Ints = np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int32)

    @property
    def members(self) -> int:
        """Number of members."""
        return self.problem.members

    @property
    def partitions(self) -> int:
        """Number of partitions of all topics."""
        return self.problem.partitions


def range_(group: Group) -> Ints:
    """Runs the client-side range assignor (rack aware).

    Returns the owner of every partition, -1 if its topic has no subscriber.
    """
    return ranges.run(group.problem, True)


def server_range(group: Group) -> Ints:
    """Runs the server-side range assignor. Returns the owner of every partition."""
    return ranges.run(group.problem, False)


def roundrobin(group: Group) -> Ints:
    """Runs the round-robin assignor. Returns the owner of every partition."""
    return ring.run(group.problem)


def sticky(group: Group, previous: Ints | None = None) -> Ints:
    """Runs the sticky assignor. Returns the owner of every partition.

    Args:
        group: the members and topics.
        previous: the previous owner, -1 for none, shape (partitions,). None: a first assignment.
    """
    return _sticky.run(group.problem, previous, False)[0]


def cooperative_sticky(group: Group, previous: Ints | None = None) -> tuple[Ints, Ints]:
    """Runs the cooperative sticky assignor.

    Returns the owner of every partition, and the partitions that have no owner until their previous owners have revoked
    them.
    """
    return _sticky.run(group.problem, previous, True)


def uniform_(group: Group, previous: Ints | None = None) -> Ints:
    """Runs KIP-848's uniform assignor. Returns the owner of every partition; `sticky` documents `previous`."""
    return uniform.run(group.problem, previous)


def balanced(group: Group, previous: Ints | None = None) -> Ints:
    """Runs `kcore.balanced`. Returns the owner of every partition; `sticky` documents `previous`."""
    return flow.run(group.problem, previous)


def share_simple(group: Group, previous: tuple[Ints, Ints] | None = None) -> tuple[Ints, Ints]:
    """Runs the simple assignor of share groups.

    In the results, member m has the partitions rows[first[m]:first[m + 1]].

    Args:
        group: the members and topics.
        previous: the pair (first, rows) of the previous assignment. None: a first assignment.

    Returns:
        The pair (first, rows) of the new assignment.
    """
    return simple.run(group.problem, *(previous or (None, None)))


def streams_sticky(
    group: Group,
    process_of: npt.ArrayLike,
    stateful: npt.ArrayLike,
    *,
    num_standby_replicas: int = 0,
    active: Ints | None = None,
    standby: tuple[Ints, Ints] | None = None,
) -> tuple[Ints, tuple[Ints, Ints]]:
    """Runs the sticky task assignor of streams groups (KIP-1071). Topics stand for subtopologies, partitions for tasks.

    Args:
        group: number of tasks of every subtopology, and the members.
        process_of: the process of every member, as numbers in the order of the process ids, shape (members,).
        stateful: True for each subtopology that has state, shape (subtopologies,).
        num_standby_replicas: copies of each stateful task.
        active: the previous member of every task, -1 for none, shape (tasks,). None: a first assignment.
        standby: (first, rows) of the previous standby tasks: member m has rows[first[m]:first[m + 1]]. None: none.

    Returns:
        The member of every task, and (first, rows) of the standby tasks.

    Raises:
        ValueError: shapes or numbers do not fit together, or there are tasks but no members.
    """
    owner, first, rows = streams.run(group.problem, process_of, stateful, num_standby_replicas, active, standby)
    return owner, (first, rows)


def rows_of(owner: Ints, members: int) -> tuple[Ints, Ints]:
    """Converts an owner array to rows: member m has the partitions rows[first[m]:first[m + 1]], ascending."""
    order = np.argsort(owner, kind="stable").astype(np.int32)
    unowned = int((owner < 0).sum())
    counts = np.bincount(owner[owner >= 0], minlength=members)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32), order[unowned:]
