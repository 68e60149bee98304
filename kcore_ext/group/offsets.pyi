from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, final

@final
class OffsetAndMetadata:
    """One committed offset: the value of its record, and what memory keeps of it, materialised or pending.

    Immutable but for its place in the log, which it is given once, when its record is replayed.

    Attributes:
        record_offset: where its record stands in the shard's log, -1 before that is known; of two offsets the one with
            the later record wins.
        committed_offset: the offset that was committed.
        leader_epoch: of the record before it (KIP-320); -1 if unknown.
        metadata: the client's remark; "" for none.
        commit_timestamp_ms: when it was committed, milliseconds since the epoch.
        expire_timestamp_ms: when it expires, milliseconds since the epoch; -1 for the group's retention (KIP-211).
        topic_id: 16 bytes; zeroes if unknown.

    Raises:
        OverflowError: a number does not fit its type in the record.
        ValueError: the topic id does not have 16 bytes.
    """

    def __init__(
        self,
        record_offset: int,
        committed_offset: int,
        leader_epoch: int,
        metadata: str,
        commit_timestamp_ms: int,
        expire_timestamp_ms: int,
        topic_id: bytes,
    ) -> None: ...
    def place(self, record_offset: int) -> OffsetAndMetadata:
        """Its record stands at `record_offset`; returns itself. ValueError if it already stands somewhere."""

    def encode_value(self, version: int) -> bytes:
        """The value of its record: version 4, or 1 for one with an expiry time. ValueError if it cannot be written."""

    @property
    def record_offset(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def metadata(self) -> str: ...
    @property
    def commit_timestamp_ms(self) -> int: ...
    @property
    def expire_timestamp_ms(self) -> int: ...
    @property
    def topic_id(self) -> bytes: ...
    def belongs_to(self, topic_id: bytes) -> bool:
        """Whether it may be an offset of the topic with that id: the ids are equal, or one of them is unknown."""

@final
class CommitKey:
    """The key of an offset's record, as small and fast as its value; the bytes are those of `OffsetCommitKey`."""

    def __init__(self, group: str, topic: str, partition: int) -> None: ...
    @property
    def group(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    def encode_key(self) -> bytes:
        """Its bytes as they stand in the log. ValueError if a name is too long for a record."""

@final
class OffsetDecoder:
    """Reads offset records of a log, one after the other. One decoder a load."""

    def decode(self, key: bytes, value: bytes | None) -> tuple[CommitKey, OffsetAndMetadata | None] | None:
        """A record of an offset (key types 0 and 1, value versions 0 to 4) or its tombstone.

        Returns:
            Key and value, not placed yet; None for other records and for bytes that are unusual in any way: those are
            for the codec to read or to refuse.
        """

    def replay(
        self,
        run: list[tuple[int, bytes]],
        start: int,
        stop: int,
        from_offset: int,
        partitions_of: Callable[[str, str], dict[int, OffsetAndMetadata]],
        other: Callable[[int, bytes | None, bytes | None], Any],
    ) -> int:
        """Puts the offsets of uncompressed batches, none of them a transaction's, where they belong.

        Args:
            run: pairs (base offset, whole batch); CRCs are not checked.
            start: the index of the first batch.
            stop: the index behind the last.
            from_offset: records below it are passed over.
            partitions_of: where the offsets of a group and topic are kept.
            other: called with (offset, key, value) for what `decode` leaves to the codec, and for tombstones.

        Returns:
            How many of the offsets are new, that is: did not take another one's place.

        Raises:
            CorruptBatchError: a batch is damaged; what stands before the damage was replayed.
        """

def new_offsets(
    group_id: str,
    topic: str,
    topic_id: bytes,
    partitions: Iterable[Any],
    codes: list[int] | None,
    now_ms: int,
    expire_ms: int,
    limit: int,
    records: list[Any],
    record_type: type[tuple[Any, ...]],
    answer_type: Callable[..., Any],
) -> list[Any]:
    """The records and answers for one topic of a commit.

    Args:
        group_id: the group.
        topic: the topic's name.
        topic_id: its id, 16 bytes; zeroes if it is not to be kept.
        partitions: as they stand in the request.
        codes: a code for each that was refused before, 0 for the others; None if none was.
        now_ms: when it is committed, milliseconds since the epoch.
        expire_ms: when it expires, milliseconds since the epoch; -1: with its group. A record with an expiry time has
            neither leader epoch nor topic id.
        limit: of the metadata, in UTF-16 code units.
        records: gets a record for each partition that is accepted.
        record_type: the named tuple (key, value, version) that a record is.
        answer_type: makes an answer of partition_index and error_code.

    Returns:
        The answers in the order of `partitions`.

    Raises:
        ValueError: something does not fit in a record.
    """

def answer_fetch(
    answer_type: Callable[..., Any],
    indexes: Iterable[int],
    offsets: Mapping[int, OffsetAndMetadata],
    unstable: Container[int],
    topic_id: bytes | None,
) -> list[Any]:
    """The answers for one topic of a fetch.

    Args:
        answer_type: makes an answer of partition_index, committed_offset, committed_leader_epoch, metadata, error_code.
        indexes: the partitions, answered in this order.
        offsets: the topic's materialised offsets.
        unstable: the partitions with offsets of open transactions, if these matter (KIP-447).
        topic_id: an offset committed for a topic of the same name with another id is none; None: any is good.
    """
