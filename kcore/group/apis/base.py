"""The common checks of all APIs about groups, before a request reaches the shard of its group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from kcore.errors import KafkaError
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.runtime.api import Api, RequestContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.shards import Shards

Request = TypeVar("Request")
Response = TypeVar("Response")

MAX_TEXT_BYTES: Final = 32_767
"""Maximum length of text in requests, responses and records: the length is an int16."""

UUID_BYTES: Final = 37
"""Length of a member id's suffix: a dash and a UUID."""

GROUP_COST: Final = 10
"""The cost of describing a group without members, in microseconds."""

MEMBER_COST: Final = 2
"""The cost of describing a member, in microseconds."""

READ: Final = Operation.READ  # looked up once: see `NO_ERROR`

READ_GROUP: Final = (Operation.READ, ResourceType.GROUP)
"""The permission that the fast paths of all heartbeat APIs require."""

READ_GROUP_AND_TOPICS: Final = (Operation.READ, ResourceType.GROUP, ResourceType.TOPIC)
"""The permissions that the fast paths of OffsetCommit and TxnOffsetCommit require."""

_SURELY_FITS = (MAX_TEXT_BYTES - UUID_BYTES) // 4  # characters: UTF-8 takes at most four bytes per character


def can_name_a_member(text: str | None) -> bool:
    """Returns True if a member id made of this client id or instance id does not exceed the maximum length."""
    return text is None or len(text) <= _SURELY_FITS or len(text.encode("utf-8")) <= MAX_TEXT_BYTES - UUID_BYTES


def visible_topics(authorizer: Authorizer | None, context: RequestContext) -> Callable[[str], bool] | None:
    """Returns a function that tests if the client may DESCRIBE a topic; None without an authorizer.

    The patterns of a client match only topics that pass this test (KIP-848).
    """
    if authorizer is None:
        return None
    return lambda name: authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)


class GroupApi(Api[Request, Response]):
    """An API about groups, each of which is served by its own shard.

    Args:
        shards: the group shards.
        authorizer: checks permissions; None allows all.
    """

    __slots__ = ("_authorizer", "_shards")

    def __init__(self, shards: Shards[GroupShard], authorizer: Authorizer | None = None) -> None:
        self._shards = shards
        self._authorizer = authorizer

    def allowed(self, context: RequestContext, operation: Operation, group_id: str) -> bool:
        """Returns True if the client may do the operation on the group."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.allowed(context, operation, ResourceType.GROUP, group_id)

    def refusal(
        self, context: RequestContext, operation: Operation, group_id: str, *, may_be_empty: bool = False
    ) -> ErrorCode:
        """Returns the first error in Kafka's order of checks, NONE if the request may reach the group's shard.

        Args:
            context: the request's context.
            operation: the operation on the group.
            group_id: the group.
            may_be_empty: whether "" is a valid group id, because the API also serves offsets that were committed under
                this id.
        """
        if self._authorizer is not None and not self.allowed(context, operation, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return NO_ERROR if group_id or may_be_empty else ErrorCode.INVALID_GROUP_ID

    def cost_of_description(self, group_id: str) -> int:
        """Returns the cost of describing a group, in microseconds. The cost depends on the number of members."""
        shard = self._shards.find(group_id)
        group = None if shard is None else shard.machine.groups.get(group_id)
        return GROUP_COST if group is None else GROUP_COST + MEMBER_COST * len(group.members)

    def run_part(self, context: RequestContext, group_id: str, part: Request, refusal: ErrorCode) -> Any:
        """Runs the part of a request that concerns one of several groups.

        Args:
            context: the request's context.
            group_id: the group.
            part: the request, reduced to that group.
            refusal: the error of earlier checks; the part runs only if this is NONE.

        Returns:
            The response, or a `Pending`. An error of this group does not affect the other groups of the request.
        """
        if refusal:
            return self.error(context, part, refusal)
        try:
            return self._shards.of(group_id).run(self, context, part)
        except KafkaError as error:
            return self.error(context, part, error.code, error.message)
