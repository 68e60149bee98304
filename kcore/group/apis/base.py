"""What APIs about groups have in common: what is checked before a request goes to the shard of its group."""

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
"""The longest text that requests, responses and records can hold: lengths are an int16."""

UUID_BYTES: Final = 37
"""What a member id has behind the name that it begins with: a dash and a uuid."""

READ: Final = Operation.READ  # found once: see `NO_ERROR`

READ_GROUP: Final = (Operation.READ, ResourceType.GROUP)
"""The permission that the fast paths of both heartbeats require."""

READ_GROUP_AND_TOPICS: Final = (Operation.READ, ResourceType.GROUP, ResourceType.TOPIC)
"""The permissions that the fast paths of both commits require."""

_SURELY_FITS = (MAX_TEXT_BYTES - UUID_BYTES) // 4  # characters: UTF-8 takes four bytes for one at most


def can_name_a_member(text: str | None) -> bool:
    """Whether a member id can be made of a client id or an instance id, and still be written."""
    return text is None or len(text) <= _SURELY_FITS or len(text.encode("utf-8")) <= MAX_TEXT_BYTES - UUID_BYTES


def visible_topics(authorizer: Authorizer | None, context: RequestContext) -> Callable[[str], bool] | None:
    """Which topics the one who asks may see: a pattern matches these alone (KIP-848). None: all."""
    if authorizer is None:
        return None
    return lambda name: authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)


class GroupApi(Api[Request, Response]):
    """An API about groups, each of which is asked in its own shard.

    Args:
        shards: the group shards.
        authorizer: who may do what; None allows all.
    """

    __slots__ = ("_authorizer", "_shards")

    def __init__(self, shards: Shards[GroupShard], authorizer: Authorizer | None = None) -> None:
        self._shards = shards
        self._authorizer = authorizer

    def allowed(self, context: RequestContext, operation: Operation, group_id: str) -> bool:
        """Whether the one who asks may do that to the group."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.allowed(context, operation, ResourceType.GROUP, group_id)

    def refusal(
        self, context: RequestContext, operation: Operation, group_id: str, *, may_be_empty: bool = False
    ) -> ErrorCode:
        """Why a request does not go to the group's shard, in Kafka's order; NONE if it does.

        Args:
            context: who asks.
            operation: what is to be done with the group.
            group_id: the group.
            may_be_empty: whether "" is a group: offsets may have been committed under it.
        """
        if self._authorizer is not None and not self.allowed(context, operation, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return NO_ERROR if group_id or may_be_empty else ErrorCode.INVALID_GROUP_ID

    def ask(self, context: RequestContext, group_id: str, asked: Request, refusal: ErrorCode) -> Any:
        """One group's part of a request about several.

        Args:
            context: who asks.
            group_id: the group.
            asked: the request, as if it were about that group alone.
            refusal: why its shard is not asked; NONE if it is.

        Returns:
            The response, or a `Pending`. Whatever is wrong is the group's own answer.
        """
        if refusal:
            return self.error(context, asked, refusal)
        try:
            return self._shards.of(group_id).run(self, context, asked)
        except KafkaError as error:
            return self.error(context, asked, error.code, error.message)
