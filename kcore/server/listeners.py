"""Listeners as Kafka's settings write them: NAME://HOST:PORT."""

from __future__ import annotations

import re
from typing import NamedTuple

from kcore.config.node import Config
from kcore.errors import ConfigError
from kcore.security.protocols import SecurityProtocol, protocol_of

_FORM = re.compile(r"(?:(?P<name>[A-Za-z0-9_.-]+)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\[\]]*):(?P<port>\d+)")
ANYWHERE = {"", "0.0.0.0", "::"}  # addresses to listen on, but nowhere to connect to


class Listener(NamedTuple):
    """An address to listen on, and the one that clients are told.

    Attributes:
        name: the listener's name; clients get addresses of the listener they came through.
        host: where to listen; "" is every address.
        port: 0 takes a free one.
        advertised_host: what clients connect to.
        advertised_port: 0 is the port that is listened on.
        protocol: what is spoken in front of Kafka's protocol.
    """

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int = 0
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


def parse_listeners(config: Config) -> list[Listener]:
    """The listeners of a configuration.

    Raises:
        ConfigError: one is not NAME://HOST:PORT, a name or port stands twice, an advertised one has no listener, or
            nothing says what is spoken on one.
    """
    listened = {name: (host, port) for name, host, port in map(_parse, config.listeners)}
    if len(listened) < len(config.listeners):
        raise ConfigError(
            f"listeners={','.join(config.listeners)}: each listener needs a name of its own"
            " (A://HOST:PORT, with listener.security.protocol.map=A:PLAINTEXT)"
        )
    if not listened:
        raise ConfigError("listeners is empty; valid: NAME://HOST:PORT, at least one")
    taken = [address for address in listened.values() if address[1]]
    if len(set(taken)) < len(taken):
        raise ConfigError(f"listeners={','.join(config.listeners)}: two listeners cannot share an address")
    advertised = {name: (host, port) for name, host, port in map(_parse, config.advertised_listeners)}
    if unknown := advertised.keys() - listened.keys():
        raise ConfigError(f"advertised.listeners names {', '.join(sorted(unknown))}, which is not in listeners")
    found = []
    for name, (host, port) in listened.items():
        told_host, told_port = advertised.get(name, ("127.0.0.1" if host in ANYWHERE else host, 0))
        protocol = protocol_of(name, config.listener_security_protocol_map)
        found.append(Listener(name, host, port, told_host, told_port, protocol))
    return found


def parse_address(text: str) -> tuple[str, int]:
    """An address without a name.

    Returns:
        The host, "" for every address, and the port.

    Raises:
        ConfigError: it is not HOST:PORT.
    """
    form = _FORM.fullmatch(text.strip())
    if form is None or form["name"] or int(form["port"]) > 65_535:
        raise ConfigError(f"{text!r} is no address; valid: HOST:PORT, port 0 to 65535")
    return form["host"].strip("[]"), int(form["port"])


def _parse(text: str) -> tuple[str, str, int]:
    form = _FORM.fullmatch(text.strip())
    if form is None or int(form["port"]) > 65_535:
        raise ConfigError(f"{text!r} is no listener; valid: NAME://HOST:PORT or HOST:PORT, port 0 to 65535")
    return (form["name"] or "PLAINTEXT").upper(), form["host"].strip("[]"), int(form["port"])
