"""The security settings: protocols of listeners, TLS, SASL and authorization.

The settings of TLS and SASL may be set for a single listener, with Kafka's prefix:
`listener.name.internal.ssl.client.auth=required`.
"""

from __future__ import annotations

from kcore.config.jaas import jaas_fault
from kcore.config.setting import SettingType, setting

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Class name of Kafka's own authorizer. In kcore, it selects kcore's authorizer, which has the same rules."""

LISTENER_PREFIX = "listener.name."

CALLBACK_HANDLERS = frozenset(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerValidatorCallbackHandler"
    for package in ("", "secured.")
)
"""The two class names of Kafka's callback handler for OAUTHBEARER tokens. kcore accepts no other callback handler."""


def _handler_fault(name: str) -> str | None:
    if not name or name in CALLBACK_HANDLERS:
        return None
    return "is not supported: use plain.sasl.jaas.config or kcore.sasl.oauthbearer.validator"


def _jwks_fault(url: str) -> str | None:
    scheme = url.partition(":")[0].lower()
    if not url or scheme in {"https", "http", "file"}:
        return None
    return "is not an https, http or file URL"


class SecuritySettings:
    """The security part of `kcore.config.node.Config`."""

    # ---- listeners
    listener_security_protocol_map: tuple[str, ...] = setting(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "The protocol of each listener, as NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )

    # ---- TLS
    ssl_keystore_type: str = setting(
        "PEM",
        "The format of ssl.keystore.location. PKCS12 needs the extra `security`. `keytool -importkeystore "
        "-deststoretype PKCS12` converts a JKS file.",
        choices=("PEM", "PKCS12"),
    )
    ssl_keystore_location: str = setting(
        "", "A PEM or PKCS12 file with the server's certificate, the chain to its root, and its private key."
    )
    ssl_keystore_password: str | None = setting(
        None, "The password of ssl.keystore.location, if that is a PKCS12 file.", kind=SettingType.PASSWORD
    )
    ssl_keystore_key: str | None = setting(
        None, "The private key as a PEM text, in place of ssl.keystore.location.", kind=SettingType.PASSWORD
    )
    ssl_keystore_certificate_chain: str | None = setting(
        None,
        "The server's certificate and the chain to its root as a PEM text, with ssl.keystore.key.",
        kind=SettingType.PASSWORD,
    )
    kcore_ssl_key_location: str = setting("", "A PEM file with the private key, if ssl.keystore.location has none.")
    ssl_key_password: str | None = setting(None, "The password of an encrypted private key.", kind=SettingType.PASSWORD)
    ssl_truststore_type: str = setting(
        "PEM", "The format of ssl.truststore.location; PKCS12 needs the extra `security`.", choices=("PEM", "PKCS12")
    )
    ssl_truststore_location: str = setting(
        "", "A PEM or PKCS12 file with the authorities that sign the clients' certificates."
    )
    ssl_truststore_password: str | None = setting(
        None, "The password of ssl.truststore.location, if that is a PKCS12 file.", kind=SettingType.PASSWORD
    )
    ssl_truststore_certificates: str | None = setting(
        None,
        "The authorities that sign the clients' certificates as a PEM text, in place of ssl.truststore.location.",
        kind=SettingType.PASSWORD,
    )
    ssl_client_auth: str = setting(
        "none",
        "none: clients present no certificate. requested: they may present one. required: they must present one.",
        choices=("none", "requested", "required"),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        ("TLSv1.2", "TLSv1.3"),
        "The enabled versions of TLS.",
        choices=("TLSv1.2", "TLSv1.3"),
        check=lambda value: None if value else "is empty",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (),
        "Cipher suites of TLS 1.2, by Java's or OpenSSL's names; empty: OpenSSL's default. TLS 1.3 has fixed suites.",
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        "The rules that map a certificate's subject to a user: RULE:pattern/name/[LU] and DEFAULT, comma-separated.",
    )

    # ---- SASL
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "The enabled SASL mechanisms. Kafka's default is GSSAPI, which kcore does not have. PLAIN and SCRAM share "
        "their users (kcore users). PLAIN sends passwords unencrypted and should be used with SASL_SSL only.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        check=lambda value: None if value else "is empty",
    )
    sasl_server_callback_handler_class: str | None = setting(
        None,
        "Only Kafka's own handler of OAUTHBEARER tokens is accepted. The value has no effect, because kcore checks "
        "tokens by the same rules (sasl.oauthbearer.jwks.endpoint.url).",
        kind=SettingType.CLASS,
        check=_handler_fault,
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        None,
        "The https, http or file URL of the issuer's public keys (a JSON Web Key Set), with which kcore checks tokens "
        "of OAUTHBEARER. This needs the extra `security`.",
        check=_jwks_fault,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, "Time after which kcore reads the issuer's keys again.", low=1, kind=SettingType.LONG
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        100,
        "Time after which kcore tries again to read the issuer's keys after a failure; it doubles with each failure.",
        low=1,
        kind=SettingType.LONG,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        10_000,
        "Upper bound of the doubled `sasl.oauthbearer.jwks.endpoint.retry.backoff.ms`. A token with an unknown key "
        "makes kcore read the keys again; this setting is also the minimum time between two such reads.",
        low=1,
        kind=SettingType.LONG,
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        (), "The audiences that kcore accepts; a token must name one of them. Empty: a token must name no audience."
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        None, "The issuer that a token must name; unset: any issuer is accepted."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30,
        "Allowed difference between the clocks of kcore and the issuer, when kcore checks the times of a token.",
        low=0,
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        "scope", "The claim that has a token's scopes. A token may lack it."
    )
    sasl_oauthbearer_sub_claim_name: str = setting("sub", "The claim that has the name of the user.")
    sasl_server_max_receive_size: int = setting(
        524_288, "Maximum size of a request before the client has authenticated.", low=1
    )
    kcore_sasl_oauthbearer_validator: str = setting(
        "",
        "package.module:callable that checks the tokens of OAUTHBEARER: (token, extensions) -> OAuthIdentity. If "
        "OAUTHBEARER is enabled, this setting or sasl.oauthbearer.jwks.endpoint.url must be set.",
    )
    plain_sasl_jaas_config: str | None = setting(
        None,
        "The users of PLAIN, as `org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_NAME="password";` with the semicolon. If this setting is set, PLAIN accepts only these users, and not '
        "those of `kcore users`. "
        "sasl.jaas.config is another name of this setting. For one listener, the name is "
        "listener.name.NAME.plain.sasl.jaas.config.",
        kind=SettingType.PASSWORD,
        check=jaas_fault,
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, "Time by which the server delays the response to a failed authentication.", low=0
    )
    connections_max_reauth_ms: int = setting(
        0,
        "Time after which a client must authenticate again; 0: never.",
        low=0,
        kind=SettingType.LONG,
    )

    # ---- authorization
    authorizer_class_name: str = setting(
        "",
        f"The authorizer. Empty: every request is allowed. {STANDARD_AUTHORIZER}: access control lists, stored by "
        "kcore and administered with Kafka's tools. package.module:Class: a custom authorizer.",
    )
    super_users: str = setting(
        "", "Principals that may do everything, without access control lists, such as User:admin;User:CN=ops,O=example."
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, "If true, every principal may use a resource for which the access control lists have no entry."
    )


