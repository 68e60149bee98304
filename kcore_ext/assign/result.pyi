"""Assignments as value objects that store arrays. They create a member's Python objects at the first access."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.assign.model import Key, Topics
from kcore_ext.assign.rows import AssignedRows

class MemberAssignment(dict[Key, tuple[int, ...]]):
    size: int
    partitions: tuple[TopicPartition, ...]
    def __init__(
        self, partitions: Mapping[str, Iterable[int]] | Mapping[bytes, Iterable[int]] | None = None
    ) -> None: ...
    def __hash__(self) -> int: ...  # type: ignore[override]

class GroupAssignment(AssignedRows, Mapping[str, MemberAssignment]):
    members: tuple[str, ...]
    withheld: tuple[TopicPartition, ...]
    def to_dict(self) -> dict[str, dict[Key, tuple[int, ...]]]: ...
    def sizes(self) -> dict[str, int]: ...
    def owners(self) -> npt.NDArray[np.int32]: ...
    def array_topics(self) -> list[tuple[Key, int]]: ...
    def changed_members(self, previous: GroupAssignment | None) -> list[str]: ...
    def changes(self, previous: GroupAssignment | None) -> list[tuple[str, MemberAssignment]]: ...
    def __getitem__(self, member_id: str) -> MemberAssignment: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...

def assignment_of(
    values: Mapping[str, Mapping[str, Iterable[int]]]
    | Mapping[str, Mapping[bytes, Iterable[int]]]
    | Mapping[str, Mapping[Key, Iterable[int]]],
    topics: Topics | Mapping[str, int] | Mapping[bytes, int],
) -> GroupAssignment: ...
