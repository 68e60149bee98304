"""ApiVersions (key 18, versions 0-4): the served versions of each API (KIP-35), and features (KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from kcore.broker.metadata.features import FEATURES, FIXED_FEATURES
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
"""Maximum number of cached pairs. A pair is the name and version of a client's software that passed validation."""

MAX_READABLE_CHARACTERS = 128
"""Maximum length of a cached pair: the characters of the software's name and version together."""

ADVERTISED_FROM: dict[int, int] = {ApiKey.PRODUCE: 0}
"""API -> the lowest advertised version, if it is below the lowest version that the broker serves.

Without Produce v0, some librdkafka releases assume that the broker does not support compression (KAFKA-18659).
"""


class ApiVersionsApi(Api[ApiVersionsRequest, ApiVersionsResponse]):
    """Handler of ApiVersions requests. It builds a response once for each set of features and each response format.

    Args:
        topics: gives access to the features' levels.
        served: API key -> the lowest and highest served version.
    """

    __slots__ = ("_epoch", "_ranges", "_readable", "_responses", "_topics")

    key: ClassVar[ApiKey] = ApiKey.API_VERSIONS
    request_type: ClassVar[type] = ApiVersionsRequest
    response_type: ClassVar[type] = ApiVersionsResponse
    versions: ClassVar[tuple[int, int]] = SUPPORTED_VERSIONS
    caches_requests: ClassVar[bool] = True
    caches_responses: ClassVar[bool] = True

    def __init__(self, topics: Topics, served: Mapping[ApiKey, tuple[int, int]]) -> None:
        self._topics = topics
        self._ranges = {key: (ADVERTISED_FROM.get(key, low), high) for key, (low, high) in served.items()}
        self._responses: dict[int, ApiVersionsResponse] = {}
        self._epoch = -1
        self._readable: set[tuple[str, str]] = set()

    def handle(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        """Returns the version ranges. From version 3 on, the client's software name and version must be legal."""
        if context.api_version >= 3:
            software = (request.client_software_name, request.client_software_version)
            if software not in self._readable and not self._is_readable(software):
                return self.error(context, request, ErrorCode.INVALID_REQUEST)
        epoch = self._topics.image.features_epoch
        if epoch != self._epoch:
            self._responses.clear()
            self._epoch = epoch
        response_format = min(max(context.api_version, 2), 4)
        response = self._responses.get(response_format)
        if response is None:
            response = self._responses[response_format] = self._make_response(response_format)
        return response

    def _is_readable(self, software: tuple[str, str]) -> bool:
        """Tests if the name and version of a client's software are legal. Caches up to `MAX_READABLE` legal pairs."""
        name, version = software
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return False
        if len(self._readable) < MAX_READABLE and len(name) + len(version) <= MAX_READABLE_CHARACTERS:
            self._readable.add(software)
        return True

    def unsupported(self) -> ApiVersionsResponse:
        """Makes the response to an unsupported version of ApiVersions: in format 0, with the versions of ApiVersions
        only.
        """
        low, high = SUPPORTED_VERSIONS
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
        )

    def _make_response(self, response_format: int) -> ApiVersionsResponse:
        response = ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in sorted(self._ranges.items())
            ]
        )
        if response_format < 3:
            return response
        # Before v4, clients treat a supported range that begins at 0 as an error (KAFKA-17011).
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            for name, feature in (FEATURES | FIXED_FEATURES).items()
            if response_format >= 4 or feature.lowest > 0
        ]
        response.finalized_features_epoch = self._epoch
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self._topics.image.features.items()
        ] + [
            FinalizedFeatureKey(name=name, max_version_level=feature.initial, min_version_level=feature.initial)
            for name, feature in FIXED_FEATURES.items()
        ]
        return response

    def error(
        self, context: RequestContext, request: ApiVersionsRequest, code: ErrorCode, message: str | None = None
    ) -> ApiVersionsResponse:
        """Makes a response with the error code and without APIs and features."""
        return ApiVersionsResponse(error_code=code)
