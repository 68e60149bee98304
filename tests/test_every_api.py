"""Each API that ApiVersions lists is served in each listed version, by the handler with its key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.client.connection import body_position
from kcore.protocol.api_keys import ApiKey, request_class, response_class
from kcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kcore.served_apis import SERVED_APIS, ServedApi
from kcore_ext.codec.frames import encode_request
from tests.security.guarded import error_codes
from tests.virtual_server import VirtualServer, VirtualSocket

UNSUPPORTED_VERSION = 35
FIELDS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.API_VERSIONS: {"client_software_name": "test", "client_software_version": "1"},
    ApiKey.PRODUCE: {"acks": -1},
    ApiKey.DESCRIBE_ACLS: {"resource_type_filter": 1, "operation": 1, "permission_type": 1},
}
"""API -> fields that a request must set. Without them, the request would be invalid, or get no response."""


@pytest.fixture(scope="module")
def server() -> Iterator[VirtualServer]:
    made = VirtualServer({"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"})
    yield made
    made.close()


def sent(socket: VirtualSocket, request: Any, version: int) -> Any:
    """Sends a request. Returns the response, which must have the type and the correlation id of the request."""
    key = ApiKey(request.API_KEY)
    socket.sendall(encode_request(request, version, 7, "test"))
    length = int.from_bytes(socket.recv(4), "big")
    frame = socket.recv(length)
    assert len(frame) == length
    assert frame[:4] == (7).to_bytes(4, "big")
    response = response_class(key).decode(frame, version, body_position(key, version, frame))
    assert frame.endswith(response.encode(version)), "the response has the version of the request"
    return response


def test_api_versions_lists_the_rows_of_the_table(server: VirtualServer) -> None:
    """ApiVersions lists Produce from version 0 on, although kcore serves it from version 3 on."""
    listed = sent(server.connect(), ApiVersionsRequest(**FIELDS[ApiKey.API_VERSIONS]), 4)
    assert isinstance(listed, ApiVersionsResponse)
    found = [(key.api_key, (key.min_version, key.max_version)) for key in listed.api_keys]
    assert found == sorted((row.key, row.versions) for row in SERVED_APIS)


@pytest.mark.parametrize("row", SERVED_APIS, ids=lambda row: row.key.name)
def test_each_version_of_an_api_is_served(server: VirtualServer, row: ServedApi) -> None:
    """A request with empty fields gets a response of its API, encoded in its version. Produce has
    no versions 0 to 2.
    """
    lowest, highest = row.versions
    of_key = request_class(row.key)
    for version in range(max(lowest, of_key.MIN_VERSION), highest + 1):
        request = of_key(**FIELDS.get(row.key, {}))
        response = sent(server.connect(), request, version)
        assert UNSUPPORTED_VERSION not in error_codes(response), (row.key.name, version, response)
