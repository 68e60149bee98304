"""The base class of the APIs that access groups, with the checks that precede the group's shard."""

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

GROUP_COST_US: Final = 10
"""The cost of describing a group without members, in microseconds."""

MEMBER_COST_US: Final = 2
"""The cost of describing a member, in microseconds."""

READ: Final = Operation.READ  # looked up once: see `NO_ERROR`

READ_GROUP: Final = (Operation.READ, ResourceType.GROUP)
"""The permission that the fast paths of all heartbeat APIs require."""

READ_GROUP_AND_TOPICS: Final = (Operation.READ, ResourceType.GROUP, ResourceType.TOPIC)
"""The permissions that the fast paths of OffsetCommit and TxnOffsetCommit require."""

_SURELY_FITS = (MAX_TEXT_BYTES - UUID_BYTES) // 4  # characters: UTF-8 takes at most four bytes per character


def can_name_a_member(text: str | None) -> bool:
    """Returns True if a member id that begins with `text` is not too long for the protocol.

    Member ids begin with the client id or the instance id.
    """
    return text is None or len(text) <= _SURELY_FITS or len(text.encode("utf-8")) <= MAX_TEXT_BYTES - UUID_BYTES


def visible_topics(authorizer: Authorizer | None, context: RequestContext) -> Callable[[str], bool] | None:
    """Returns a function that returns True for a topic that the client may DESCRIBE; None without an authorizer.

    The pattern in a subscription matches only topics that its client may DESCRIBE (KIP-848).
    """
    if authorizer is None:
        return None
    return lambda name: authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)


class GroupApi(Api[Request, Response]):
    """The base class of the APIs that access groups. The shard of a group serves the requests about the group.

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
        """Returns the first error in Kafka's order of checks; NONE if the request may reach the group's shard.

        Args:
            context: the request's context.
            operation: the operation that the client needs on the group.
            group_id: the group id in the request.
            may_be_empty: True if "" is a valid group id. Clients may have committed offsets under this id.
        """
        if self._authorizer is not None and not self.allowed(context, operation, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return NO_ERROR if group_id or may_be_empty else ErrorCode.INVALID_GROUP_ID

    def cost_of_description(self, group_id: str) -> int:
        """Returns the cost of describing a group with its members, in microseconds."""
        shard = self._shards.find(group_id)
        group = None if shard is None else shard.machine.groups.get(group_id)
        return GROUP_COST_US if group is None else GROUP_COST_US + MEMBER_COST_US * len(group.members)

    def run_part(self, context: RequestContext, group_id: str, part: Request, refusal: ErrorCode) -> Any:
        """Runs one group's part of a request about several groups in the shard of the group.

        Args:
            context: the request's context.
            group_id: the group whose shard runs the part.
            part: the request, reduced to that group.
            refusal: the error of earlier checks. The shard runs the part only if this error is NONE.

        Returns:
            The response, or a `Pending`. An error of this group does not affect the other groups of the request.
        """
        if refusal:
            return self.error(context, part, refusal)
        try:
            return self._shards.of(group_id).run(self, context, part)
        except KafkaError as error:
            return self.error(context, part, error.code, error.message)
