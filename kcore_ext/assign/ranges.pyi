"""The range assignors of servers and clients, which assign contiguous partitions of each topic to each member.

The assignor of clients also matches the racks of members and partitions (KIP-881).
"""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from kcore_ext.assign.model import Key, Member, Topics
from kcore_ext.assign.problem import Problem
from kcore_ext.assign.result import GroupAssignment

Ints = npt.NDArray[np.int32]
Members = Iterable[Member] | Mapping[str, Member]
TopicLike = Topics | Mapping[str, int] | Mapping[bytes, int]

def run(problem: Problem, racks: bool = True) -> Ints: ...
def assign(members: Members, topics: TopicLike, racks: bool) -> tuple[GroupAssignment, list[Key]]: ...
