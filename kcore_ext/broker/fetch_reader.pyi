from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

class FetchItem:
    """One partition of a fetch: the requested position and the partition to read.

    The attributes of the position have the same names as in the request's `FetchPartition`.

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
    """The high watermark in the last response to the client; -1 before the first response."""
    local_log_start_offset: int
    """The log start offset in the last response to the client; -1 before the first response."""

    def __init__(self, topic: str | None, topic_id: bytes, requested: Any, uses_topic_ids: bool = False) -> None: ...
    @staticmethod
    def of(item: FetchItem, uses_topic_ids: bool) -> SessionPartition:
        """Makes the partition of a new session from the request that creates the session."""

    @property
    def name(self) -> tuple[str | bytes, int]:
        """The partition's key in the session: (topic name or topic id, partition)."""

    def update(self, data: Any) -> bool:
        """Stores the offsets in the response for this partition.

        Returns True if the server must send this response to the client. This is the case if the response has records,
        an error, or other offsets than the partition's previous response.
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
        max_bytes: size limit of the response. Only the first batch may exceed it.
        min_bytes: a response with fewer bytes is sent only after the timeout. Values above `max_bytes` are reduced to
            `max_bytes`.
        max_wait_ms: the timeout, in ms.
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
        results: the `PartitionData` of each partition; None if the session's client already has the partition's state.
        size_bytes: total size of the batches.
        failed: True if a partition has an error, or its log diverges from the client's.
        dirty: True if a partition has appends that are not durable.
        long: True if reading stopped at a limit on reads, batches or aborted transactions. The response then has no
            records of the remaining partitions, and is sent without waiting for more records.
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
    """The reader of the partitions of Fetch requests.

    `tests.reference.fetch_reader.ReferenceReader` is its reference implementation.

    Args:
        read: the function `kcore.broker.data.fetch.read`. It reads a partition in the cases that this class does not
            cover.
        refused: called with (partition number, error code) for a partition that an earlier check has refused; returns
            its `PartitionData`.
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
            find: called for each session partition whose attribute `partition` is None or closed. It looks up the
                partition again.
            may_read: returns True if the client may read a topic; None: the client may read all topics.
        """

    def read(self, items: list[Any], params: FetchParams, sparse: bool) -> Reading:
        """Reads all partitions.

        A response has at most 2,000 partitions with an error. Further partitions with an error are treated like
        partitions that do not fit in the response. A response of a session has at most 10,000 partitions that have
        changed offsets but no records. Later responses contain the other partitions.

        Args:
            items: the partitions to read.
            params: the request's parameters.
            sparse: True if `items` belong to a session. Its responses omit partitions without changes.

        Raises:
            LogError: a log cannot be read.
        """

    def pending_appends(self, items: list[Any], include_all: bool) -> list[tuple[Any, int]]:
        """Returns the partitions whose latest appends must become durable before the fetch is completed.

        In Kafka with one replica, a consumer can read an append immediately. In kcore, it can read only durable data.
        The fetch must wait for appends with acks=0, because its client may have sent them immediately before the fetch.

        Args:
            items: the partitions of the fetch.
            include_all: True to include appends with any acks, because the fetch has found too few bytes.

        Returns:
            Pairs of a partition and its end offset.
        """

    def idle(self, items: list[Any], params: FetchParams) -> bool:
        """Returns True if no partition has new data or an error.

        Returns False, too, if only the generic path can check a partition.
        """

    def news(self, items: list[Any], results: list[Any], members: dict[Any, SessionPartition]) -> list[Any]:
        """Selects the partition responses that have changes for the session and groups them by topic.

        Partitions with data move to the end of the session.
        """

    def by_topic(self, items: list[Any], results: list[Any]) -> list[Any]:
        """Groups adjacent partition responses of the same topic. The order of the responses does not change."""
