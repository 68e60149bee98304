"""From a header to an API: which are served in which versions, and what is answered to the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kcore.errors import KcoreError
from kcore.protocol.api_keys import ApiKey, response_header_version
from kcore.server.errors import Counts, Walk, error_walk

if TYPE_CHECKING:
    from kcore.coordinator import Engine
    from kcore.runtime import Api, RequestContext


class RefusedError(KcoreError):
    """A request that the protocol has no answer for: an unknown key, a version that is not served."""


class Served:
    """An API as the server serves it.

    Attributes:
        requests: how many requests came.
        errors: the error codes that were answered, and how often; counted from when somebody asks, see `count_errors`.
        walk: counts the error codes of one response; None while nobody asked, or where it can say none.
    """

    __slots__ = ("_header_versions", "api", "decode", "errors", "key", "max_version", "min_version", "requests", "walk")

    def __init__(self, api: Api[Any, Any]) -> None:
        self.api = api
        self.key = int(api.key)
        # Some ranges are told wider than they are served (Produce, KAFKA-18659): what cannot be read is not served.
        self.min_version = max(api.versions[0], api.request_type.MIN_VERSION)
        self.max_version = min(api.versions[1], api.request_type.MAX_VERSION)
        self.decode = api.request_type.decode
        self._header_versions = [response_header_version(self.key, v) for v in range(self.max_version + 1)]
        self.requests = 0
        self.errors: Counts = {}
        self.walk: Walk | None = None

    def header_version(self, version: int) -> int:
        """The version of the header that goes before a response."""
        return self._header_versions[version]


class Dispatch:
    """Looks requests up and hands them to the engine.

    Args:
        engine: decides them.
    """

    __slots__ = ("_served", "engine", "submit")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.submit = engine.submit
        self._served = {served.key: served for served in map(Served, engine.apis.values())}

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def count_errors(self) -> None:
        """Counts error codes in answers from now on."""
        for served in self:
            served.walk = error_walk(served.api.response_type)

    def find(self, api_key: int, version: int) -> Served | None:
        """The API of a request, or None if it is not served in that version."""
        served = self._served.get(api_key)
        if served is None or not served.min_version <= version <= served.max_version:
            return None
        return served

    def unsupported(self, api_key: int, version: int) -> tuple[Any, Served, int]:
        """What a request gets that `find` does not know: only ApiVersions has an answer, in version 0 (KIP-511).

        Returns:
            The response, its API, and the version to write it in.

        Raises:
            RefusedError: for every other API; the connection closes.
        """
        if api_key == ApiKey.API_VERSIONS and api_key in self._served:
            served = self._served[api_key]
            return served.api.unsupported(), served, 0  # type: ignore[attr-defined]
        raise RefusedError(f"API key {api_key}, version {version}, is not served")


__all__ = ["Dispatch", "RefusedError", "RequestContext", "Served"]
