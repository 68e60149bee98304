"""kcore's client and commands over TLS and SASL: successful and refused logins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import kcore
from kcore.cli import main
from kcore.client import ClientSecurity, Connection, ConnectionClosedError
from kcore.client.aio.broker import Broker
from kcore.client.aio.connection import NO_PASSWORD, NO_TLS
from kcore.client.sasl import scram
from kcore.errors import AuthenticationError, ConfigError, KcoreError
from kcore.node._sync import calls
from kcore.node.types import OffsetAndMetadata
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.security.scram import ScramMechanism
from tests.kit import wait_until
from tests.security.secure import PASSWORD, USER, Secure

JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
AUTH_METHODS = {
    "tls": ("SSL", {"security.protocol": "SSL"}),
    "mutual tls": ("MUTUAL", {"security.protocol": "SSL"}),
    "plain over tls": ("SASL_SSL", {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}),
    "scram-256 over tls": ("SASL_SSL", {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}),
    "scram-512 over tls": ("SASL_SSL", {"security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-512"}),
    "scram-256": ("SASL_PLAINTEXT", {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}),
    "plain": ("SASL_PLAINTEXT", {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}),
}


def settings_of(secure: Secure, method: str) -> tuple[str, dict[str, str]]:
    """Returns the address of a listener and the client settings for it."""
    listener, given = AUTH_METHODS[method]
    settings = {"bootstrap.servers": "ignored", **given}
    if listener in ("SSL", "MUTUAL", "SASL_SSL"):
        settings["ssl.truststore.location"] = str(secure.authority)
        settings["ssl.truststore.type"] = "PEM"
    if listener == "MUTUAL":
        settings["ssl.keystore.location"] = str(secure.client)
    if listener.startswith("SASL"):
        settings["sasl.jaas.config"] = JAAS
    return secure.bootstrap(listener), settings


@pytest.mark.parametrize("method", AUTH_METHODS)
def test_a_client_authenticates_with_each_mechanism(secure: Secure, method: str) -> None:
    """Requests succeed over the first connection, and over the connection to a coordinator."""
    bootstrap, settings = settings_of(secure, method)
    security = ClientSecurity.of(settings)
    assert PASSWORD not in repr(security)
    with kcore.connect(bootstrap, security=security) as node:
        node.topics.create("shared", exist_ok=True)
        group = node.group(f"group of {method}")
        group.commit({("shared", 0): 0})
        assert group.committed() == {("shared", 0): OffsetAndMetadata(0)}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("who", [(USER, "wrong"), ("nobody", PASSWORD)])
def test_wrong_credentials_are_an_authentication_error(secure: Secure, mechanism: str, who: tuple[str, str]) -> None:
    """A wrong password and an unknown user have the same error."""
    security = ClientSecurity(None, mechanism, *who)
    with pytest.raises(AuthenticationError, match=f"the credentials for {mechanism} are not valid"):
        Connection.to(secure.bootstrap("SASL_PLAINTEXT"), security=security)


def test_a_mechanism_that_is_not_served_is_an_error(secure: Secure) -> None:
    """The error names the enabled mechanisms."""
    security = ClientSecurity(None, "PLAIN", USER, PASSWORD)
    with pytest.raises(
        AuthenticationError, match="the server does not support SASL mechanism PLAIN; it supports SCRAM-SHA-256"
    ):
        Connection.to(secure.bootstrap("SCRAM_ONLY"), security=security)


def test_unsuitable_certificates_are_refused(secure: Secure) -> None:
    """The client refuses an unknown issuer and a certificate of another name. The server refuses a client without a
    required certificate.
    """
    stranger = ClientSecurity.of({"security.protocol": "SSL"})
    with pytest.raises(ConnectionClosedError, match="TLS handshake failed"):
        Connection.to(secure.bootstrap("SSL"), security=stranger)
    _, settings = settings_of(secure, "tls")
    elsewhere = f"127.0.0.2:{secure.port('SSL')}"
    with pytest.raises(ConnectionClosedError, match=r"TLS handshake failed|cannot connect to"):
        Connection.to(elsewhere, security=ClientSecurity.of(settings))
    with pytest.raises((ConnectionClosedError, KcoreError)):
        Connection.to(secure.bootstrap("MUTUAL"), security=ClientSecurity.of(settings)).send(ListGroupsRequest())
    unchecked = ClientSecurity.of({**settings, "ssl.endpoint.identification.algorithm": ""})
    with Connection.to(secure.bootstrap("SSL"), security=unchecked) as connection:
        assert connection.send(ListGroupsRequest()).error_code == 0


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_a_client_without_tls_is_reported_at_both_ends(secure: Secure, listener: str) -> None:
    """A client without TLS connects to a TLS listener. Its error names the likely cause, and the server logs a warning.

    A client that does not trust the server also gets an error and causes a warning.
    """
    before = len(secure.log)
    hint = r"^the server closed the connection without a response; if the server requires TLS or .*--command-conf"
    with Connection.to(secure.bootstrap(listener)) as plain, pytest.raises(ConnectionClosedError, match=hint):
        plain.send(ListGroupsRequest())

    def failures() -> list[str]:
        return [line for line in secure.log[before:] if line.startswith("TLS handshake with /127.0.0.1 failed: ")]

    wait_until(lambda: len(failures()) == 1, "the warning")
    assert failures()[0].endswith(f"; the client may not use TLS{{'listener': '{listener}'}}")
    with pytest.raises(ConnectionClosedError, match="TLS handshake failed"):
        Connection.to(secure.bootstrap(listener), security=ClientSecurity.of({"security.protocol": "SSL"}))
    wait_until(lambda: len(failures()) == 2, "the warning")
    assert failures()[1] == (
        "TLS handshake with /127.0.0.1 failed: TLSV1_ALERT_UNKNOWN_CA; the client does not trust the server's "
        f"certificate; check the client's truststore{{'listener': '{listener}'}}"
    )


@pytest.mark.parametrize(
    ("listener", "protocol", "hint"),
    [
        ("SSL", "PLAINTEXT", NO_TLS),
        ("SASL_SSL", "PLAINTEXT", NO_TLS),
        ("SASL_PLAINTEXT", "PLAINTEXT", NO_TLS),
        ("SASL_SSL", "SSL", NO_PASSWORD),
        ("MUTUAL", "SSL", NO_PASSWORD),
    ],
)
def test_the_error_for_missing_protection_names_the_setting(
    secure: Secure, listener: str, protocol: str, hint: str
) -> None:
    security = {"security.protocol": protocol, "ssl.truststore.location": str(secure.authority)}
    with pytest.raises(ConnectionClosedError) as refused:
        kcore.connect(secure.bootstrap(listener), security=security)
    text = str(refused.value)
    assert text.startswith(f"{secure.bootstrap(listener)}: the ")
    assert text.endswith(f"; if its listener requires {hint} in `security`, or in the file of --command-config")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the client's pauses before retries. Returns a list that receives their lengths in seconds."""
    seconds: list[float] = []
    monkeypatch.setattr(calls, "sleep", seconds.append)
    return seconds


