"""ApiVersions (key 18, versions 0-4): which APIs are served in which versions (KIP-35), and features (KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.metadata.features import FEATURES
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.broker.metadata.topics import Topics
    from kcore.runtime.api import RequestContext

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SUPPORTED_VERSIONS = (0, 4)

MAX_READABLE = 64
"""Clients' software that is remembered to be named readably ..."""

MAX_READABLE_CHARACTERS = 128
"""... if name and version have so many characters together."""

TOLD_FROM: dict[int, int] = {ApiKey.PRODUCE: 0}
"""APIs that are told from an earlier version on than they are served: some librdkafka releases take an absent Produce
v0 for a broker that knows no compression (KAFKA-18659)."""


class ApiVersionsApi(Api[ApiVersionsRequest, ApiVersionsResponse]):
    """Tells what is served. The answer is built once for each set of features and each form.

    Args:
        topics: the features' levels.
    """

    __slots__ = ("_answers", "_epoch", "_ranges", "_readable", "_topics")

    key: ClassVar[ApiKey] = ApiKey.API_VERSIONS
    request_type: ClassVar[type] = ApiVersionsRequest
    response_type: ClassVar[type] = ApiVersionsResponse
    versions: ClassVar[tuple[int, int]] = SUPPORTED_VERSIONS
    caches_requests: ClassVar[bool] = True
    caches_responses: ClassVar[bool] = True

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._ranges: dict[int, tuple[int, int]] = {ApiKey.API_VERSIONS: SUPPORTED_VERSIONS}
        self._answers: dict[int, ApiVersionsResponse] = {}
        self._epoch = -1
        self._readable: set[tuple[str, str]] = set()

    def serve(self, apis: Iterable[Any]) -> None:
        """Tells clients of these APIs from now on: objects with a `key` and `versions`."""
        for api in apis:
            low, high = api.versions
            self._ranges[api.key] = (TOLD_FROM.get(api.key, low), high)
        self._answers.clear()

    def handle(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        """The ranges; from version 3 on the client says its software's name and version, which must be readable."""
        if context.api_version >= 3:
            software = (request.client_software_name, request.client_software_version)
            if software not in self._readable and not self._is_readable(software):
                return self.error(context, request, ErrorCode.INVALID_REQUEST)
        epoch = self._topics.image.features_epoch
        if epoch != self._epoch:
            self._answers.clear()
            self._epoch = epoch
        form = min(max(context.api_version, 2), 4)
        answer = self._answers.get(form)
        if answer is None:
            answer = self._answers[form] = self._answer(form)
        return answer

    def _is_readable(self, software: tuple[str, str]) -> bool:
        """Whether a client says its software's name and version readably; the first few that do are remembered."""
        name, version = software
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return False
        if len(self._readable) < MAX_READABLE and len(name) + len(version) <= MAX_READABLE_CHARACTERS:
            self._readable.add(software)
        return True

    def unsupported(self) -> ApiVersionsResponse:
        """The answer, in version 0's form, to a request of a version that is not served: this API's own range."""
        low, high = SUPPORTED_VERSIONS
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
        )

    def _answer(self, form: int) -> ApiVersionsResponse:
        answer = ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in sorted(self._ranges.items())
            ]
        )
        if form < 3:
            return answer
        # Before v4 clients take a supported range that begins at 0 for an error (KAFKA-17011).
        answer.supported_features = [
            SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            for name, feature in FEATURES.items()
            if form >= 4 or feature.lowest > 0
        ]
        answer.finalized_features_epoch = self._epoch
        answer.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self._topics.image.features.items()
        ]
        return answer

    def error(
        self, context: RequestContext, request: ApiVersionsRequest, code: ErrorCode, message: str | None = None
    ) -> ApiVersionsResponse:
        """The code, with no keys and no features."""
        return ApiVersionsResponse(error_code=code)
