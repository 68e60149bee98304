"""From a header to an API: which are served in which versions, and what is answered to the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kcore.errors import CloseConnectionError, KcoreError
from kcore.process_logging import fields
from kcore.protocol.api_keys import ApiKey, response_header_version
from kcore.protocol.error_codes import ErrorCode
from kcore.server.errors import error_walk, shorten_messages
from kcore_ext.server.request_queue import ApiEntry

if TYPE_CHECKING:
    from kcore.engine import Engine
    from kcore.runtime import Api


logger = logging.getLogger(__name__)

LONGEST_FRAME = 0x7FFFFFFF + 4
"""The most bytes whose length an int32 can say, and those of the length."""


class RefusedError(KcoreError):
    """A request that the protocol has no answer for: an unknown key, a version that is not served."""


class Served(ApiEntry):
    """An API as the server serves it; see `ApiEntry`. Error codes are counted from when metrics are first read.

    Args:
        api: the API.
        limit_bytes: see `ApiEntry`.
        note: see `ApiEntry`.
    """

    __slots__ = ()

    def __init__(
        self, api: Api[Any, Any], limit_bytes: int = LONGEST_FRAME, note: Callable[[int], None] | None = None
    ) -> None:
        # Some ranges are told wider than they are served (Produce, KAFKA-18659): what cannot be read is not served.
        max_version = min(api.versions[1], api.request_type.MAX_VERSION)
        super().__init__(
            api,
            min_version=max(api.versions[0], api.request_type.MIN_VERSION),
            max_version=max_version,
            header_versions=[response_header_version(int(api.key), v) for v in range(max_version + 1)],
            shorten=shorten_messages,
            limit_bytes=limit_bytes,
            note=note,
        )


class Dispatch:
    """What the server serves, and what it says to the rest.

    Args:
        engine: decides them.
        note: takes the room of each long response; None: nobody counts. Fetches take theirs when they read.

    Attributes:
        routes: what was asked for by API key; None for keys that were not, and for those that are not served.
    """

    __slots__ = ("_counts_errors", "_note", "_served", "engine", "routes")

    def __init__(self, engine: Engine, note: Callable[[int], None] | None = None) -> None:
        self.engine = engine
        self._note = note
        self._served: dict[int, Served] = {}
        self._counts_errors = False
        self.routes: list[ApiEntry | None] = [None] * (max(engine.apis) + 1)

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
            fetches = api_key == ApiKey.FETCH
            served = Served(self.engine.apis[api_key], self._limit_bytes(fetches), note=None if fetches else self._note)
            if self._counts_errors:
                served.walk = error_walk(served.api.response_type)
            self._served[api_key] = self.routes[api_key] = served
        return served

    def _limit_bytes(self, fetches: bool) -> int:
        """The most bytes of a response. A fetch brings one batch however large it is, or it would never be read."""
        config = self.engine.config
        limit_bytes = config.kcore_max_response_bytes
        return min(limit_bytes + config.socket_request_max_bytes if fetches else limit_bytes, LONGEST_FRAME)

    def too_large(self, api: Api[Any, Any], context: Any, request: Any, version: int) -> Any:
        """Returns the error that is sent in place of a response of too many bytes.

        Args:
            api: what decided the request.
            context: the context of the request.
            request: the request.
            version: the version of the response.

        Raises:
            CloseConnectionError: the response has no field for an error in this version.
        """
        limit_bytes = self.engine.config.kcore_max_response_bytes
        name = type(request).__name__.removesuffix("Request")
        response = api.error(
            context, request, ErrorCode.POLICY_VIOLATION, "the response is longer than kcore.max.response.bytes allows"
        )
        if not _carries_error(response, version):
            raise CloseConnectionError(
                f"the response to {name} has more than {limit_bytes} bytes (kcore.max.response.bytes), and version "
                f"{version} has no error for that"
            )
        logger.warning(
            "%s of client %r is answered POLICY_VIOLATION: its response has more than %d bytes "
            "(kcore.max.response.bytes); ask for fewer things at a time, or raise the setting",
            name,
            context.client_id,
            limit_bytes,
            extra=fields(connection=context.connection_id),
        )
        return response

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


def _carries_error(response: Any, version: int) -> bool:
    """Whether a client reads any error in a response: some versions have none at the top, and an empty list says none
    elsewhere.
    """
    kind = type(response)
    code = getattr(response, "error_code", ErrorCode.NONE)
    if code and kind.decode(kind(error_code=code).encode(version), version).error_code:
        return True
    counts: dict[int, int] = {}
    walk = error_walk(kind)
    if walk is not None:
        walk(response, counts)
    return sum(counts.values()) > bool(code)