@pytest.mark.parametrize("wait", [0.0, 60.0])
@pytest.mark.parametrize(("listener", "protocol"), [("SASL_PLAINTEXT", "PLAINTEXT"), ("SASL_SSL", "SSL")])
def test_a_node_that_must_log_in_is_refused_at_once(
    secure: Secure, pauses: list[float], listener: str, protocol: str, wait: float
) -> None:
    """A client without SASL settings connects to a listener that requires SASL.

    The listener closes the connection at the first request after ApiVersions. The client fails without a retry.
    """
    security = {"security.protocol": protocol, "ssl.truststore.location": str(secure.authority)}
    with pytest.raises(ConnectionClosedError, match="the server closed the connection; if its listener requires "):
        kcore.connect(secure.bootstrap(listener), security=security, wait=wait)
    assert pauses == []


def test_connect_does_not_wait_after_a_wrong_password_or_a_refused_certificate(
    secure: Secure, pauses: list[float]
) -> None:
    bootstrap, settings = settings_of(secure, "scram-256 over tls")
    wrong = {**settings, "sasl.jaas.config": JAAS.replace(PASSWORD, "wrong")}
    with pytest.raises(AuthenticationError, match="the credentials for SCRAM-SHA-256 are not valid"):
        kcore.connect(bootstrap, security=wrong, wait=60.0)
    with pytest.raises(ConnectionClosedError, match="CERTIFICATE_VERIFY_FAILED"):
        kcore.connect(secure.bootstrap("SSL"), security={"security.protocol": "SSL"}, wait=60.0)
    assert pauses == []


