"""DescribeUserScramCredentials (key 50, version 0): the users with SCRAM credentials, and the mechanisms (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.control import SlicedReadApi, client_code
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work

USER_COST_US = 4
"""The cost of describing one user, in microseconds."""


class DescribeUserScramCredentialsApi(
    SlicedReadApi[DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse]
):
    """Handler of DescribeUserScramCredentials requests. It lists users with their mechanisms, never their secrets."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    request_type: ClassVar[type] = DescribeUserScramCredentialsRequest
    response_type: ClassVar[type] = DescribeUserScramCredentialsResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)

    def steps(
        self, machine: MetadataMachine, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> Work:
        """Lists the requested users; an empty request lists all."""
        if not self.allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        users = machine.image.scram
        requested = Counter(user.name for user in request.users) if request.users else Counter(list(users))
        results = []
        for user, count in requested.items():
            yield USER_COST_US
            if count > 1:
                results.append(_failure(user, ErrorCode.DUPLICATE_RESOURCE))
            elif user not in users:
                results.append(_failure(user, ErrorCode.RESOURCE_NOT_FOUND))
            else:
                infos = [
                    CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
                    for mechanism, credential in sorted(users[user].items())
                ]
                results.append(DescribeUserScramCredentialsResult(user=user, credential_infos=infos))
        return DescribeUserScramCredentialsResponse(results=results)

    def error(
        self,
        context: RequestContext,
        request: DescribeUserScramCredentialsRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> DescribeUserScramCredentialsResponse:
        """Makes a response with the error code and its text, for the whole request and for each user.

        As in Kafka, the users have no names.
        """
        code = client_code(code)
        return DescribeUserScramCredentialsResponse(
            error_code=code,
            error_message=message or code.message,
            results=[_failure("", code) for _ in request.users or ()],
        )


def _failure(user: str, code: ErrorCode) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=code.message)
