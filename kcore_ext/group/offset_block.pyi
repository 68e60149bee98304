from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, final, overload

from kcore_ext.batch import BatchBuilder
from kcore_ext.group.offsets import OffsetAndMetadata

R = TypeVar("R", bound=tuple[Any, ...])

@final
class OffsetBlock(Generic[R]):
    """The offsets that one commit of a group brings: a sequence of their records, in the request's order.

    The records are made when somebody looks at them. Whoever does not need to look writes them with `append_to` and
    puts them into a store with `put_into`, which say the same and take a fraction of the time.

    Args:
        group_id: the group.
        now_ms: when they are committed, milliseconds since the epoch.
        expire_ms: when they expire, milliseconds since the epoch; -1: with the group. A record with an expiry time has
            neither leader epoch nor topic id.
        limit: of the metadata, in UTF-16 code units.
        record_type: the named tuple (key, value, version) that a record is.

    Attributes:
        size_bytes: what the records take in a batch at most.
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
        answer_type: Callable[..., Any],
        accepted: dict[int, Any],
    ) -> list[Any]:
        """Takes what one topic of the request brings.

        Args:
            topic: the topic's name.
            topic_id: its id, 16 bytes; zeroes if it is not to be kept.
            partitions: as they stand in the request.
            codes: a code for each that was refused before, 0 for the others; None if none was.
            answer_type: makes an answer of partition_index and error_code.
            accepted: answers with code 0 by partition, shared by all who get one; what is missing is added to it.

        Returns:
            The answers in the order of `partitions`.

        Raises:
            OverflowError: a number does not fit in a record.
            ValueError: a text does not fit in a record.
        """

    def answer(
        self,
        planned: list[tuple[Any, Any, list[int] | None]],
        with_topic_ids: bool,
        topic_type: type,
        by_id: bool,
        answer_type: Callable[..., Any],
        accepted: dict[int, Any],
    ) -> list[Any]:
        """Takes what all topics of a plan bring: `add` for each, and a topic of the response around its answers.

        Args:
            planned: the topics of a `CommitPlan`.
            with_topic_ids: whether the topics' ids are kept with the offsets.
            topic_type: makes a topic of the response of its name, of its topic_id if `by_id`, and of its partitions.
            by_id: whether topics of the response have ids.
            answer_type: as in `add`.
            accepted: as in `add`.
        """

    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds the records to a batch, all with the same timestamp. False if one does not fit; those before it stay."""

    def put_into(
        self, groups: dict[str, dict[str, dict[int, OffsetAndMetadata]]], group_id: str, first_offset: int
    ) -> int:
        """Puts the offsets where a store keeps those of groups, topics and partitions.

        Args:
            groups: the store's.
            group_id: the group, as the string that is to be kept.
            first_offset: where the first record stands in the log; the others follow it.

        Returns:
            How many of the offsets are new, that is: did not take another one's place.

        Raises:
            ValueError: the records already stand somewhere.
        """

@final
class CommitPlan:
    """A commit on its way to its group: the request and what the checks in front found.

    Attributes:
        request: the request.
        topics: its topics in its order: as it stands in the request; what is known of it; a code for each of its
            partitions, None if none of them is refused. To iterate over the plan is to iterate over them; who does not
            look at them does not have them made.
        empty: whether nothing is left for the group to look at.
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
        request: with topics of a name or topic_id, and partitions.
        find: what is known of a topic, by its name or id: name, topic_id, partitions (how many); None for no topic.
        by_id: whether the request names topics by id.
        refusal: the code for who may not commit to a topic of that name, 0 who may; None: everybody may.
        unknown: the code for a topic that there is not. It goes before `refusal` by id, behind it by name.
        no_partition: the code for a partition that its topic does not have.
        no_topic: stands in the plan for a topic of which all is refused.
    """

def unknown_partitions(partitions: Sequence[Any], count: int, code: int) -> list[int] | None:
    """`code` for each partition of a request that is not among the first `count`, 0 for the others; None if all are."""
