from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, final

@final
class OffsetAndMetadata:
    """The offset that a commit stores for one partition: committed, or pending in a transaction.

    The object in memory is also the value of its record.

    It is immutable except for its record offset, which replay sets once.

    Attributes:
        record_offset: the offset of its record in the shard's log, -1 before replay. Of two committed offsets of a
            partition, the one with the higher record offset is valid.
        committed_offset: the offset of the next record for the group.
        leader_epoch: the leader epoch of the record before the offset (KIP-320); -1 if unknown.
        metadata: the client's metadata; "" for none.
        commit_timestamp_ms: time of the commit, milliseconds since the epoch.
        expire_timestamp_ms: time of expiration, milliseconds since the epoch; -1: the group's retention time applies
            (KIP-211).
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
        """Sets the record offset; returns the object itself. Raises ValueError if it is already set."""

    def encode_value(self, version: int) -> bytes:
        """Encodes the record's value. `version` is 1 for an offset with an expiration time, and 4 for other offsets.

        Raises ValueError if the value cannot be encoded.
        """

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
        """Returns True if the offset may belong to the topic with this id, because the ids are equal or one of them is
        unknown.
        """

@final
class CommitKey:
    """The key of an offset record. Its encoded bytes equal those of `OffsetCommitKey`."""

    def __init__(self, group: str, topic: str, partition: int) -> None: ...
    @property
    def group(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    def encode_key(self) -> bytes:
        """Encodes the key as in the log. Raises ValueError if a name is too long for a record."""

@final
class OffsetDecoder:
    """A decoder of offset records.

    Each load uses its own decoder, because the decoder keeps data of the last record.
    """

    def decode(self, key: bytes, value: bytes | None) -> tuple[CommitKey, OffsetAndMetadata | None] | None:
        """Decodes an offset record (key types 0 and 1, value versions 0 to 4) or its tombstone.

        Returns:
            A tuple (key, value). The value has no record offset yet; it is None for a tombstone. The result is None
            for other records, and for bytes that this decoder leaves to the codec.
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
        """Stores the committed offsets of uncompressed, non-transactional batches in the dictionaries of their topics.

        Args:
            run: pairs (base offset, whole batch); CRCs are not checked.
            start: the index of the first batch.
            stop: the index after the last batch.
            from_offset: records below this offset are skipped.
            partitions_of: returns the dictionary for the offsets of a group and topic.
            other: called with (offset, key, value) for tombstones and for records that only the codec decodes.

        Returns:
            The number of offsets that did not replace an earlier offset of their partition.

        Raises:
            CorruptBatchError: a batch is damaged; the records before the damage were replayed.
        """

def fetch_responses(
    response_type: Callable[..., Any],
    indexes: Iterable[int],
    offsets: Mapping[int, OffsetAndMetadata],
    unstable: Container[int],
    topic_id: bytes | None,
) -> list[Any]:
    """Returns the responses for one topic of a fetch.

    Args:
        response_type: makes the response of a partition from partition_index, committed_offset,
            committed_leader_epoch, metadata, error_code.
        indexes: the partitions, in the order of the response.
        offsets: the topic's committed offsets.
        unstable: the partitions with pending offsets, if the request requires stable offsets (KIP-447).
        topic_id: the topic's id. An offset with another topic id is ignored, because it belongs to an earlier topic
            with the same name. None: offsets with any topic id are valid.
    """