def test_a_call_is_not_repeated_after_a_refused_certificate(secure: Secure, pauses: list[float]) -> None:
    """The client refuses the certificate of the coordinator. The call fails without a retry."""
    bootstrap, settings = settings_of(secure, "tls")
    with kcore.connect(bootstrap, security=settings) as node:
        cluster = node._calls.transport._cluster  # type: ignore[attr-defined]
        cluster._known.coordinators[0, "g"] = Broker(1, "localhost", secure.port("SSL"))
        cluster._connections._security = ClientSecurity.of(
            {"security.protocol": "SSL"}
        )  # trusts no authority of the tests
        with pytest.raises(ConnectionClosedError, match="CERTIFICATE_VERIFY_FAILED"):
            node.group("g").commit({("shared", 0): 0})
    assert pauses == []


def test_the_error_for_an_untrusted_server_names_the_setting(secure: Secure) -> None:
    bootstrap = secure.bootstrap("SSL")
    with pytest.raises(ConnectionClosedError) as refused:
        kcore.connect(bootstrap, security={"security.protocol": "SSL"})
    text = str(refused.value)
    assert text.startswith(f"cannot connect to {bootstrap}: [SSL: CERTIFICATE_VERIFY_FAILED] ")
    assert text.endswith("; ssl.truststore.location names the authorities that the client trusts")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS; valid: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=; valid: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI; valid"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "SASL needs sasl.username"),
        ({"ssl.truststore.password": "x"}, "unknown setting ssl.truststore.password"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "only PEM is supported"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/none.pem"}, "TLS: /none.pem cannot be used"),
        ({"security_protocol": "SSL"}, "unknown setting security_protocol; valid: security.protocol, "),
        ({"sasl_plain_username": "x"}, "unknown setting sasl_plain_username; valid: security.protocol, "),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClientSecurity.of(settings)


@pytest.mark.parametrize(
    ("text", "user", "password"),
    [
        (JAAS, USER, PASSWORD),
        ('X required password="a \\"quoted\\\\ one" username="u=1,2";', "u=1,2", 'a "quoted\\ one'),
        ("X required username=bare password=also;", "bare", "also"),
    ],
)
def test_user_and_password_are_read_from_a_login_module(text: str, user: str, password: str) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": text}
    security = ClientSecurity.of(given)
    assert (security.user, security.password) == (user, password)


def test_the_scram_client_follows_the_example_of_the_rfc() -> None:
    """The client sends the messages of the example in RFC 7677. It refuses a server that does not know the password."""
    challenges = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    )
    exchange = scram(ScramMechanism.SCRAM_SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(challenges[0]) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(challenges[1])
    exchange = scram(ScramMechanism.SCRAM_SHA_256, "user", "other", "rOprNGfwEbeRWgbNEkqO")
    next(exchange)
    exchange.send(challenges[0])
    with pytest.raises(AuthenticationError, match="the server does not know the user's password"):
        exchange.send(challenges[1])


@pytest.mark.parametrize("first", [b"", b"r=another,s=AAAA,i=4096", b"r=n,s=AAAA,i=4096", b"r=nx,s=AAAA,i=1", b"\xff"])
def test_an_invalid_server_message_fails_the_login(first: bytes) -> None:
    """The client also refuses an iteration count that is too low to protect the password."""
    exchange = scram(ScramMechanism.SCRAM_SHA_512, "user", "pencil", "n")
    next(exchange)
    with pytest.raises(AuthenticationError):
        exchange.send(first)


def test_commands_accept_a_settings_file(secure: Secure, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands accept `--command-config`, as Kafka's tools do. Errors name the mistake and contain no password."""
    bootstrap, settings = settings_of(secure, "scram-512 over tls")
    file = tmp_path / "client.properties"
    write: Callable[[dict[str, str]], object] = lambda given: file.write_text(  # noqa: E731
        "".join(f"{name}={value}\n" for name, value in given.items())
    )
    write(settings)
    arguments = ["--bootstrap", bootstrap, "--command-config", str(file)]
    assert main(["topics", "create", "--topic", "by-command", "--if-not-exists", *arguments]) == 0
    assert main(["topics", "list", "--format", "json", *arguments]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert "by-command" in {row["topic"] for row in rows}
    write({**settings, "sasl.password": "wrong"})
    assert main(["topics", "list", *arguments]) == 1
    err = capsys.readouterr().err
    assert "the credentials for SCRAM-SHA-512 are not valid" in err
    assert "wrong" not in err
    assert main(["topics", "list", str(tmp_path), "--command-config", str(file)]) == 1
    assert "--command-config requires --bootstrap" in capsys.readouterr().err
