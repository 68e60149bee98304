"""From a header to an API: which are served in which versions, and what is answered to the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kcore.errors import KcoreError
from kcore.protocol.api_keys import ApiKey, response_header_version
from kcore.server.errors import error_walk, shorten_messages
from kcore_ext.request_line import Route

if TYPE_CHECKING:
    from kcore.coordinator import Engine
    from kcore.runtime import Api


class RefusedError(KcoreError):
    """A request that the protocol has no answer for: an unknown key, a version that is not served."""


class Served(Route):
    """An API as the server serves it; see `Route`. Error codes are counted from when somebody asks for them."""

    __slots__ = ()

    def __init__(self, api: Api[Any, Any]) -> None:
        # Some ranges are told wider than they are served (Produce, KAFKA-18659): what cannot be read is not served.
        max_version = min(api.versions[1], api.request_type.MAX_VERSION)
        super().__init__(
            api,
            min_version=max(api.versions[0], api.request_type.MIN_VERSION),
            max_version=max_version,
            header_versions=[response_header_version(int(api.key), v) for v in range(max_version + 1)],
            shorten=shorten_messages,
        )


class Dispatch:
    """What the server serves, and what it says to the rest.

    Args:
        engine: decides them.

    Attributes:
        routes: what is served by API key, None for keys that are not.
    """

    __slots__ = ("_served", "engine", "routes")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._served = {served.key: served for served in map(Served, engine.apis.values())}
        self.routes: list[Route | None] = [self._served.get(key) for key in range(max(self._served) + 1)]

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
            return served.api.unsupported(), served, 0
        raise RefusedError(f"API key {api_key}, version {version}, is not served")
