"""DescribeUserScramCredentials (key 50, version 0): who can log in with SCRAM, and how (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext

Credentials = Mapping[str, Sequence[tuple[int, int]]]
"""User -> (mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512; iterations) of each password."""


def nobody() -> Credentials:
    """The users of a node without SCRAM."""
    return {}


class DescribeUserScramCredentialsApi(Api[DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse]):
    """Lists users with their mechanisms, never their secrets.

    Args:
        credentials: says who there is.
        authorizer: who may do what; None allows all.
    """

    __slots__ = ("_authorizer", "_credentials")

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    request_type: ClassVar[type] = DescribeUserScramCredentialsRequest
    response_type: ClassVar[type] = DescribeUserScramCredentialsResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)

    def __init__(self, credentials: Callable[[], Credentials] = nobody, authorizer: Authorizer | None = None) -> None:
        self._credentials = credentials
        self._authorizer = authorizer

    def handle(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """The users asked for; none asked for is all."""
        if self._authorizer is not None and not self._authorizer.allowed(
            context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        credentials = self._credentials()
        asked = Counter(user.name for user in request.users) if request.users else Counter(credentials.keys())
        results = []
        for user, count in asked.items():
            if request.users and count > 1:
                results.append(_failure(user, ErrorCode.DUPLICATE_RESOURCE))
            elif user not in credentials:
                results.append(_failure(user, ErrorCode.RESOURCE_NOT_FOUND))
            else:
                infos = [CredentialInfo(mechanism=m, iterations=iterations) for m, iterations in credentials[user]]
                results.append(DescribeUserScramCredentialsResult(user=user, credential_infos=infos))
        return DescribeUserScramCredentialsResponse(results=results)

    def error(
        self,
        context: RequestContext,
        request: DescribeUserScramCredentialsRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> DescribeUserScramCredentialsResponse:
        """The code with a text, and for each user."""
        return DescribeUserScramCredentialsResponse(
            error_code=code,
            error_message=message or code.message,
            results=[_failure(user.name, code) for user in request.users or ()],
        )


def _failure(user: str, code: ErrorCode) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=code.message)
