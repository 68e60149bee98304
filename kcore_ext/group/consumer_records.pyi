from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

from kcore_ext.batch import BatchBuilder

@final
class ConsumerRecord:
    """A record of a consumer group that holds what the group will hold. Immutable by agreement, as what it holds is.

    It is the record that `reference_records` makes of it, and equal to that one; `key`, `value` and `version` are made
    of it when somebody looks.

    Attributes:
        record_type: the type of the key: 3, 5, 6, 7 or 8.
        group_id: the group.
        member_id: the member; None in a record of the group itself.
        said: the member's MemberMetadata (type 5), target (7: topic id -> partitions, ascending, none empty) or
            CurrentAssignment (8); None for an epoch.
        epoch: of the group (type 3), of the target assignment (6).
        number: the hash of the group's topics (type 3), when the target was computed in ms since the epoch (6).
    """

    record_type: int
    group_id: str
    member_id: str | None
    said: Any
    epoch: int
    number: int
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def version(self) -> int: ...

@final
class ConsumerRecords:
    """All records of one decision as a block, encoded once: see `kcore.runtime.machine.RecordBlock`.

    Args:
        records: nothing but `ConsumerRecord`s.

    Raises:
        TypeError, ValueError, OverflowError: what one of them says cannot be written.
    """

    records: list[ConsumerRecord]
    size_bytes: int
    def __init__(self, records: list[Any]) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds the records to a batch; False if one did not fit."""

    def replay(self, shard: Any) -> None:
        """Applies the records to a group shard, as their plain ones would be one by one.

        Raises:
            Exception: whatever replay raises.
        """

def bind_consumer_records(
    plain: Mapping[int, Callable[[ConsumerRecord], Any]],
    find_group: Callable[[Any, str], Any],
    place_member: Callable[[Any, str, Any], None],
) -> None:
    """Says, once for the process, what records stand for and how they are applied.

    Args:
        plain: what makes the plain record, by record type.
        find_group: (shard, group id) -> the group, made if it is not there.
        place_member: (group, member id, CurrentAssignment): the member is there now.

    Raises:
        ValueError: these are not the types that there are.
    """

def in_one(records: list[Any]) -> Any:
    """The records of a decision as one `ConsumerRecords`; the list itself if one of them is of another kind, or cannot
    be written."""

def member_metadata(group_id: str, member_id: str, metadata: Any) -> Any:
    """What a member of the new protocol says of itself (type 5)."""

def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Any:
    """The group's epoch, and the hash of its topics (type 3).

    Raises:
        OverflowError: not numbers of 32 and 64 bits.
    """

def target_assignment(group_id: str, member_id: str, target: dict[bytes, tuple[int, ...]]) -> Any:
    """What a member shall have (type 7)."""

def assignment_epoch(group_id: str, epoch: int, timestamp_ms: int) -> Any:
    """The epoch of the target assignment, and when it was computed (type 6).

    Raises:
        OverflowError: not numbers of 32 and 64 bits.
    """

def current_assignment(group_id: str, member_id: str, current: Any) -> Any:
    """Where a member is (type 8)."""
