"""The security settings: protocols of listeners, TLS, SASL and authorization.

Those of TLS and SASL may be set for one listener, with Kafka's prefix:
`listener.name.internal.ssl.client.auth=required`.
"""

from __future__ import annotations

from kcore.config.jaas import jaas_fault
from kcore.config.setting import SettingType, setting

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's own authorizer; the name selects kcore's authorizer, which has the same rules."""

LISTENER_PREFIX = "listener.name."


class SecuritySettings:
    """The security part of `kcore.config.node.Config`."""

    # ---- listeners
    listener_security_protocol_map: tuple[str, ...] = setting(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "The protocol of each listener, NAME:PROTOCOL each: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )

    # ---- TLS
    ssl_keystore_type: str = setting("PEM", "The format of ssl.keystore.location.", choices=("PEM",))
    ssl_keystore_location: str = setting(
        "", "A PEM file with the server's certificate, the chain to its root, and its private key."
    )
    kcore_ssl_key_location: str = setting("", "A PEM file with the private key, if ssl.keystore.location has none.")
    ssl_key_password: str | None = setting(None, "The password of an encrypted private key.", kind=SettingType.PASSWORD)
    ssl_truststore_type: str = setting("PEM", "The format of ssl.truststore.location.", choices=("PEM",))
    ssl_truststore_location: str = setting("", "A PEM file with the authorities that sign the clients' certificates.")
    ssl_client_auth: str = setting(
        "none", "Whether clients must present a certificate.", choices=("none", "requested", "required")
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        ("TLSv1.2", "TLSv1.3"),
        "The enabled versions of TLS.",
        choices=("TLSv1.2", "TLSv1.3"),
        check=lambda value: None if value else "is empty",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (), "Cipher suites of TLS 1.2, by Java's or OpenSSL's names; empty: OpenSSL's default. Those of 1.3 are fixed."
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
    sasl_server_max_receive_size: int = setting(
        524_288, "Maximum size of a request before the client has authenticated.", low=1
    )
    kcore_sasl_oauthbearer_validator: str = setting(
        "",
        "package.module:callable that checks the tokens of OAUTHBEARER: (token, extensions) -> OAuthIdentity. There is "
        "no default: kcore accepts no token without a check.",
    )
    plain_sasl_jaas_config: str | None = setting(
        None,
        'The users of PLAIN: org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="password"; '
        "If it is set, PLAIN accepts these users only, not those of `kcore users`. The name without `plain.`, "
        "sasl.jaas.config, means the same; for one listener the name is listener.name.NAME.plain.sasl.jaas.config.",
        kind=SettingType.PASSWORD,
        check=jaas_fault,
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, "Delay of the response to a failed authentication.", low=0
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
        "", "Principals that may do everything, without access control lists: User:admin;User:CN=ops,O=example."
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, "Whether every principal may use a resource without any entry in the access control lists."
    )


PER_LISTENER = frozenset(
    name
    for name in SecuritySettings.__annotations__
    if name.startswith(("ssl_", "sasl_", "kcore_ssl_", "kcore_sasl_", "plain_sasl_", "connections_max_reauth"))
)
"""Attributes of the settings that may be set for one listener."""
