"""Settings of listeners: protocols, TLS files, names from certificates, and passwords that no output shows."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

from kcore.cli.serve import print_config
from kcore.config.node import Config
from kcore.errors import ConfigError
from kcore.security.principal import PrincipalRules, distinguished_name
from kcore.security.protocols import SecurityProtocol
from kcore.server.listeners import parse_listeners
from kcore.server.tls import openssl_name, server_context
from tests.security.certificates import KEY_PASSWORD, Authority


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> Path:
    return authority.issue("encrypted.pem", (NameOID.COMMON_NAME, "server"), password=KEY_PASSWORD)


def context(**settings: str) -> ssl.SSLContext:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return server_context(Config.of(named).for_listener("SSL"), "SSL")


def test_a_context_has_the_settings(encrypted: Path, authority: Authority) -> None:
    """The context has the protocol versions, client certificates, ciphers and the encrypted key of the settings."""
    files = {"ssl_keystore_location": str(encrypted), "ssl_key_password": KEY_PASSWORD}
    plain = context(**files)
    assert (plain.minimum_version, plain.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert plain.verify_mode is ssl.CERT_NONE
    trust = {"ssl_truststore_location": str(authority.file)}
    asking = context(**files, **trust, ssl_client_auth="requested", ssl_enabled_protocols="TLSv1.3")
    assert (asking.verify_mode, asking.minimum_version) == (ssl.CERT_OPTIONAL, ssl.TLSVersion.TLSv1_3)
    assert [one["subject"] for one in asking.get_ca_certs()] == [((("commonName", "kcore tests"),),)]
    chosen = context(**files, ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    assert [one["name"] for one in chosen.get_ciphers() if one["protocol"] == "TLSv1.2"] == [
        "ECDHE-ECDSA-AES128-GCM-SHA256"
    ]


def test_invalid_contexts_are_refused(encrypted: Path, authority: Authority, tmp_path: Path) -> None:
    """The start fails with an error that names the listener and the setting, but not the password."""
    files = {"ssl_keystore_location": str(encrypted), "ssl_key_password": KEY_PASSWORD}
    (tmp_path / "noise.pem").write_text("noise")
    wrong: list[dict[str, str]] = [
        {},
        {"ssl_keystore_location": str(tmp_path / "missing.pem")},
        {"ssl_keystore_location": str(tmp_path / "noise.pem")},
        {"ssl_keystore_location": str(encrypted)},
        {"ssl_keystore_location": str(encrypted), "ssl_key_password": "not-" + KEY_PASSWORD},
        {"ssl_keystore_location": str(authority.file)},
        files | {"ssl_client_auth": "required"},
        files | {"ssl_client_auth": "required", "ssl_truststore_location": str(tmp_path / "noise.pem")},
        files | {"ssl_cipher_suites": "NOTHING"},
        files | {"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"},
        files | {"ssl_enabled_protocols": ""},
        files | {"ssl_keystore_type": "JKS"},
    ]
    for settings in wrong:
        with pytest.raises(ConfigError) as refused:
            context(**settings)
        assert "ssl." in str(refused.value), settings
        assert KEY_PASSWORD not in str(refused.value)


def test_the_error_of_a_separate_key_file_names_this_file(encrypted: Path, tmp_path: Path) -> None:
    missing, noise = tmp_path / "missing.pem", tmp_path / "noise.pem"
    noise.write_text("noise")
    store = {"ssl.keystore.location": str(encrypted)}
    for key, expected in (
        (missing, f"kcore.ssl.key.location={missing}: No such file or directory"),
        (tmp_path, f"kcore.ssl.key.location={tmp_path}: Is a directory"),
        (
            noise,
            f"ssl.keystore.location={encrypted}, kcore.ssl.key.location={noise}: not a PEM file with a certificate",
        ),
    ):
        with pytest.raises(ConfigError) as refused:
            server_context(Config.of(store | {"kcore.ssl.key.location": str(key)}).for_listener("SSL"), "SSL")
        assert str(refused.value).startswith(f"listener SSL: {expected}")


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_javas_names_of_ciphers_are_accepted(java: str, openssl: str) -> None:
    """OpenSSL has a different name for each of these ciphers."""
    assert openssl_name(java) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def test_listeners_have_protocols() -> None:
    """The name of a listener is its security protocol, unless `listener.security.protocol.map` maps the name to a
    protocol. With another name the start is refused, so that no listener lacks protection by mistake.
    """
    config = Config.of(
        {
            "listeners": "SSL://:1,IN://:2,OUT://:3,PLAINTEXT2://:4",
            "listener.security.protocol.map": "SSL:SSL, in:PLAINTEXT ,OUT:sasl_ssl",
        }
    )
    assert [one.protocol.value for one in parse_listeners(config)] == ["SSL", "PLAINTEXT", "SASL_SSL", "PLAINTEXT"]
    assert SecurityProtocol.SASL_SSL.has_sasl
    assert SecurityProtocol.SASL_SSL.has_tls
    for settings in (
        {"listeners": "SECRET://:1"},
        {"listeners": "SSL://:1", "listener.security.protocol.map": "SSL:TLS"},
        {"listeners": "SSL://:1", "listener.security.protocol.map": "SSL"},
    ):
        with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
            parse_listeners(Config.of(settings))


def test_a_listener_may_have_its_own_settings() -> None:
    """A setting with the prefix of a listener has precedence over the same setting without it. Settings that do not
    apply to single listeners are refused with such a prefix.
    """
    config = Config.of({"listener.name.internal.ssl.client.auth": "required", "ssl.client.auth": "requested"})
    assert config.for_listener("INTERNAL").ssl_client_auth == "required"
    assert config.for_listener("OTHER").ssl_client_auth == "requested"
    for name in (
        "listener.name.internal.num.partitions",
        "listener.name.ssl.client.auth",
        "listener.name.x.ssl.nothing",
    ):
        with pytest.raises(ConfigError):
            Config.of({f"listener.name.{name}": "1"})


def test_the_name_of_a_listener_is_in_lower_case() -> None:
    """In the prefix of a setting, the listener's name must be in lower case, as in Kafka. Two spellings of a setting
    would be ambiguous.
    """
    config = Config.of({"listener.name.internal.ssl.client.auth": "required"})
    with pytest.raises(ConfigError, match=r"in lower case: listener\.name\.internal\.ssl\.client\.auth$"):
        config.set("listener.name.INTERNAL.ssl.client.auth", "none", "-c")
    with pytest.raises(ConfigError, match="in lower case"):
        Config.of({"listener.name.x.PLAIN.sasl.jaas.config": ""})
    assert config.for_listener("INTERNAL").ssl_client_auth == "required"


def test_passwords_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """--print-config and error texts contain no password."""
    print_config(Config.of({"ssl.key.password": "hush", "listener.name.a.ssl.key.password": "hush"}))
    lines = [line for line in capsys.readouterr().out.splitlines() if "key.password" in line]
    assert lines == [
        "ssl.key.password=[hidden]  # given",
        "listener.name.a.ssl.key.password=[hidden]  # given",
    ]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([("countryName", "CH"), ("organizationName", "kcore"), ("commonName", "w")], "CN=w,O=kcore,C=CH"),
        ([("commonName", 'a,b+"c\\<>;')], 'CN=a\\,b\\+\\"c\\\\\\<\\>\\;'),
        ([("commonName", "#x ")], "CN=\\#x\\ "),
        ([("emailAddress", "a@b"), ("commonName", "w")], "CN=w,1.2.840.113549.1.9.1=#1603614062"),
        ([("emailAddress", "a" * 200)], "1.2.840.113549.1.9.1=#1681c8" + "61" * 200),
        ([("emailAddress", "a" * 300)], "1.2.840.113549.1.9.1=#1682012c" + "61" * 300),
        ([], ""),
    ],
)
def test_a_subject_is_written_as_java_writes_it(parts: list[tuple[str, str]], text: str) -> None:
    """The text has the format of RFC 2253: the last part comes first, and special characters are escaped."""
    assert distinguished_name({"subject": tuple((part,) for part in parts)}) == text


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Worker,OU=ops,O=kcore"),
        ("", None),
        ("RULE:^CN=(.*?),.*$/$1/", "Worker"),
        ("RULE:^CN=(.*?),.*$/$1/L", "worker"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "WORKER@OPS"),
        ("RULE:^OU=.*$/no/,RULE:^CN=Work/no/,DEFAULT", "CN=Worker,OU=ops,O=kcore"),
        ("RULE:^OU=.*$/no/", None),
    ],
)
def test_rules_make_names_of_subjects(rules: str, name: str | None) -> None:
    """The rules have the format of KIP-371."""
    assert PrincipalRules(rules).name("CN=Worker,OU=ops,O=kcore") == name


@pytest.mark.parametrize("rules", ["RULE", "RULE:a/b", "RULE:(/x/", "NONE", "DEFAULT DEFAULT"])
def test_invalid_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError):
        PrincipalRules(rules)
