"""JoinGroup (API key 11), v0-9: a member joins the next generation.

v1 adds a rebalance timeout. v4 makes dynamic members rejoin with an assigned id (KIP-394). v5 adds static members
(KIP-345), v7 protocol types in responses (KIP-559), and v8 reasons (KIP-800). v9 adds `SkipAssignment` to the response:
a leader that receives it computes no assignment (KIP-814).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.group.apis.base import READ, GroupApi, can_name_a_member, visible_topics
from kcore.group.classic.join import join_group
from kcore.group.classic.replies import join_error
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.migration.join import join_consumer_group
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from kcore.config.node import Config
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards


class JoinGroupApi(GroupApi[JoinGroupRequest, JoinGroupResponse]):
    """Handler of JoinGroup requests.

    Args:
        shards: the group shards.
        config: bounds of session timeouts.
        authorizer: checks READ on groups; None allows all.
    """

    key = ApiKey.JOIN_GROUP
    request_type = JoinGroupRequest
    response_type = JoinGroupResponse
    versions = (0, 9)

    __slots__ = ("_config",)

    def __init__(self, shards: Shards[GroupShard], config: Config, authorizer: Authorizer | None = None) -> None:
        super().__init__(shards, authorizer)
        self._config = config

    def handle(self, context: RequestContext, request: JoinGroupRequest) -> Any:
        """Validates the fields of the request, and runs it in the group's shard."""
        code = self._validate(context, request)
        if code:
            return self.error(context, request, code)
        return self._shards.of(request.group_id).run(self, context, request)

    def _validate(self, context: RequestContext, request: JoinGroupRequest) -> ErrorCode:
        code = self.refusal(context, READ, request.group_id)
        if code:
            return code
        config = self._config
        shortest_ms, longest_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not (can_name_a_member(context.client_id) and can_name_a_member(request.group_instance_id)):
            return ErrorCode.INVALID_REQUEST
        return NO_ERROR

    def decide(self, machine: GroupShard, context: RequestContext, request: JoinGroupRequest) -> Any:
        """Decides the join with `classic.join`, or with `migration.join` for consumer groups with members."""
        group = machine.groups.get(request.group_id)
        if type(group) is ConsumerGroup and group.members:
            return join_consumer_group(group, context, request, visible_topics(self._authorizer, context))
        return join_group(machine, self, context, request)

    def error(
        self, context: RequestContext, request: JoinGroupRequest, code: ErrorCode, message: str | None = None
    ) -> JoinGroupResponse:
        """Returns a response with the code and the request's member id.

        As in Kafka, a client without the permission READ gets no member id.
        """
        member_id = "" if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else request.member_id
        return join_error(context.api_version, member_id, code)
