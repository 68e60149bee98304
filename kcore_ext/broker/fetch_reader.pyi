from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

class FetchItem:
    """One partition of a fetch: the requested position and the partition to read.

    The fields of the position are those of a request's `FetchPartition`.

    Args:
        topic: the topic's name; None for an unknown id.
        topic_id: the topic's id, 16 bytes; zero if the request names topics by name.
        requested: the request's `FetchPartition`.
        partition: the partition to read; None if an earlier check has refused it.
        error: the error code of a refused partition.
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
        self, topic: str | None, topic_id: bytes, requested: Any, partition: Any = None, error: Any = 0
    ) -> None: ...
    def set_request(self, requested: Any) -> None:
        """Sets the requested position from a `FetchPartition`."""

@final
class SessionPartition(FetchItem):
    """A partition of a session: the last requested position and the last offsets sent to the client.

    Args:
        topic: the topic's name; None while the id is unknown.
        topic_id: the topic's id; zero in sessions that name topics by name.
        requested: the request's `FetchPartition`.
        uses_topic_ids: True if the session names topics by id.
    """

    high_watermark: int
    """The high watermark that the client knows; -1 for none."""
    local_log_start_offset: int
    """The log start offset that the client knows; -1 for none."""

    def __init__(self, topic: str | None, topic_id: bytes, requested: Any, uses_topic_ids: bool = False) -> None: ...
    @staticmethod
    def of(item: FetchItem, uses_topic_ids: bool) -> SessionPartition:
        """Makes the partition of a new session from the request that creates the session."""

    @property
    def name(self) -> tuple[str | bytes, int]:
        """The partition's key in the session: (topic name or topic id, partition)."""

    def update(self, data: Any) -> bool:
        """Stores the offsets of a partition's response.

        Returns True if the response has changes, so that it must be sent.
        """

def update_members(
    members: dict[tuple[str | bytes, int], SessionPartition],
    topics: Sequence[Any],
    by_id: bool,
    known: dict[Any, Any],
    max_name_length: int,
) -> bool:
    """Adds the partitions of a request to a session, or changes their positions in it.

    Args:
        members: the session's partitions by name.
        topics: the request's `FetchTopic`s.
        by_id: True if the session names topics by id.
        known: the existing topics (`TopicPartitions`), by id or by name.
        max_name_length: the length of the longest name that a topic may have.

    Returns:
        False if the topic name of a new partition is longer than `max_name_length`.
    """

@final
class FetchParams:
    """Parameters of a request that apply to all of its partitions.

    Args:
        version: the request's API version.
        read_committed: True to read up to the last stable offset instead of the high watermark.
        max_bytes: size limit of the response. If there is any batch, the response has at least one, regardless of the
            limit.
        min_bytes: smallest size of a response before the timeout; at most `max_bytes`.
        max_wait_ms: the timeout.
        node_id: this node's id, for responses that name the leader.
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
    """Result of reading all partitions of a request.

    Attributes:
        results: the `PartitionData` of each partition; None if it has no changes for the session.
        size_bytes: total size of the batches.
        failed: True if a partition has an error, or its log diverges from the client's.
        dirty: True if a partition has appends that are not durable.
        long: True if the request has read so much that its other partitions have no records in this response, so that
            waiting for more records would be useless.
    """

    @property
    def results(self) -> list[Any]: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def failed(self) -> bool: ...
    @property
    def dirty(self) -> bool: ...
    @property
    def long(self) -> bool: ...

@final
class FetchReader:
    """The reader of the partitions of requests; `tests.reference.fetch_reader.ReferenceReader` defines its behaviour.

    Args:
        read: generic path for one partition: `kcore.broker.data.fetch.read`.
        refused: makes the response of a partition that an earlier check has refused: (index, error) -> `PartitionData`.
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
        """Looks up the partitions of a request without a session, in the request's order.

        Args:
            topics: the request's `FetchTopic`s.
            by_id: True if the request names topics by id.
            known: the existing topics (`TopicPartitions`), by id or by name.
            may_read: returns True if the client may read a topic; None: the client may read all topics.
        """

    def current(
        self,
        members: Iterable[SessionPartition],
        find: Callable[[SessionPartition], None],
        may_read: Callable[[str], bool] | None,
    ) -> list[SessionPartition]:
        """Returns the partitions of a session, in the session's order.

        Args:
            members: the session's partitions.
            find: looks up the log of a session's partition that has none or a closed one.
            may_read: returns True if the client may read a topic; None: the client may read all topics.
        """

    def read(self, items: list[Any], params: FetchParams, sparse: bool) -> Reading:
        """Reads all partitions.

        A response has at most 2,000 partitions with an error; further partitions with an error are treated like
        partitions that the size limit excludes. A response of a session has at most 10,000 partitions with changed
        offsets and no records. Later responses have the remaining partitions.

        Args:
            items: the partitions to read.
            params: the request's parameters.
            sparse: True if `items` belong to a session, whose responses omit partitions without changes.

        Raises:
            LogError: a log cannot be read.
        """

    def pending_appends(self, items: list[Any], include_all: bool) -> list[tuple[Any, int]]:
        """Returns the appends that are not durable and must be in the response, as pairs (partition, end offset).

        Kafka with one replica makes an append readable at once. The result has the appends with acks=0, because the
        client of the fetch may have sent them just before. With `include_all` the result has all appends, for a fetch
        that has found too few bytes.
        """

    def idle(self, items: list[Any], params: FetchParams) -> bool:
        """Returns True if no partition has new data or an error.

        Also returns False if only the generic path can find out.
        """

    def news(self, items: list[Any], results: list[Any], members: dict[Any, SessionPartition]) -> list[Any]:
        """Selects the partition responses that have changes for the session and groups them by topic.

        Partitions with data move to the end of the session.
        """

    def by_topic(self, items: list[Any], results: list[Any]) -> list[Any]:
        """Groups partition responses by topic, in order; only adjacent partitions of a topic are grouped."""
