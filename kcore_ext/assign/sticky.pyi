"""The sticky and cooperative-sticky assignors.

They resolve conflicting claims, and then run the algorithm for equal or the algorithm for unequal subscriptions. The
cooperative-sticky assignor finally withholds the partitions that move between members (KIP-429).
"""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from kcore_ext.assign.model import Member, Topics
from kcore_ext.assign.problem import Problem
from kcore_ext.assign.result import GroupAssignment

Ints = npt.NDArray[np.int32]
Members = Iterable[Member] | Mapping[str, Member]
TopicLike = Topics | Mapping[str, int] | Mapping[bytes, int]

def run(problem: Problem, previous: Ints | None = None, cooperative: bool = False) -> tuple[Ints, Ints]: ...
def assign(
    members: Members, topics: TopicLike, cooperative: bool, previous: GroupAssignment | None = None
) -> GroupAssignment: ...
