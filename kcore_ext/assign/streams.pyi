"""The sticky task assignor of streams groups (KIP-1071): active tasks first, then standbys."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from kcore_ext.assign.model import Key, Topics
from kcore_ext.assign.problem import Problem
from kcore_ext.assign.result import GroupAssignment

Ints = npt.NDArray[np.int32]

class StreamsMember:
    member_id: str
    process_id: str
    active: Mapping[Key, Iterable[int]]
    standby: Mapping[Key, Iterable[int]]
    warmup: Mapping[Key, Iterable[int]]
    def __init__(
        self,
        member_id: str,
        process_id: str,
        *,
        active: Mapping[str, Iterable[int]] | Mapping[Key, Iterable[int]] | None = None,
        standby: Mapping[str, Iterable[int]] | Mapping[Key, Iterable[int]] | None = None,
        warmup: Mapping[str, Iterable[int]] | Mapping[Key, Iterable[int]] | None = None,
    ) -> None: ...
    def __hash__(self) -> int: ...

def run(
    problem: Problem,
    process_of: npt.ArrayLike,
    stateful: npt.ArrayLike,
    standby_replicas: int,
    active: Ints | None = None,
    standby: tuple[Ints, Ints] | None = None,
) -> tuple[Ints, Ints, Ints]: ...
def assign(
    members: Iterable[StreamsMember] | Mapping[str, StreamsMember],
    topics: Topics,
    stateful: Iterable[str],
    standby_replicas: int,
) -> tuple[GroupAssignment, GroupAssignment, GroupAssignment]: ...
