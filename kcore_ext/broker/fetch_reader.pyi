from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

class FetchItem:
    """One partition that a fetch reads: what is asked, and where it is.

    The fields of the position are those of a request's `FetchPartition`.

    Args:
        topic: the topic's name; None for an unknown id.
        topic_id: its id, 16 bytes; zero where the request goes by name.
        asked: the request's `FetchPartition`.
        partition: where it is read; None if it was refused before.
        error: why it was refused.
    """

    topic: str | None
    topic_id: bytes
    index: int
    """The partition's number."""
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    partition_max_bytes: int
    partition: Any
    error: Any

    def __init__(
        self, topic: str | None, topic_id: bytes, asked: Any, partition: Any = None, error: Any = 0
    ) -> None: ...
    def ask(self, asked: Any) -> None:
        """Takes over a position: what the client asks for from now on."""

@final
class SessionPartition(FetchItem):
    """A partition of a session: what the client asked for last, and what it was told last.

    Args:
        topic: the topic's name, None while its id is unknown here.
        topic_id: its id, zero in sessions that go by name.
        asked: the request's `FetchPartition`.
        uses_topic_ids: whether the session goes by id.
    """

    high_watermark: int
    """The one the client knows, -1 for none."""
    local_log_start_offset: int
    """The log start the client knows, -1 for none."""

    def __init__(self, topic: str | None, topic_id: bytes, asked: Any, uses_topic_ids: bool = False) -> None: ...
    @staticmethod
    def of(item: FetchItem, uses_topic_ids: bool) -> SessionPartition:
        """The partition of a new session, as the request that founds it asks for it."""

    @property
    def name(self) -> tuple[str | bytes, int]:
        """Its key in the session: (topic name or topic id, partition)."""

    def tell(self, told: Any) -> bool:
        """Remembers an answer; returns whether the client must hear it, because it has anything new."""

@final
class FetchParams:
    """What holds for all partitions of a request.

    Args:
        version: the request's API version.
        read_committed: readers see what lies below the last stable offset, not the high watermark.
        max_bytes: the most bytes of an answer (but one batch is always returned if there is one).
        min_bytes: the fewest bytes worth an answer before the time is up; at most `max_bytes`.
        max_wait_ms: how long to wait for them.
        node_id: who leads, for answers that say so.
    """

    max_bytes: int

    def __init__(
        self, version: int, read_committed: bool, max_bytes: int, min_bytes: int, max_wait_ms: int, node_id: int
    ) -> None: ...
    @property
    def version(self) -> int: ...
    @property
    def read_committed(self) -> bool: ...
    @property
    def min_bytes(self) -> int: ...
    @property
    def max_wait_ms(self) -> int: ...
    @property
    def node_id(self) -> int: ...

@final
class Reading:
    """What was read of all partitions of a request.

    Attributes:
        told: of each of them its `PartitionData`; None where a session has heard all that there is to say.
        size_bytes: the bytes of all batches.
        failed: whether any has an error or diverges.
        dirty: whether to any of them something was appended that no commit has made durable yet.
    """

    @property
    def told(self) -> list[Any]: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def failed(self) -> bool: ...
    @property
    def dirty(self) -> bool: ...

@final
class FetchReader:
    """Reads the partitions of requests; `kcore.broker.data.reference_fetch.ReferenceReader` says how, in plain Python.

    Args:
        read: one partition's answer in full, for partitions that are not plain: see `kcore.broker.data.fetch.read`.
        refused: the answer of a partition that was refused before: (index, error) -> `PartitionData`.
        partition_data: the class `PartitionData`.
        topic_response: the class `FetchableTopicResponse`.
        errors: the class `ErrorCode`.
    """

    def __init__(
        self,
        *,
        read: Callable[..., Any],
        refused: Callable[[int, Any], Any],
        partition_data: type,
        topic_response: type,
        errors: Any,
    ) -> None: ...
    def requested(
        self, topics: Sequence[Any], by_id: bool, known: dict[Any, Any], may_read: Callable[[str], bool] | None
    ) -> list[FetchItem]:
        """The partitions of a request without a session, in its order.

        Args:
            topics: the request's `FetchTopic`s.
            by_id: whether they go by id.
            known: the topics there are (`TopicPartitions`), by id or by name.
            may_read: whether the client may read a topic; None: it may read all.
        """

    def current(
        self, members: Iterable[SessionPartition], find: Callable[[SessionPartition], None]
    ) -> list[SessionPartition]:
        """The partitions of a session, in its order. `find` looks up those that were not there, or are gone."""

    def read(self, items: list[Any], params: FetchParams, sparse: bool) -> Reading:
        """Reads all partitions.

        Args:
            items: what is read.
            params: the request's limits.
            sparse: whether `items` are a session's, which is not told what it has heard.

        Raises:
            LogError: a log cannot be read.
        """

    def pending_appends(self, items: list[Any], hungry: bool) -> list[tuple[Any, int]]:
        """Appends under way that the answer has to show: (partition, its end). With one replica, Kafka has them
        readable at once.

        What was appended without acks, perhaps just before on the same connection; and whatever there is, for a poll
        that found too little (`hungry`).
        """

    def idle(self, items: list[Any], params: FetchParams) -> bool:
        """Whether no partition has anything to read or to object; False may also mean that somebody must look."""

    def news(self, items: list[Any], told: list[Any], members: dict[Any, SessionPartition]) -> list[Any]:
        """Of a session's answers those that the client must hear, under their topics; those with data go to the end
        of the session.
        """

    def by_topic(self, items: list[Any], told: list[Any]) -> list[Any]:
        """Answers under their topics, in order; neighbours of the same topic stand together."""