PER_LISTENER = frozenset(
    name
    for name in SecuritySettings.__annotations__
    if name.startswith(("ssl_", "sasl_", "kcore_ssl_", "kcore_sasl_", "plain_sasl_", "connections_max_reauth"))
)
"""Attribute names of the settings that may be set for a single listener."""

LISTENER_LIMITS = frozenset(("max_connections", "max_connection_creation_rate"))
"""Attribute names of limits that apply to the server, and that may also be set for a single listener.

They may change at run time.
"""

OF_OAUTHBEARER = ("sasl.oauthbearer.", "sasl.server.callback.")
"""Prefixes of the settings that may also be set for one mechanism, as listener.name.NAME.oauthbearer.SETTING."""

RELOADABLE = frozenset(name for name in PER_LISTENER if name.startswith(("ssl_key", "ssl_truststore", "kcore_ssl_key")))
"""Attribute names of the settings of a single listener that may change at run time: keys and certificates."""


_PER_MECHANISM = tuple(prefix.replace(".", "_") for prefix in OF_OAUTHBEARER)
_OF_LISTENERS = (
    *(name.replace("_", ".") for name in PER_LISTENER | LISTENER_LIMITS),
    *(f"oauthbearer.{name.replace('_', '.')}" for name in PER_LISTENER if name.startswith(_PER_MECHANISM)),
    *(f"{mechanism}.sasl.jaas.config" for mechanism in ("scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")),
)
"""Names of the settings of listeners, without the prefix of the listener."""


def listener_names(listeners: tuple[str, ...]) -> set[str]:
    """Returns the name of each listener of the setting `listeners`, in lower case."""
    return {(entry.rpartition("://")[0].strip() or "PLAINTEXT").lower() for entry in listeners}


def listener_of(name: str) -> str:
    """Returns the listener, in lower case, of a valid setting `listener.name.LISTENER.SETTING`."""
    rest = name.removeprefix(LISTENER_PREFIX)
    setting_name = max((one for one in _OF_LISTENERS if rest.endswith(f".{one}")), key=len)
    return rest.removesuffix(f".{setting_name}")
