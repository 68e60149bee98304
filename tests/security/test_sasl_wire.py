"""SASL on the socket, frame by frame: responses, and when the server closes the connection."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kcore.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kcore.security.scram import ScramMechanism
from tests.kit import wait_until
from tests.security.exchange import client_final, client_first
from tests.security.secure import PASSWORD, USER, Secure
from tests.server.live import Raw

ALL = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
VERSIONS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


def exchange(raw: Raw, request: Any, version: int) -> Any:
    raw.send(raw.request(request, version))
    return raw.receive(request, version)[1]


def handshake(raw: Raw, mechanism: str, version: int = 1) -> Any:
    return exchange(raw, SaslHandshakeRequest(mechanism=mechanism), version)


def plain(raw: Raw, password: str = PASSWORD, user: str = USER, version: int = 2) -> Any:
    return exchange(raw, SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), version)


def come_in(raw: Raw) -> None:
    assert handshake(raw, "PLAIN").error_code == 0
    assert plain(raw).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_authentication_works_in_every_version(secure: Secure, version: int) -> None:
    """The client sends ApiVersions, SaslHandshake and the token, and may then use every API."""
    with secure.raw("SASL_PLAINTEXT") as raw:
        assert exchange(raw, VERSIONS, 3).error_code == 0
        assert handshake(raw, "PLAIN") == SaslHandshakeResponse(mechanisms=ALL)
        assert plain(raw, version=version) == SaslAuthenticateResponse(error_message=None)
        assert exchange(raw, MetadataRequest(topics=[]), 9).brokers[0].port == secure.port("SASL_PLAINTEXT")


def test_a_scram_exchange_takes_two_round_trips(secure: Secure) -> None:
    """The exchange takes two round trips, and the client verifies the server's signature."""
    with secure.raw("SCRAM_ONLY") as raw:
        assert handshake(raw, "SCRAM-SHA-256") == SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"])
        first = exchange(raw, SaslAuthenticateRequest(auth_bytes=client_first(USER)), 2)
        proof, expected = client_final(ScramMechanism.SCRAM_SHA_256, USER, PASSWORD, bytes(first.auth_bytes))
        last = exchange(raw, SaslAuthenticateRequest(auth_bytes=proof), 2)
        assert last == SaslAuthenticateResponse(error_message=None, auth_bytes=expected)
        assert exchange(raw, MetadataRequest(topics=[]), 9).brokers


def test_handshake_v0_takes_tokens_as_bare_frames(secure: Secure) -> None:
    """After SaslHandshake v0 (KIP-43), the client sends tokens without a request header. Normal requests follow."""
    with secure.raw("SASL_PLAINTEXT") as raw:
        assert handshake(raw, "SCRAM-SHA-512", 0).error_code == 0
        token = client_first(USER)
        raw.send(struct.pack(">i", len(token)) + token)
        proof, expected = client_final(ScramMechanism.SCRAM_SHA_512, USER, PASSWORD, raw.frame() or b"")
        raw.send(struct.pack(">i", len(proof)) + proof)
        assert raw.frame() == expected
        assert exchange(raw, MetadataRequest(topics=[]), 9).brokers


def test_a_wrong_bare_token_closes_the_connection(secure: Secure) -> None:
    """After SaslHandshake v0, tokens have no header and no error response. So the server closes the connection."""
    with secure.raw("SASL_PLAINTEXT") as raw:
        assert handshake(raw, "PLAIN", 0).error_code == 0
        raw.send(struct.pack(">i", 8) + b"\0alice\0x")
        assert raw.closed


def test_a_mechanism_that_is_not_enabled_closes_the_connection(secure: Secure) -> None:
    """The client gets error 33 with the mechanisms that the listener enables. Then the connection is closed."""
    with secure.raw("SCRAM_ONLY") as raw:
        assert handshake(raw, "PLAIN") == SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256"])
        assert raw.closed


@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD), (USER, ""), ("", PASSWORD)])
def test_wrong_credentials_are_refused_after_a_delay(secure: Secure, user: str, password: str) -> None:
    """A login with wrong credentials gets SASL_AUTHENTICATION_FAILED (58) after a delay, and the server closes the
    connection. The error message does not contain the user's name.
    """
    with secure.raw("SASL_PLAINTEXT") as raw:
        handshake(raw, "PLAIN")
        began_s = time.monotonic()
        response = plain(raw, password, user)
        assert time.monotonic() - began_s >= 0.02
        assert response.error_code == 58
        assert user == "" or user not in response.error_message
        assert raw.closed


@pytest.mark.parametrize(
    ("request_", "version"), [(MetadataRequest(topics=[]), 9), (SaslAuthenticateRequest(auth_bytes=b"x"), 2)]
)
@pytest.mark.parametrize("greeted", [False, True])
def test_other_requests_before_the_handshake_close(secure: Secure, request_: Any, version: int, greeted: bool) -> None:
    """The server closes the connection without a response."""
    with secure.raw("SASL_PLAINTEXT") as raw:
        if greeted:
            assert exchange(raw, VERSIONS, 3).error_code == 0
        raw.send(raw.request(request_, version))
        assert raw.closed


def test_a_second_api_versions_closes_and_a_refused_one_does_not_count(secure: Secure) -> None:
    """The server accepts one valid ApiVersions request, and closes the connection at the second one.

    Requests that get an error, for example because of an unsupported version, do not count.
    """
    with secure.raw("SASL_PLAINTEXT") as raw:
        raw.send(struct.pack(">ihhihb", 11, 18, 99, 7, -1, 0))
        assert raw.receive(VERSIONS, 0)[1].error_code == 35
        assert exchange(raw, ApiVersionsRequest(), 3).error_code == 42
        assert exchange(raw, VERSIONS, 3).error_code == 0
        raw.send(raw.request(VERSIONS, 3))
        assert raw.closed


