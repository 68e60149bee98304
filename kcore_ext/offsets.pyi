from typing import final

@final
class OffsetAndMetadata:
    """One committed offset, materialised or pending. Made by replaying its record; immutable after that.

    Attributes:
        record_offset: where its record stands in the shard's log; of two offsets the one with the later record wins.
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
