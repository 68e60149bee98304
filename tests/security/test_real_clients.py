"""Unmodified clients over TLS and SASL: successful and refused logins, and no secret in any log."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest

from kcore.server.log_limits import ClientLog
from tests.security.certificates import KEY_PASSWORD
from tests.security.secure import PASSWORD, USER, Secure
from tests.seeds import first_of

pytestmark = pytest.mark.clients

TOKEN = f"{USER}-3600-signed"
AUTH_METHODS = {  # listener, mechanism
    "tls": ("SSL", None),
    "mutual tls": ("MUTUAL", None),
    "plain over tls": ("SASL_SSL", "PLAIN"),
    "scram-256 over tls": ("SASL_SSL", "SCRAM-SHA-256"),
    "scram-512 over tls": ("SASL_SSL", "SCRAM-SHA-512"),
    "oauth over tls": ("SASL_SSL", "OAUTHBEARER"),
    "scram-256": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "renewed session": ("SHORT", "SCRAM-SHA-512"),
}
_numbers = itertools.count()


class ClientAuth:
    """A listener and the credentials of a client."""

    def __init__(self, secure: Secure, name: str, password: str = PASSWORD, token: str = TOKEN) -> None:
        self.secure = secure
        self.listener, self.mechanism = AUTH_METHODS[name]
        self.password, self.token = password, token
        self.tls = self.listener in ("SSL", "MUTUAL", "SASL_SSL")
        self.protocol = ("SASL_" if self.mechanism else "") + ("SSL" if self.tls else "PLAINTEXT")
        self.certificate = secure.client if self.listener == "MUTUAL" else None
        self.topic = f"t{next(_numbers)}"
        self.patience_ms = 30_000  # the time for which a client retries if it gets no reason

    @property
    def bootstrap(self) -> str:
        return self.secure.bootstrap(self.listener)


def confluent_settings(auth: ClientAuth) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": auth.bootstrap, "security.protocol": auth.protocol, "log_level": 0,
        "allow.auto.create.topics": True,
    }  # fmt: skip
    if auth.tls:
        settings["ssl.ca.location"] = str(auth.secure.authority)
    if auth.certificate:
        settings |= {"ssl.certificate.location": str(auth.certificate), "ssl.key.location": str(auth.certificate)}
    if auth.mechanism == "OAUTHBEARER":
        settings |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (auth.token, time.time() + 3600)}
    elif auth.mechanism:
        settings |= {"sasl.mechanism": auth.mechanism, "sasl.username": USER, "sasl.password": auth.password}
    return settings


def confluent(auth: ClientAuth, timeout_s: float = 30) -> bytes:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

    errors: list[KafkaError] = []
    settings = {**confluent_settings(auth), "error_cb": errors.append}
    producer = Producer({k: v for k, v in settings.items() if k != "allow.auto.create.topics"})
    producer.produce(auth.topic, b"hello")
    until_s = time.monotonic() + timeout_s
    while len(producer) and time.monotonic() < until_s:
        producer.poll(0.05)
        fatal = [e for e in errors if e.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)]
        if fatal:
            producer.purge()
            raise KafkaException(fatal[0])
    consumer = Consumer({**settings, "group.id": auth.topic, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(auth.topic, 0, 0)])
        message = consumer.poll(timeout_s)
        assert message is not None
        assert message.error() is None
        return bytes(message.value())
    finally:
        consumer.close()


def kafka_python(auth: ClientAuth) -> bytes:
    import kafka
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return auth.token

    settings: dict[str, Any] = {
        "bootstrap_servers": auth.bootstrap, "security_protocol": auth.protocol, "sasl_mechanism": auth.mechanism,
        "bootstrap_timeout_ms": auth.patience_ms,
    }  # fmt: skip
    if auth.tls:
        settings["ssl_cafile"] = str(auth.secure.authority)
    if auth.certificate:
        settings |= {"ssl_certfile": str(auth.certificate), "ssl_keyfile": str(auth.certificate)}
    if auth.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    elif auth.mechanism:
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": auth.password}
    producer = kafka.KafkaProducer(**settings, max_block_ms=4_000)
    try:
        producer.send(auth.topic, b"hello").get(20)
    finally:
        producer.close(timeout=5)
    consumer = kafka.KafkaConsumer(**settings)
    try:
        partition = kafka.TopicPartition(auth.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return bytes(next(iter(consumer)).value)
    finally:
        consumer.close()


def aiokafka(auth: ClientAuth) -> bytes:
    import aiokafka
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return auth.token

    settings: dict[str, Any] = {
        "bootstrap_servers": auth.bootstrap,
        "security_protocol": auth.protocol,
        "request_timeout_ms": auth.patience_ms,
    }
    if auth.tls:
        context = ssl.create_default_context(cafile=str(auth.secure.authority))
        if auth.certificate:
            context.load_cert_chain(str(auth.certificate))
        settings["ssl_context"] = context
    if auth.mechanism:
        settings["sasl_mechanism"] = auth.mechanism
    if auth.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    elif auth.mechanism:
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": auth.password}

    async def run() -> bytes:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(auth.topic, b"hello")
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(auth.topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            return bytes((await asyncio.wait_for(consumer.getone(), 30)).value)
        finally:
            await consumer.stop()

    return asyncio.run(run())


CLIENTS: dict[str, Callable[[ClientAuth], bytes]] = {
    "confluent": confluent, "kafka_python": kafka_python, "aiokafka": aiokafka,
}  # fmt: skip


@pytest.mark.parametrize("secure", first_of(["asyncio", "uvloop"], 1), indirect=True)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("method", AUTH_METHODS)
def test_a_client_authenticates_and_reads_what_it_wrote(secure: Secure, client: str, method: str) -> None:
    """Runs each library with each listener and mechanism."""
    assert CLIENTS[client](ClientAuth(secure, method)) == b"hello"


@pytest.mark.parametrize("secure", ["asyncio"], indirect=True)  # most of these tests only wait until a client gives up
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("method", first_of(["plain over tls", "scram-256", "oauth over tls", "scram-512 over tls"], 3))
def test_a_wrong_password_or_token_is_refused(secure: Secure, client: str, method: str) -> None:
    """The client gets an authentication error, and none of its requests is served."""
    wrong = ClientAuth(secure, method, password="wrong-password-of-the-tests", token="mallory-3600-forged")
    wrong.patience_ms = 1_500
    # Earlier tests have used up the log lines of this address.
    secure.live.call(lambda: setattr(secure.live.server, "client_log", ClientLog(secure.live.loop.time)))
    before = sum("SASL exchange failed" in line for line in secure.log)
    with pytest.raises(Exception):  # noqa: B017, PT011  # each library has errors of its own
        CLIENTS[client](wrong)
    assert sum("SASL exchange failed" in line for line in secure.log) > before
    assert secure.live.call(lambda: secure.live.engine.topics.by_name(wrong.topic)) is None


def request_over_tls(context: ssl.SSLContext, plain: socket.socket) -> None:
    """Sends an ApiVersions request. Raises ConnectionError if there is no response."""
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
        tls.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        if not tls.recv(100):
            raise ConnectionError


def test_a_missing_or_foreign_certificate_is_refused(secure: Secure) -> None:
    """With ssl.client.auth=required, the handshake fails or, with TLS 1.3, the connection fails right after the
    handshake.
    """
    for file in (None, secure.stranger):
        context = ssl.create_default_context(cafile=str(secure.authority))
        if file is not None:
            context.load_cert_chain(str(file))
        address = ("127.0.0.1", secure.port("MUTUAL"))
        with socket.create_connection(address, 20) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
            request_over_tls(context, plain)
    assert secure.live.errors == []


def test_the_subject_of_a_certificate_is_the_principal(secure: Secure) -> None:
    """The principal has Java's notation: the most specific part first."""
    context = ssl.create_default_context(cafile=str(secure.authority))
    context.load_cert_chain(str(secure.client))
    address = ("127.0.0.1", secure.port("MUTUAL"))
    with socket.create_connection(address, 20) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
        tls.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        assert tls.recv(100)
        principals = {one.principal for one in secure.live.server.connections if one.listener == "MUTUAL"}
        assert principals == {"User:CN=worker,O=kcore"}


def test_no_secret_is_in_the_log(secure: Secure) -> None:
    """After successful and failed logins, the server's log at DEBUG contains no password, token or key password.

    The test searches for these secrets as text and in base64.
    """
    with contextlib.suppress(Exception):
        confluent(ClientAuth(secure, "plain over tls", password="wrong-password-of-the-tests"))
    assert confluent(ClientAuth(secure, "plain over tls")) == b"hello"
    assert any("authenticated with PLAIN" in line for line in secure.log)
    assert any("SASL exchange failed" in line for line in secure.log)
    secrets = [PASSWORD, "wrong-password-of-the-tests", "-3600-signed", "-3600-forged", KEY_PASSWORD]
    secrets += [base64.b64encode(secret.encode()).decode().rstrip("=") for secret in secrets]
    ours = [line for line in secure.log if any(secret in line for secret in secrets)]
    assert ours == []
