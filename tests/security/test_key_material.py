"""TLS keys and certificates: PKCS12 files, PEM texts in settings, and their replacement while the server runs."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509.oid import NameOID

from kcore.broker.configs.broker_config import BrokerConfig
from kcore.broker.metadata.image import ConfigType
from kcore.clock import SystemClock
from kcore.config.node import Config
from kcore.drivers.event_loop import AsyncDriver
from kcore.engine import Engine
from kcore.errors import ConfigError
from kcore.log import MemoryLogEngine, MemoryStorage
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.server import key_cost, key_material
from kcore.server.listeners import parse_listeners
from kcore.server.server import Server
from kcore.server.tls import server_context
from tests.security.certificates import KEY_PASSWORD, Authority
from tests.server.live import SMALL, LiveServer

STORE_PASSWORD = "store-password-of-the-tests"
SET, DELETE = 0, 1


def context(settings: Mapping[str, str]) -> ssl.SSLContext:
    return server_context(Config.of(settings).for_listener("SSL"), "SSL")


def served_by(server: ssl.SSLContext, authority: Path, client: Path | None = None) -> str:
    """Returns the common name that a client sees in an in-memory handshake."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cafile=str(authority))
    if client is not None:
        trusting.load_cert_chain(str(client))
    peers = [
        trusting.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done: set[int] = set()
    for _ in range(10):
        for index, peer in enumerate(peers):
            try:
                peer.do_handshake()
                done.add(index)
            except ssl.SSLWantReadError:
                pass
    assert done == {0, 1}
    certificate: Any = peers[0].getpeercert()
    return dict(part[0] for part in certificate["subject"])["commonName"]


@pytest.fixture
def issued(authority: Authority) -> Path:
    return authority.issue("stored.pem", (NameOID.COMMON_NAME, "stored"))


def pkcs12(source: Path, path: Path, password: str = STORE_PASSWORD) -> Path:
    """Converts the key and the certificate of a PEM file to PKCS12."""
    data = source.read_bytes()
    key: Any = load_pem_private_key(data, None)
    certificate = x509.load_pem_x509_certificate(data)
    path.write_bytes(
        serialize_key_and_certificates(b"kcore", key, certificate, None, BestAvailableEncryption(password.encode()))
    )
    return path


def java_truststore(authority: Authority, path: Path) -> Path:
    """Writes a trust store in the format of `keytool`: PKCS12 without a key."""
    certificate = PKCS12Certificate(x509.load_pem_x509_certificate(authority.file.read_bytes()), b"authority")
    path.write_bytes(serialize_java_truststore([certificate], BestAvailableEncryption(STORE_PASSWORD.encode())))
    return path


def test_a_pkcs12_file_has_the_key_and_the_authorities(authority: Authority, issued: Path, tmp_path: Path) -> None:
    """One password protects the file and the key. Clients need a certificate of an authority in the trust store."""
    tls = context(
        {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(pkcs12(issued, tmp_path / "store.p12")),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(java_truststore(authority, tmp_path / "trust.p12")),
            "ssl.truststore.password": STORE_PASSWORD,
            "ssl.client.auth": "required",
        }
    )
    assert served_by(tls, authority.file, client=issued) == "stored"


@pytest.mark.parametrize("in_memory", [True, False])
def test_keys_and_certificates_may_be_texts(
    authority: Authority, issued: Path, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings contain the PEM texts of the key and the certificate chain, instead of file names.

    This works even if the system cannot create in-memory files.
    """
    if not in_memory:
        monkeypatch.delattr(key_material.os, "memfd_create", raising=False)
    key, _, chain = issued.read_text().partition("-----BEGIN CERTIFICATE-----")
    tls = context(
        {
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----" + chain,
            "ssl.truststore.certificates": authority.file.read_text(),
            "ssl.client.auth": "required",
        }
    )
    assert served_by(tls, authority.file, client=issued) == "stored"


def test_an_encrypted_text_needs_the_password(authority: Authority, tmp_path: Path) -> None:
    text = authority.issue("locked.pem", (NameOID.COMMON_NAME, "locked"), password=KEY_PASSWORD).read_text()
    key, _, chain = text.partition("-----BEGIN CERTIFICATE-----")
    settings = {
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----" + chain,
        "ssl.key.password": KEY_PASSWORD,
    }
    assert served_by(context(settings), authority.file) == "locked"
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.key"):
        context(settings | {"ssl.key.password": "wrong"})


def test_unreadable_key_stores_are_refused(authority: Authority, issued: Path, tmp_path: Path) -> None:
    """The error names the setting or the file, and contains no password and no key."""
    store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(pkcs12(issued, tmp_path / "s.p12"))}
    trust = str(java_truststore(authority, tmp_path / "t.p12"))
    wrong: list[tuple[dict[str, str], str]] = [
        (store, "is not a PKCS12 file, or its password is wrong"),
        (store | {"ssl.keystore.password": "not-" + STORE_PASSWORD}, "is not a PKCS12 file, or its password is wrong"),
        (store | {"ssl.keystore.location": str(issued)}, "is not a PKCS12 file"),
        (store | {"ssl.keystore.location": str(tmp_path / "no.p12")}, "No such file"),
        (store | {"ssl.keystore.location": trust, "ssl.keystore.password": STORE_PASSWORD}, "has no private key"),
        (store | {"ssl.keystore.key": "k"}, "need ssl.keystore.type=PEM"),
        ({"ssl.keystore.location": str(issued), "ssl.keystore.password": "x"}, "a PEM store has no password"),
        ({"ssl.keystore.key": "k"}, "must be set together"),
        (
            {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c", "ssl.keystore.location": str(issued)},
            "must be set together",
        ),
        ({"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}, "ssl.keystore.key: not a PEM file"),
    ]
    both = {"ssl.keystore.location": str(issued), "ssl.client.auth": "required"}
    wrong += [
        (
            both | {"ssl.truststore.location": str(issued), "ssl.truststore.certificates": "c"},
            "exclude each other",
        ),
        (both | {"ssl.truststore.certificates": "c"}, "ssl.truststore.certificates: "),
        (both | {"ssl.truststore.location": trust, "ssl.truststore.type": "PKCS12"}, "its password is wrong"),
        (
            both | {"ssl.truststore.location": str(issued), "ssl.truststore.password": "x"},
            "a PEM store has no password",
        ),
    ]
    for settings, reason in wrong:
        with pytest.raises(ConfigError) as refused:
            context(settings)
        assert reason in str(refused.value), settings
        assert str(refused.value).startswith("listener SSL: ")
        assert STORE_PASSWORD not in str(refused.value)


def test_pkcs12_without_its_package_is_refused(issued: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = pkcs12(issued, tmp_path / "s.p12")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    with pytest.raises(ConfigError, match=r"pip install 'kcore\[security\]'"):
        context({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(store)})


# ---------------------------------------------------------------- at run time


class Rotated:
    """A server with a TLS listener. An administrator changes its keys over a second listener without TLS."""

    def __init__(self, live: LiveServer) -> None:
        self.live = live

    def alter(self, *changes: tuple[str, int, str | None], broker: str = "1") -> tuple[int, str | None]:
        configs = [AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in changes]
        resource = AlterConfigsResource(resource_type=ConfigType.BROKER, resource_name=broker, configs=configs)
        with self.live.connect() as admin:
            (result,) = admin.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        return result.error_code, result.error_message

    def name(self, authority: Path) -> str:
        """Returns the common name of the certificate that a new connection receives."""
        tls = ssl.create_default_context(cafile=str(authority))
        port = self.live.server.addresses["SSL"][1]
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as raw,
            tls.wrap_socket(raw, server_hostname="localhost") as client,
        ):
            certificate: Any = client.getpeercert()
        return dict(part[0] for part in certificate["subject"])["commonName"]


@pytest.fixture
def rotated(serve: Callable[..., LiveServer], authority: Authority) -> Rotated:
    keystore = authority.issue("first.pem", (NameOID.COMMON_NAME, "first"))
    return Rotated(
        serve({"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": str(keystore)})
    )


LOCATION = "listener.name.ssl.ssl.keystore.location"


def test_a_new_certificate_is_served_at_once(rotated: Rotated, authority: Authority, tmp_path: Path) -> None:
    """New connections receive the new certificate, and open connections stay open.

    If the content of the file changes but not its name, setting the same name again loads the new content.
    """
    assert rotated.name(authority.file) == "first"
    port = rotated.live.server.addresses["SSL"][1]
    tls = ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as raw,
        tls.wrap_socket(raw, server_hostname="localhost") as before,
    ):
        second = authority.issue("second.pem", (NameOID.COMMON_NAME, "second"))
        assert rotated.alter((LOCATION, SET, str(second))) == (0, None)
        assert rotated.name(authority.file) == "second"
        authority.issue("second.pem", (NameOID.COMMON_NAME, "third"))
        assert rotated.name(authority.file) == "second", "until an administrator sets it again"
        assert rotated.alter((LOCATION, SET, str(second))) == (0, None)
        assert rotated.name(authority.file) == "third"
        before.settimeout(0.05)
        with pytest.raises(TimeoutError):
            before.recv(1)
    assert rotated.alter((LOCATION, DELETE, None)) == (0, None)
    assert rotated.name(authority.file) == "first", "the file's setting counts again"


def test_bad_keys_are_refused_with_the_reason(rotated: Rotated, authority: Authority, tmp_path: Path) -> None:
    """The change is not stored, and the present certificate stays in use."""
    (tmp_path / "noise.pem").write_text("noise")
    missing = str(tmp_path / "missing.pem")
    for changes, reason in [
        ([(LOCATION, SET, missing)], f"listener SSL: ssl.keystore.location={missing}: No such file or directory"),
        ([(LOCATION, SET, str(tmp_path / "noise.pem"))], "noise.pem: "),
        ([("listener.name.ssl.ssl.keystore.type", SET, "PKCS12")], "is not a PKCS12 file, or its password is wrong"),
        ([("listener.name.ssl.ssl.keystore.type", SET, "JKS")], "valid: one of 'PEM', 'PKCS12'"),
        ([("listener.name.ssl.ssl.keystore.key", SET, "secret-key")], "must be set together"),
        ([("ssl.keystore.location", SET, missing)], "for one listener only: listener.name.NAME.ssl.keystore.location"),
        ([("LISTENER.name.ssl.ssl.keystore.location", SET, missing)], "must begin with listener.name. in lower case"),
        ([("listener.name.SSL.ssl.keystore.location", SET, missing)], f"must be in lower case: {LOCATION}"),
        ([("listener.name.ssl.ssl.client.auth", SET, "none")], "cannot be changed while the broker runs"),
    ]:
        code, message = rotated.alter(*changes)
        assert code == 42
        assert reason in (message or "")
        assert "secret-key" not in (message or "")
    assert rotated.alter((LOCATION, SET, missing), broker="") == (
        42,
        f"{LOCATION} is a setting of one broker, not of the cluster",
    )
    settings = rotated.live.call(lambda: dict(rotated.live.engine.topics.settings_of(ConfigType.BROKER, "1")))
    assert settings == {}
    assert rotated.name(authority.file) == "first"


def test_keys_that_are_slow_to_decrypt_are_refused_at_run_time(
    rotated: Rotated, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private key whose password protection has too many iterations is refused. OpenSSL would block the event loop
    for 11 s with 20 million iterations.
    """
    file = authority.issue("second.pem", (NameOID.COMMON_NAME, "second"), password=KEY_PASSWORD)
    text = file.read_text()
    key, begin, chain = text.partition("-----BEGIN CERTIFICATE")

    def alter(pem: str) -> tuple[int, str | None]:
        """Sets the key as PEM text in the settings. If it is refused, a file with the same key must be refused, too."""
        text_result = rotated.alter(
            ("listener.name.ssl.ssl.keystore.location", SET, ""),
            ("listener.name.ssl.ssl.keystore.key", SET, pem),
            ("listener.name.ssl.ssl.keystore.certificate.chain", SET, begin + chain),
            ("listener.name.ssl.ssl.key.password", SET, KEY_PASSWORD),
        )
        file.write_text(pem + begin + chain)
        if text_result[0]:
            assert rotated.alter((LOCATION, SET, str(file))) == text_result
        return text_result

    with monkeypatch.context() as patched:
        patched.setattr(key_cost, "MAX_ITERATIONS", 1_000)
        code, message = alter(key)
        assert code == 42
        assert "iterations; the maximum at run time is 1000" in (message or "")
    lines = key.splitlines()
    body = base64.b64decode("".join(lines[1:-1]))
    scheme = bytes.fromhex("2a864886f70d0105")
    foreign = base64.b64encode(body.replace(scheme + b"\x0d", scheme + b"\x03")).decode()
    for pem, reason in [
        ("\n".join([lines[0], foreign, lines[-1], ""]), "the encryption of the key is not PBES2 with PBKDF2"),
        ("\n".join([lines[0], "Name: value", "", *lines[1:], ""]), "the key is not well-formed PEM"),
    ]:
        code, message = alter(pem)
        assert code == 42
        assert reason in (message or "")
    assert rotated.name(authority.file) == "first"
    assert alter(key) == (0, None)
    assert rotated.name(authority.file) == "second"


@pytest.mark.parametrize("length", range(0, 120, 7))
def test_an_encrypted_key_that_is_cut_is_refused(authority: Authority, length: int) -> None:
    text = authority.issue("cut.pem", (NameOID.COMMON_NAME, "cut"), password=KEY_PASSWORD).read_text()
    lines = text.partition("-----BEGIN CERTIFICATE")[0].splitlines()
    body = base64.b64encode(base64.b64decode("".join(lines[1:-1]))[:length]).decode()
    with pytest.raises(ConfigError, match="is not PBES2"):
        key_cost.check_key_cost("\n".join([lines[0], body, lines[-1]]).encode())


TYPE = "listener.name.ssl.ssl.keystore.type"


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_only_small_regular_files_are_read(rotated: Rotated, authority: Authority, tmp_path: Path, kind: str) -> None:
    """The event loop reads the file: a pipe would block the loop, and a huge file would fill the memory."""
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    os.mkfifo(pipe)
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    for path, reason in [
        (str(pipe), "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (str(huge), "larger than 4194304 bytes"),
    ]:
        code, message = rotated.alter((TYPE, SET, kind), (LOCATION, SET, path))
        assert (code, message) == (42, f"listener SSL: ssl.keystore.location={path}: {reason}")
    assert rotated.name(authority.file) == "first"


def open_paths() -> set[str]:
    """Returns the paths of the open file descriptors of this process. Other threads may close some of these files
    meanwhile.
    """
    paths = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            paths.add(os.readlink(f"/proc/self/fd/{number}"))
    return paths


@pytest.mark.skipif(sys.platform != "linux", reason="reads descriptors in /proc")
def test_a_refused_key_store_leaves_no_descriptor_open(rotated: Rotated, tmp_path: Path) -> None:
    """The server closes all files of a refused key store. Otherwise repeated changes could use up its descriptors."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    cases = [(str(tmp_path), "Is a directory"), (str(pipe), "not a regular file")]
    for path, reason in cases:
        assert rotated.alter((LOCATION, SET, path)) == (42, f"listener SSL: ssl.keystore.location={path}: {reason}")
    assert not {path for path, _ in cases} & open_paths()


def test_several_settings_change_together(
    rotated: Rotated, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """One request changes the key store, its format and its password. The new certificate has another authority.

    A client of librdkafka that trusts only the new authority can connect afterwards.
    """
    other = Authority(tmp_path_factory.mktemp("other"), "other authority")
    store = pkcs12(other.issue("other.pem", (NameOID.COMMON_NAME, "other")), tmp_path / "other.p12")
    assert rotated.alter(
        (LOCATION, SET, str(store)),
        ("listener.name.ssl.ssl.keystore.type", SET, "PKCS12"),
        ("listener.name.ssl.ssl.keystore.password", SET, STORE_PASSWORD),
    ) == (0, None)
    assert rotated.name(other.file) == "other"
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{rotated.live.server.addresses['SSL'][1]}",
            "security.protocol": "ssl",
            "ssl.ca.location": str(other.file),
        }
    )
    assert [broker.id for broker in admin.list_topics(timeout=20).brokers.values()] == [1]


def test_keys_that_vanish_later_stay_in_use(
    rotated: Rotated, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A key file is deleted, and then the server reloads its keys. The server keeps the loaded keys and logs the
    failure.
    """
    second = authority.issue("vanishing.pem", (NameOID.COMMON_NAME, "second"))
    assert rotated.alter((LOCATION, SET, str(second))) == (0, None)
    second.unlink()
    rotated.live.call(rotated.live.server.engine.control.broker_config.keys.reload)  # type: ignore[union-attr]
    assert rotated.name(authority.file) == "second"
    assert "listeners: cannot reload keys: listener SSL: ssl.keystore.location=" in caplog.text
    assert "; the previous keys stay in use; correct the key files or the settings\n" in caplog.text


# ---------------------------------------------------------------- at the next start


@dataclass
class Stored:
    """A log with a key store setting that was changed at run time. The file that the setting names no longer exists."""

    storage: MemoryStorage
    settings: dict[str, str]
    location: Path


@pytest.fixture
def stored(authority: Authority) -> Stored:
    storage = MemoryStorage()
    first = authority.issue("static.pem", (NameOID.COMMON_NAME, "static"))
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", LOCATION: str(first)}
    gone = authority.issue("gone.pem", (NameOID.COMMON_NAME, "gone"))
    with LiveServer(settings, log=MemoryLogEngine(storage)) as live:
        assert Rotated(live).alter((LOCATION, SET, str(gone))) == (0, None)
    gone.unlink()
    return Stored(storage, settings, gone)


def test_stored_keys_that_cannot_be_loaded_do_not_stop_a_start(
    stored: Stored, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The static certificate is served until an administrator alters or deletes the stored setting."""
    with LiveServer(stored.settings, log=MemoryLogEngine(stored.storage)) as live:
        rotated = Rotated(live)
        assert rotated.name(authority.file) == "static"
        (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert f"ssl.keystore.location={stored.location}: No such file or directory" in line
        assert f"dynamic settings in the data folder ({LOCATION})" in line
        third = authority.issue("third.pem", (NameOID.COMMON_NAME, "third"))
        assert rotated.alter((LOCATION, SET, str(third))) == (0, None)
        assert rotated.name(authority.file) == "third"
        assert rotated.alter((LOCATION, DELETE, None)) == (0, None)
        assert rotated.name(authority.file) == "static"


def test_without_static_keys_the_refusal_names_the_stored_setting(stored: Stored) -> None:
    config = Config.of({**SMALL, **stored.settings, LOCATION: str(stored.location)})
    loop = asyncio.new_event_loop()
    engine = Engine(MemoryLogEngine(stored.storage), config, SystemClock())
    driver = AsyncDriver(engine, loop)
    with pytest.raises(ConfigError) as caught:
        Server(driver, parse_listeners(config))
    driver.close()
    engine.close()
    loop.close()
    assert f"was set at run time and is stored in the data folder ({LOCATION})" in str(caught.value)


def test_a_stored_setting_in_upper_case_has_no_effect(
    rotated: Rotated, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier versions of kcore stored names of settings in upper case. The server ignores such a setting with a
    warning.

    The setting in lower case applies.
    """
    name = "listener.name.SSL.ssl.keystore.location"
    second = authority.issue("second.pem", (NameOID.COMMON_NAME, "second"))
    with monkeypatch.context() as earlier:
        earlier.setattr(BrokerConfig, "fault", lambda *_: None)
        assert rotated.alter((name, SET, str(second))) == (0, None)
    assert rotated.name(authority.file) == "first"
    assert f"the stored dynamic setting {name} has no effect" in caplog.text
    assert rotated.alter((name, DELETE, None), (LOCATION, SET, str(second))) == (0, None)
    assert rotated.name(authority.file) == "second"


def test_stores_that_are_slow_to_decrypt_are_refused_at_run_time(
    rotated: Rotated, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part of a PKCS12 file names its own iterations; OpenSSL performs all of them on the event loop."""
    source = authority.issue("second.pem", (NameOID.COMMON_NAME, "second"))
    store = pkcs12(source, tmp_path / "store.p12")
    data = store.read_bytes()
    trust = java_truststore(authority, tmp_path / "trust.p12")
    changes = [
        ("listener.name.ssl.ssl.keystore.type", SET, "PKCS12"),
        ("listener.name.ssl.ssl.keystore.password", SET, STORE_PASSWORD),
        (LOCATION, SET, str(store)),
    ]
    iterations = list(key_cost._store_iterations(data))
    assert len(iterations) >= 2
    for limit, content, reason in [
        (sum(iterations) - 1, data, f"have {sum(iterations)} iterations; the maximum at run time is"),
        (sum(iterations), b"\x30\x80" + data[4:] + bytes(2), "the file is not DER"),
        (sum(iterations), data[:-1], "the file is not DER"),
    ]:
        store.write_bytes(content)
        with monkeypatch.context() as patched:
            patched.setattr(key_cost, "MAX_ITERATIONS", limit)
            code, message = rotated.alter(*changes)
        assert code == 42
        assert reason in (message or "")
    store.write_bytes(data)
    with monkeypatch.context() as patched:
        patched.setattr(key_cost, "MAX_ITERATIONS", 1)
        trusted = [
            ("listener.name.ssl.ssl.truststore.type", SET, "PKCS12"),
            ("listener.name.ssl.ssl.truststore.password", SET, STORE_PASSWORD),
            ("listener.name.ssl.ssl.truststore.location", SET, str(trust)),
        ]
        code, message = rotated.alter(*trusted)
        assert (code, "the maximum at run time is 1" in (message or "")) == (42, True)
    assert rotated.name(authority.file) == "first"
    assert rotated.alter(*changes) == (0, None)
    assert rotated.name(authority.file) == "second"
