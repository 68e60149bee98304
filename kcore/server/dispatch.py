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
        routes: what was asked for by API key; None for keys that were not, and for those that are not served.
    """

    __slots__ = ("_counts_errors", "_served", "engine", "routes")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._served: dict[int, Served] = {}
        self._counts_errors = False
        self.routes: list[Route | None] = [None] * (max(engine.apis) + 1)

    def __iter__(self) -> Iterator[Served]:
        """Those that were asked for."""
        return iter(self._served.values())

    def count_errors(self) -> None:
        """Counts error codes in answers from now on."""
        self._counts_errors = True
        for served in self:
            served.walk = error_walk(served.api.response_type)

    def requests(self) -> Iterator[tuple[int, int]]:
        """How many requests came, by the key of every API that is served."""
        for key in self.engine.apis:
            served = self._served.get(key)
            yield key, 0 if served is None else served.requests

    def route(self, api_key: int) -> Served | None:
        """The API of a key, made when it is first asked for; None if it is not served."""
        served = self._served.get(api_key)
        if served is None and api_key in self.engine.apis:
            served = Served(self.engine.apis[api_key])
            if self._counts_errors:
                served.walk = error_walk(served.api.response_type)
            self._served[api_key] = self.routes[api_key] = served
        return served

    def find(self, api_key: int, version: int) -> Served | None:
        """The API of a request, or None if it is not served in that version."""
        served = self.route(api_key)
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
        served = self.route(api_key) if api_key == ApiKey.API_VERSIONS else None
        if served is not None:
            return served.api.unsupported(), served, 0
        raise RefusedError(f"API key {api_key}, version {version}, is not served")
