"""Share groups' simple assignor (KIP-932, KAFKA-18901)."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from kcore_ext.assign.model import Key, Member, Topics
from kcore_ext.assign.problem import Problem
from kcore_ext.assign.result import GroupAssignment

Ints = npt.NDArray[np.int32]
Members = Iterable[Member] | Mapping[str, Member]
TopicLike = Topics | Mapping[str, int] | Mapping[bytes, int]

def run(problem: Problem, claim_first: Ints | None = None, claims: Ints | None = None) -> tuple[Ints, Ints]: ...
def assign(
    members: Members,
    topics: TopicLike,
    previous: GroupAssignment | None = None,
    assignable: Mapping[str, Iterable[int]] | Mapping[bytes, Iterable[int]] | None = None,
) -> tuple[GroupAssignment, list[Key]]: ...
