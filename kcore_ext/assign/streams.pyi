"""The sticky task assignor of streams groups (KIP-1071): active tasks first, then standbys."""

from collections.abc import Iterable, Mapping

from kcore_ext.assign.model import Key, Topics
from kcore_ext.assign.result import GroupAssignment

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

def assign(
    members: Iterable[StreamsMember] | Mapping[str, StreamsMember],
    topics: Topics,
    stateful: Iterable[str],
    standby_replicas: int,
) -> tuple[GroupAssignment, GroupAssignment, GroupAssignment]: ...
