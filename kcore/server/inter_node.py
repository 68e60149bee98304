"""The connections between the nodes of a cluster: their listener, and the credentials with which a node connects."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from kcore.client.sasl import MECHANISMS
from kcore.client.security import ClientSecurity
from kcore.config.jaas import login_module
from kcore.config.security import LISTENER_PREFIX
from kcore.errors import ConfigError
from kcore.security.protocols import SecurityProtocol
from kcore.server.key_material import load_keystore, load_truststore

if TYPE_CHECKING:
    from kcore.config.node import Config
    from kcore.config.security import SecuritySettings
    from kcore.server.listeners import Listener


def inter_node_listener(config: Config, listeners: list[Listener]) -> Listener:
    """Returns the listener that nodes use among themselves.

    `inter.broker.listener.name` selects the listener by its name. `security.inter.broker.protocol` selects the first
    listener with this protocol. If neither is set, the result is the first listener.

    Raises:
        ConfigError: there is no such listener, both settings are set, or a listener has port 0.
    """
    for listener in listeners:
        if not (listener.advertised_port or listener.port):
            raise ConfigError(f"listener {listener.name}: a node of a cluster needs a fixed port, not 0")
    name = config.get("inter.broker.listener.name")
    by_protocol = config.source("security.inter.broker.protocol") != "default"
    if name and by_protocol:
        raise ConfigError("inter.broker.listener.name and security.inter.broker.protocol exclude each other")
    if name:
        chosen = next((one for one in listeners if one.name == name), None)
        if chosen is None:
            raise ConfigError(f"inter.broker.listener.name={name}: no listener has this name")
        return chosen
    if not by_protocol:
        return listeners[0]
    protocol = config.get("security.inter.broker.protocol")
    chosen = next((one for one in listeners if one.protocol.name == protocol), None)
    if chosen is None:
        raise ConfigError(f"security.inter.broker.protocol={protocol}: no listener has this protocol")
    return chosen


def inter_node_security(config: Config, listener: Listener) -> ClientSecurity | None:
    """Returns the TLS and SASL configuration with which this node connects to other nodes; None for PLAINTEXT.

    The node uses the certificate and the trusted authorities of the listener. Without `ssl.truststore.*`, it trusts the
    authorities of the system. User and password are `username` and `password` of the listener's JAAS configuration.

    Raises:
        ConfigError: a file cannot be read, or the mechanism or its credentials are missing.
    """
    protocol = listener.protocol
    if protocol is SecurityProtocol.PLAINTEXT:
        return None
    settings = config.for_listener(listener.name)
    tls = None
    if protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL):
        tls = _client_context(config, settings, listener.name)
    if protocol is SecurityProtocol.SSL:
        return ClientSecurity(tls)
    mechanism = config.get("sasl.mechanism.inter.broker.protocol").upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"listener {listener.name}: nodes connect with SASL: sasl.mechanism.inter.broker.protocol must be one of "
            f"{', '.join(MECHANISMS)}, not {mechanism}"
        )
    user, password = _credentials(config, settings, listener.name, mechanism)
    return ClientSecurity(tls, mechanism, user, password)


def _client_context(config: Config, settings: SecuritySettings, listener: str) -> ssl.SSLContext:
    trusts = settings.ssl_truststore_location or settings.ssl_truststore_certificates
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if trusts:
            load_truststore(context, settings)
        else:
            context.load_default_certs()
        load_keystore(context, settings)
    except (ConfigError, OSError, ValueError) as error:
        reason = error if isinstance(error, ConfigError) else type(error).__name__
        raise ConfigError(f"listener {listener}: the key or the authorities cannot be used: {reason}") from None
    if (config.get("ssl.endpoint.identification.algorithm") or "").lower() in ("", "none"):
        context.check_hostname = False
    return context


def _credentials(config: Config, settings: SecuritySettings, listener: str, mechanism: str) -> tuple[str, str]:
    """Returns user and password of this node from the JAAS configuration of the mechanism."""
    name = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    text = settings.plain_sasl_jaas_config if mechanism == "PLAIN" else config.of_listener(name, None)
    text = text or config.get("sasl.jaas.config")
    options = dict(login_module(text)[1]) if text else {}
    user, password = options.get("username"), options.get("password")
    if not user or not password:
        raise ConfigError(f'{name}: nodes connect with SASL, so the login module needs username="…" and password="…"')
    return user, password
