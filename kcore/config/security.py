"""The settings of security: which listeners speak what, TLS, SASL, and who may do what.

Those of TLS and SASL may be given for one listener alone, with Kafka's prefix:
`listener.name.internal.ssl.client.auth=required`.
"""

from __future__ import annotations

from kcore.config.setting import SettingType, setting

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's own authorizer; here it means ours, which has its rules."""

LISTENER_PREFIX = "listener.name."


class SecuritySettings:
    """Part of `kcore.config.node.Config`."""

    # ---- listeners
    listener_security_protocol_map: tuple[str, ...] = setting(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "What each listener speaks, NAME:PROTOCOL each; protocols are PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
    )

    # ---- TLS
    ssl_keystore_type: str = setting("PEM", "The form of ssl.keystore.location.", choices=("PEM",))
    ssl_keystore_location: str = setting(
        "", "A PEM file with the server's certificate, those that lead to its root, and its private key."
    )
    kcore_ssl_key_location: str = setting("", "A PEM file with the private key, if it is not in the keystore's.")
    ssl_key_password: str | None = setting(None, "The password of an encrypted private key.", kind=SettingType.PASSWORD)
    ssl_truststore_type: str = setting("PEM", "The form of ssl.truststore.location.", choices=("PEM",))
    ssl_truststore_location: str = setting("", "A PEM file with the certificates that sign those of clients.")
    ssl_client_auth: str = setting(
        "none", "Whether clients show a certificate.", choices=("none", "requested", "required")
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS.",
        choices=("TLSv1.2", "TLSv1.3"),
        check=lambda value: None if value else "is empty",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (), "Suites of TLS 1.2, by Java's names or OpenSSL's; empty: OpenSSL's choice. Those of TLS 1.3 are fixed."
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        "How a certificate's subject becomes a user: RULE:pattern/name/[LU] and DEFAULT, with commas between.",
    )

    # ---- SASL
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "How clients may authenticate. Kafka's default is GSSAPI, which kcore does not have. PLAIN and SCRAM share "
        "their users (kcore users); PLAIN sends passwords as they are and belongs on SASL_SSL.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        check=lambda value: None if value else "is empty",
    )
    sasl_server_max_receive_size: int = setting(
        524_288, "The largest frame of a client that has not authenticated yet.", low=1
    )
    kcore_sasl_oauthbearer_validator: str = setting(
        "",
        "package.module:callable that checks the tokens of OAUTHBEARER: (token, extensions) -> OAuthIdentity. There is "
        "no default: kcore takes no token on its own word.",
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, "How long the answer to a failed authentication waits.", low=0
    )
    connections_max_reauth_ms: int = setting(
        0,
        "How long an authentication counts before the client has to renew it; 0: never.",
        low=0,
        kind=SettingType.LONG,
    )

    # ---- who may do what
    authorizer_class_name: str = setting(
        "",
        f"Who may do what. Empty: everybody everything. {STANDARD_AUTHORIZER}: access control lists, kept by kcore and "
        "administered with Kafka's tools. package.module:Class: an authorizer of your own.",
    )
    super_users: str = setting("", "Who may do everything, whatever the lists say: User:admin;User:CN=ops,O=example.")
    allow_everyone_if_no_acl_found: bool = setting(
        False, "Whether everybody may do everything with a resource that no entry of the lists speaks of."
    )


PER_LISTENER = frozenset(
    name
    for name in SecuritySettings.__annotations__
    if name.startswith(("ssl_", "sasl_", "kcore_ssl_", "kcore_sasl_", "connections_max_reauth"))
)
"""Attributes of the settings that may be given for one listener alone."""
