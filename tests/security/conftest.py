"""One server with every kind of listener, and certificates, for all tests of a worker process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest
from cryptography.x509.oid import NameOID

from tests.nodes import node_of
from tests.security.certificates import KEY_PASSWORD, Authority
from tests.security.secure import PASSWORD, USER, Secure
from tests.server.conftest import serve  # noqa: F401
from tests.server.live import LiveServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignores warnings of clients that use deprecated parts of the standard library."""
    for item in items:
        if item.nodeid.startswith("tests/security/"):
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


class Everything(logging.Handler):
    """Collects every line that the server logs, at any level. Clients in this process use other loggers."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(("kafka", "aiokafka")):
            self.lines.append(self.format(record) + str(record.__dict__.get("fields", "")))

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        """Collects the lines of all loggers at every level."""
        root = logging.getLogger()
        level = root.level
        root.addHandler(self)
        root.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            root.removeHandler(self)
            root.setLevel(level)


@pytest.fixture(scope="session", params=["asyncio", "uvloop"])
def secure_server(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Secure, Everything]]:
    """Yields a server with listeners of every kind, users with passwords, and the handler of its log."""
    organization = (NameOID.ORGANIZATION_NAME, "kcore")
    keystore = authority.issue("server.pem", (NameOID.COMMON_NAME, "server"), password=KEY_PASSWORD)
    client = authority.issue("client.pem", organization, (NameOID.COMMON_NAME, "worker"))
    stranger = Authority(tmp_path_factory.mktemp("strangers"), "strangers").issue(
        "stranger.pem", (NameOID.COMMON_NAME, "worker")
    )
    names = ("PLAINTEXT", "SSL", "MUTUAL", "SASL_SSL", "SASL_PLAINTEXT", "SHORT", "SCRAM_ONLY")
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT,SCRAM_ONLY:SASL_PLAINTEXT",
        "ssl.keystore.location": str(keystore),
        "ssl.key.password": KEY_PASSWORD,
        "ssl.truststore.location": str(authority.file),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "kcore.sasl.oauthbearer.validator": "tests.security.tokens:validate",
        "listener.name.scram_only.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.short.connections.max.reauth.ms": "60000",
        "connection.failed.authentication.delay.ms": "20",
    }
    everything = Everything()
    with everything.attached(), LiveServer(settings, request.param) as live:
        with live.connect() as connection:
            node_of(connection).users.set_password(USER, PASSWORD)
        yield Secure(live, authority.file, client, stranger, everything.lines), everything


@pytest.fixture
def secure(secure_server: tuple[Secure, Everything]) -> Iterator[Secure]:
    """Yields the server of the session. Its log is written at every level, but during this test only: others of the
    session count lines.
    """
    server, everything = secure_server
    with everything.attached():
        yield server
