from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

@final
class OffsetTables:
    """The dictionaries of a group shard that a fetch looks into: the shard's own, for as long as it lives.

    Args:
        groups: groups by id.
        offsets: group id: topic: partition: materialised `OffsetAndMetadata`.
        pending: group id: topic: partition: producers with a pending offset. Dictionaries that are empty are not there.
    """

    def __init__(self, groups: dict[str, Any], offsets: dict[str, Any], pending: dict[str, Any]) -> None: ...

class OffsetFetchCore:
    """The part of `OffsetFetchApi` that is used for the usual request: one group, some topics or all, no error.

    The last answers of some groups are remembered, and given out again while every offset in them is still the same
    object: the same question then has the same response object, whose bytes a connection need not make again.

    Attributes:
        quick: how many requests were answered here.
        again: how many of these with a response that was given out before.
    """

    request_type: ClassVar[type[Any]]
    response_type: ClassVar[type[Any]]

    def _serve(
        self,
        shards: dict[int, Any],
        partitions: int,
        by_id: Callable[[bytes], Any],
        by_name: Callable[[str], Any],
        rights: tuple[Any, ...] | None,
    ) -> None:
        """Begins to answer; before that, every request goes to `handle_plainly`.

        Args:
            shards: the group shards by partition. Their machines have `offset_tables`.
            partitions: the number of partitions of all nodes.
            by_id: the topic of an id, None if there is none.
            by_name: the topic of a name, likewise.
            rights: an authorizer's `allowed`, and what it is asked: the operation, and the kinds of groups and topics.
                What it refuses is refused by the plain way. None: everything is allowed.
        """

    @property
    def quick(self) -> int: ...
    @property
    def again(self) -> int: ...
    @property
    def remembered(self) -> int:
        """Of how many groups an answer is remembered: 1,024 at most, each of up to 64 partitions."""

    def handle(self, context: Any, request: Any) -> Any:
        """Serves one request: the response, or a `Pending` if it must wait for the commit of what it stands on."""

    def handle_plainly(self, context: Any, request: Any, told: Sequence[tuple[Any, str, bool]] = ()) -> Any:
        """The same in full, for every request; subclasses have it.

        Args:
            context: who asks.
            request: the request.
            told: what the authorizer said to it already: the kind of resource, its name, whether it is allowed.
        """