def test_another_request_between_tokens_gets_an_error_and_closes(secure: Secure) -> None:
    """The client gets ILLEGAL_SASL_STATE (34) in the format of the request's API."""
    with secure.raw("SASL_PLAINTEXT") as raw:
        handshake(raw, "PLAIN")
        assert exchange(raw, HeartbeatRequest(group_id="g", member_id="m"), 4) == HeartbeatResponse(error_code=34)
        assert raw.closed


def test_a_request_behind_a_token_waits_for_it(secure: Secure) -> None:
    """All requests arrive in one segment while a thread checks the token. The responses keep the order."""
    with secure.raw("SASL_PLAINTEXT") as raw:
        token = SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        beat = HeartbeatRequest(group_id="g", member_id="m")
        requests = [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (token, 2), (beat, 4), (VERSIONS, 3)]
        raw.send(b"".join(raw.request(*one) for one in requests))
        assert [raw.receive(*one)[0] for one in requests] == [1, 2, 3, 4]


def test_a_client_may_leave_while_its_token_is_checked(secure: Secure) -> None:
    """The server drops the response."""
    for _ in range(20):
        with secure.raw("SASL_PLAINTEXT") as raw:
            handshake(raw, "PLAIN")
            raw.send(raw.request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2))
    server = secure.live.server

    def left() -> int:
        return secure.live.call(lambda: sum(one.listener == "SASL_PLAINTEXT" for one in server.connections))

    wait_until(lambda: left() == 0, "the end of all of them")
    assert secure.live.errors == []


def test_frames_have_a_smaller_limit_until_authentication(secure: Secure) -> None:
    """The limit is sasl.server.max.receive.size until the client has authenticated, then socket.request.max.bytes."""
    with secure.raw("SASL_PLAINTEXT") as raw:
        raw.send(struct.pack(">i", 524_289))
        assert raw.closed
    with secure.raw("SASL_PLAINTEXT") as raw:
        come_in(raw)
        beat = HeartbeatRequest(group_id="g", member_id="m")
        body = raw.request(beat, 4)
        raw.send(struct.pack(">i", 600_000) + body[4:] + bytes(600_000 - len(body) + 4))
        assert raw.receive(beat, 4)[1].error_code == 25


def test_sasl_requests_of_an_authenticated_client_are_refused(secure: Secure) -> None:
    """If sessions have no end, both SASL requests get ILLEGAL_SASL_STATE, and the connection stays usable."""
    with secure.raw("SASL_PLAINTEXT") as raw:
        come_in(raw)
        assert handshake(raw, "PLAIN") == SaslHandshakeResponse(error_code=34)
        assert plain(raw).error_code == 34
        assert exchange(raw, MetadataRequest(topics=[]), 9).brokers


def test_sessions_that_end_are_renewed_or_closed(secure: Secure) -> None:
    """From v1 on, SaslAuthenticate returns the lifetime of the session. The client may log in again as the same user
    before its end. After the end, the next request closes the connection (KIP-368).
    """
    with secure.raw("SHORT") as raw:
        handshake(raw, "PLAIN")
        assert plain(raw) == SaslAuthenticateResponse(error_message=None, session_lifetime_ms=60_000)
        assert exchange(raw, MetadataRequest(topics=[]), 9).brokers
        assert handshake(raw, "PLAIN") == SaslHandshakeResponse(mechanisms=ALL)
        assert plain(raw).session_lifetime_ms == 60_000
        assert exchange(raw, MetadataRequest(topics=[]), 9).brokers
        (connection,) = [one for one in secure.live.server.connections if one.listener == "SHORT"]
        secure.live.call(lambda: setattr(connection._exchange, "expires_at_ms", 1))
        raw.send(raw.request(MetadataRequest(topics=[]), 9))
        assert raw.closed


def test_a_renewal_by_another_user_closes_the_connection(secure: Secure) -> None:
    """The client gets error code 58, and the connection ends, because its open requests belong to the first user."""
    token = b"n,,\x01auth=Bearer mallory-3600-signed\x01\x01"
    with secure.raw("SHORT") as raw:
        handshake(raw, "OAUTHBEARER")
        mine = b"n,,\x01auth=Bearer alice-3600-signed\x01\x01"
        lifetime_ms = exchange(raw, SaslAuthenticateRequest(auth_bytes=mine), 2).session_lifetime_ms
        assert lifetime_ms == 60_000
        handshake(raw, "OAUTHBEARER")
        assert exchange(raw, SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 58
        assert raw.closed


def test_authentications_are_counted_by_mechanism_and_result(secure: Secure) -> None:
    counted = secure.live.server.authentications
    before = dict(counted.results)
    with secure.raw("SASL_PLAINTEXT") as raw:
        come_in(raw)
    with secure.raw("SASL_PLAINTEXT") as raw:
        assert handshake(raw, "PLAIN").error_code == 0
        assert plain(raw, "wrong").error_code == 58
    with secure.raw("SASL_PLAINTEXT") as raw:
        assert handshake(raw, "NONSENSE").error_code == 33
    with secure.raw("SHORT") as raw:
        come_in(raw)
        come_in(raw)
    grown = {labels: count - before.get(labels, 0) for labels, count in counted.results.items()}
    assert {labels: count for labels, count in grown.items() if count} == {
        ("PLAIN", "authentication", "success"): 2,
        ("PLAIN", "authentication", "failure"): 1,
        ("none", "authentication", "failure"): 1,
        ("PLAIN", "reauthentication", "success"): 1,
    }
