"""The assignor `kcore.balanced`, which computes the most balanced assignment as a minimum-cost flow."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from kcore_ext.assign.model import Member, Topics
from kcore_ext.assign.problem import Problem
from kcore_ext.assign.result import GroupAssignment

Ints = npt.NDArray[np.int32]
Members = Iterable[Member] | Mapping[str, Member]
TopicLike = Topics | Mapping[str, int] | Mapping[bytes, int]

def run(problem: Problem, previous: Ints | None = None, racks: bool = True) -> Ints: ...
def assign(members: Members, topics: TopicLike, previous: GroupAssignment | None = None) -> GroupAssignment: ...
