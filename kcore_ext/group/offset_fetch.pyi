from typing import Any, final

from kcore_ext.runtime.clock import Now

class OffsetCounters:
    """The counters of a shard's offsets that compiled code changes.

    Attributes:
        commits: offsets committed since the load, in transactions or not (`offset-commit-count`).
        offset_count: number of committed offsets, without pending offsets (Kafka's gauge `offset-count`).
    """

    commits: int
    offset_count: int

@final
class OffsetTables:
    """The parts of a group shard that the fast paths of offset requests use. The shard never replaces these objects.

    Args:
        groups: group id -> group.
        offsets: group id -> topic -> partition -> committed `OffsetAndMetadata`.
        pending: group id -> topic -> partition -> producers with a pending offset. No inner dictionary is empty.
        counters: the counters of the shard's offsets.
        now: the time of the current round.
        metadata_max_bytes: the maximum size of an offset's metadata (`offset.metadata.max.bytes`).
    """

    def __init__(
        self,
        groups: dict[str, Any],
        offsets: dict[str, Any],
        pending: dict[str, Any],
        counters: OffsetCounters,
        now: Now,
        metadata_max_bytes: int,
    ) -> None: ...

class OffsetFetchFastPath:
    """The fast path of OffsetFetch. It serves valid requests for some or all topics of one group.

    It caches the last response of some groups. It reuses a cached response as long as the shard still stores every
    offset object of the response. The connection then does not encode the response again.

    Args:
        api: the API, for responses that wait for a commit.
        shards: the group shards, whose machines have `offset_tables`.
        topics: the cluster's topics.
        permissions: the authorizer's `allowed`, `Operation.DESCRIBE`, `ResourceType.GROUP` and
            `ResourceType.TOPIC`; None allows all.
        request: the class of the request.
        response: the class of the response.
    """

    def __init__(
        self,
        api: Any,
        shards: Any,
        topics: Any,
        permissions: tuple[Any, Any, Any, Any] | None,
        *,
        request: type,
        response: type,
    ) -> None: ...
    @property
    def served(self) -> int:
        """The number of requests that the fast path has served."""

    @property
    def reused(self) -> int:
        """The number of requests served with a cached response."""

    @property
    def cache_size(self) -> int:
        """The number of cached responses: at most 1,024, each of at most 64 partitions."""

    def serve(self, context: Any, request: Any) -> Any:
        """Reads the offsets of a group.

        Returns:
            The response; a `Pending` that waits for the commit of the offsets in the response; or None if the generic
            path must serve the request.
        """
