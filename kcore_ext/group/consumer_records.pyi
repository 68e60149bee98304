from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

from kcore_ext.batch import BatchBuilder

@final
class ConsumerRecord:
    """A record of a consumer group that refers to the objects that the group will store. Immutable by convention.

    It compares equal to the record that `reference_records` creates for the same change. The attributes `key`, `value`
    and `version` are those of that record, which is created at each access.

    Attributes:
        record_type: the type of the key: 3, 5, 6, 7 or 8.
        group_id: the group that the record changes.
        member_id: the member; None in records of types 3 and 6, which concern the whole group.
        content: type 5: the member's MemberMetadata. Type 7: the member's target, topic id -> partitions (ascending and
            not empty). Type 8: the member's CurrentAssignment. Other types: None.
        epoch: type 3: the epoch of the group. Type 6: the epoch of the target assignment.
        number: type 3: the hash of the group's topics. Type 6: the time at which the target was computed, in ms since
            the epoch.
    """

    record_type: int
    group_id: str
    member_id: str | None
    content: Any
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
    """All records of one decision as a block, encoded once: a `kcore.runtime.machine.RecordBlock`.

    Args:
        records: only `ConsumerRecord`s.

    Raises:
        TypeError, ValueError, OverflowError: a record cannot be encoded.
    """

    records: list[ConsumerRecord]
    size_bytes: int
    def __init__(self, records: list[Any]) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds the records to a batch. Returns False if a record did not fit."""

    def replay(self, shard: Any) -> None:
        """Applies the records to a group shard, with the same effect as their reference records.

        Raises:
            Exception: any error of the replay.
        """

def bind_consumer_records(
    makers: Mapping[int, Callable[[ConsumerRecord], Any]],
    find_group: Callable[[Any, str], Any],
    set_member_assignment: Callable[[Any, str, Any], None],
) -> None:
    """Sets the reference functions and the functions for replay, once per process.

    Args:
        makers: the functions that make the reference record, by record type.
        find_group: (shard, group id) -> the group, created if it does not exist.
        set_member_assignment: (group, member id, CurrentAssignment): sets the member's current assignment.

    Raises:
        ValueError: the keys of `makers` are not the five record types 3, 5, 6, 7 and 8.
    """

def in_one(records: list[Any]) -> Any:
    """Returns the records of a decision as one `ConsumerRecords`.

    Returns the list itself if any record is of another class or cannot be encoded.
    """

def member_metadata(group_id: str, member_id: str, metadata: Any) -> Any:
    """Returns the record with the metadata of a member that uses the consumer protocol of KIP-848 (type 5)."""

def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Any:
    """Returns the record of the group's epoch and the hash of its topics (type 3).

    Raises:
        OverflowError: a number exceeds 32 or 64 bits.
    """

def target_assignment(group_id: str, member_id: str, target: dict[bytes, tuple[int, ...]]) -> Any:
    """Returns the record of a member's target (type 7)."""

def assignment_epoch(group_id: str, epoch: int, timestamp_ms: int) -> Any:
    """Returns the record of the target assignment's epoch and computation time (type 6).

    Raises:
        OverflowError: a number exceeds 32 or 64 bits.
    """

def current_assignment(group_id: str, member_id: str, current: Any) -> Any:
    """Returns the record of a member's current assignment (type 8)."""
