from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, final, overload

from kcore_ext.batch import BatchBuilder
from kcore_ext.group.offsets import OffsetAndMetadata

R = TypeVar("R", bound=tuple[Any, ...])

@final
class OffsetBlock(Generic[R]):
    """The offsets of one commit of a group. As a sequence, it contains their records in request order.

    The block makes a record only when the record is accessed. `append_to` and `put_into` make no records, and therefore
    take a fraction of the time.

    Args:
        group_id: the group that commits the offsets.
        now_ms: time of the commit, milliseconds since the epoch.
        expire_ms: time of expiration, milliseconds since the epoch; -1: the group's retention time applies. A record
            with an expiration time has neither leader epoch nor topic id.
        limit: the maximum length of the metadata, in UTF-16 code units.
        record_type: the named tuple (key, value, version) of a record.

    Attributes:
        size_bytes: upper bound of the records' size in a batch.
    """

    def __init__(self, group_id: str, now_ms: int, expire_ms: int, limit: int, record_type: type[R]) -> None: ...
    @property
    def group_id(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[R]: ...
    @overload
    def __getitem__(self, place: int) -> R: ...
    @overload
    def __getitem__(self, place: slice) -> list[R]: ...
    def add(
        self,
        topic: str,
        topic_id: bytes,
        partitions: Sequence[Any],
        codes: list[int] | None,
        response_type: Callable[..., Any],
        accepted: dict[int, Any],
    ) -> list[Any]:
        """Adds the offsets of one topic of the request.

        Args:
            topic: the topic's name.
            topic_id: the topic's id, 16 bytes; zeroes if the id must not be stored.
            partitions: the partitions of the request.
            codes: the error code of each partition, which is 0 unless an earlier check has refused the partition; None
                if no partition was refused.
            response_type: makes the response of a partition from partition_index and error_code.
            accepted: the shared responses with code 0, by partition. The function adds missing responses.

        Returns:
            The responses in the order of `partitions`.

        Raises:
            OverflowError: a number does not fit in a record.
            ValueError: a text does not fit in a record.
        """

    def topic_responses(
        self,
        planned: list[tuple[Any, Any, list[int] | None]],
        with_topic_ids: bool,
        topic_type: type,
        by_id: bool,
        response_type: Callable[..., Any],
        accepted: dict[int, Any],
    ) -> list[Any]:
        """Adds the offsets of all topics of a request, and makes the topics of the response.

        Args:
            planned: the topics of a `CommitPlan`: the topic in the request, the existing topic, and the error codes of
                its partitions.
            with_topic_ids: True to store the topics' ids with the offsets.
            topic_type: the type of a topic in the response. Its arguments are `name`, `partitions` and, with `by_id`,
                `topic_id`.
            by_id: True if the topics in the response have ids.
            response_type: makes the response of a partition from partition_index and error_code.
            accepted: the shared responses with code 0, by partition. The function adds missing responses.

        Returns:
            The topics of the response, in the order of `planned`.
        """

    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds the records to a batch, all with the same timestamp.

        Returns False if a record does not fit; earlier records stay in the batch.
        """

    def put_into(
        self, groups: dict[str, dict[str, dict[int, OffsetAndMetadata]]], group_id: str, first_offset: int
    ) -> int:
        """Stores the offsets in the dictionaries of an offset store.

        Args:
            groups: group -> topic -> partition -> offset.
            group_id: the group. This string object becomes the group's key in `groups`.
            first_offset: the record offset of the first record. The other records have the following offsets.

        Returns:
            The number of partitions that had no offset before.

        Raises:
            ValueError: the block was stored before.
        """

@final
class CommitPlan:
    """An offset commit whose topics and partitions were checked. It contains the request and the results of the checks.

    Attributes:
        request: the OffsetCommit or TxnOffsetCommit request.
        topics: the topics in request order, as tuples (request topic, topic info, codes). `codes` has an error code for
            each partition, or is None if no partition is refused. Iterating over the plan also yields these tuples,
            which are created at the first access.
        empty: True if the checks have accepted no partition.
    """

    def __init__(self, request: Any, topics: list[tuple[Any, Any, list[int] | None]], empty: bool) -> None: ...
    @property
    def request(self) -> Any: ...
    @property
    def topics(self) -> list[tuple[Any, Any, list[int] | None]]: ...
    @property
    def empty(self) -> bool: ...
    def __iter__(self) -> Iterator[tuple[Any, Any, list[int] | None]]: ...

def plan_topics(
    request: Any,
    find: Callable[[Any], Any],
    by_id: bool,
    refusal: Callable[[str], int] | None,
    unknown: int,
    no_partition: int,
    no_topic: Any,
) -> CommitPlan:
    """Checks the topics and partitions of a commit.

    Args:
        request: the request, whose topics have a name or a topic_id, and partitions.
        find: called with a topic's name or id; returns the topic info (name, topic_id, number of partitions), or None
            for an unknown topic.
        by_id: True if the request names topics by id.
        refusal: called with a topic's name; returns the error code if the client may not commit to the topic, else 0.
            None allows all topics.
        unknown: the error code for an unknown topic. If the request names topics by name, the code of `refusal` has
            precedence.
        no_partition: the error code for a partition that the topic does not have.
        no_topic: the topic info that the plan contains for a topic whose partitions are all refused.
    """

def unknown_partitions(partitions: Sequence[Any], count: int, code: int) -> list[int] | None:
    """Returns the error code of each partition: `code` if its number is at least `count`, else 0.

    Returns None if all codes are 0.
    """
