"""Listeners in the form of Kafka's settings: NAME://HOST:PORT."""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
from typing import NamedTuple

from kcore.config.node import Config
from kcore.errors import ConfigError
from kcore.security.protocols import SecurityProtocol, protocol_of

logger = logging.getLogger(__name__)

_FORM = re.compile(r"(?:(?P<name>[A-Za-z0-9_.-]+)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\[\]]*):(?P<port>\d+)")
ANYWHERE = {"", "0.0.0.0", "::"}  # valid to listen on, but not to connect to
_LISTEN_ADVICE = {
    errno.EADDRINUSE: "stop the process that uses this port, or choose another port",
    errno.EADDRNOTAVAIL: "listen on an address of this machine; `advertised.listeners` may have other addresses",
    errno.EACCES: "a port below 1024 needs the capability CAP_NET_BIND_SERVICE",
}
UNREACHABLE = ANYWHERE - {""}  # refused as advertised hosts; an empty one stands for an address of this machine


class Listener(NamedTuple):
    """An address to listen on, and the address that the server advertises for it.

    Attributes:
        name: the listener's name; clients get the addresses of the listener that they use.
        host: the host to listen on; "" stands for every address of the machine.
        port: 0 selects a free port.
        advertised_host: the host that clients connect to.
        advertised_port: the port that clients connect to; 0 stands for the port on which the listener was opened.
        protocol: the security protocol.
    """

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int = 0
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


def parse_listeners(config: Config) -> list[Listener]:
    """Parses the listeners of a configuration.

    Raises:
        ConfigError: an entry is not NAME://HOST:PORT, a name or an address occurs twice, an advertised listener does
            not exist, clients cannot connect to an advertised address, or a listener has no security protocol.
    """
    controllers = {name.upper() for name in config.get("controller.listener.names") or ()}
    parsed = [listener for listener in map(_parse, config.listeners) if listener[0] not in controllers]
    listened = {name: (host, port) for name, host, port in parsed}
    if len(listened) < len(parsed):
        raise ConfigError(
            f"listeners={','.join(config.listeners)}: each listener needs a name of its own"
            " (A://HOST:PORT, with listener.security.protocol.map=A:PLAINTEXT)"
        )
    if not listened:
        raise ConfigError("listeners is empty; valid: NAME://HOST:PORT, at least one")
    addresses = [address for address in listened.values() if address[1]]
    if len(set(addresses)) < len(addresses):
        raise ConfigError(f"listeners={','.join(config.listeners)}: two listeners cannot share an address")
    advertised = {
        name: (host, port) for name, host, port in map(_parse, config.advertised_listeners) if name not in controllers
    }
    if unknown := advertised.keys() - listened.keys():
        raise ConfigError(f"advertised.listeners names {', '.join(sorted(unknown))}, which is not in listeners")
    listeners = []
    for name, (host, port) in listened.items():
        advertised_host, advertised_port = advertised.get(name, (host, 0))
        if name in advertised and advertised_host in UNREACHABLE:
            raise ConfigError(
                f"advertised.listeners={','.join(config.advertised_listeners)}: clients cannot connect to"
                f" {advertised_host}; name an address that they can reach"
            )
        if not (advertised_host or advertised_port):
            advertised_host = host  # only the name is given: the address is the listener's own
        if advertised_host in ANYWHERE:
            advertised_host = own_address(advertised_host)
        protocol = protocol_of(name, config.listener_security_protocol_map)
        listeners.append(Listener(name, host, port, advertised_host, advertised_port, protocol))
    return listeners


def own_address(host: str) -> str:
    """Returns an address of this machine that other machines can reach, for a listener on every address.

    The result is the source address of packets to other networks; no packet is sent to find it. Kafka uses the
    machine's name for an empty host, and refuses 0.0.0.0.
    """
    family, elsewhere = (socket.AF_INET6, "2001:db8::1") if host == "::" else (socket.AF_INET, "192.0.2.1")
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))
            address = str(probe.getsockname()[0])
    except OSError:
        address = "127.0.0.1"
        logger.warning(
            "listeners: a listener listens on every address, and this machine has no route to other machines, so "
            "kcore advertises 127.0.0.1 to clients; set advertised.listeners to the address that clients should use"
        )
    return address


def parse_address(text: str, setting: str = "") -> tuple[str, int]:
    """Parses an address of the form HOST:PORT.

    Args:
        text: the address.
        setting: the name of the setting that has the address, for the error; "" if no setting has it.

    Returns:
        The host ("" stands for every address), and the port.

    Raises:
        ConfigError: the text is not HOST:PORT.
    """
    form = _FORM.fullmatch(text.strip())
    if form is None or form["name"] or int(form["port"]) > 65_535:
        where = f"{setting}: " if setting else ""
        raise ConfigError(f"{where}{text!r} is not an address; valid: HOST:PORT, port 0 to 65535")
    return form["host"].strip("[]"), int(form["port"])


def format_address(host: str, port: int) -> str:
    """Returns HOST:PORT of an address that a server listens on. An empty host (every address) becomes 0.0.0.0."""
    return f"[{host}]:{port}" if ":" in host else f"{host or '0.0.0.0'}:{port}"


def listen_error(name: str, host: str, port: int, error: OSError) -> OSError:
    """Returns an error of the class of `error`. Its `strerror` names the listener, its address, the cause and a remedy.

    Args:
        name: the listener in the message, for example "listener PLAINTEXT".
        host: the host to listen on.
        port: the port to listen on.
        error: the error of the operating system.
    """
    number = error.errno
    resolved = not isinstance(error, socket.gaierror)
    # asyncio and `socket.create_server` add the address to the system's message
    cause = os.strerror(number) if resolved and number else error.strerror or str(error)
    advice = "" if resolved else "; listen on an address of this machine, or correct the host name"
    if resolved and number in _LISTEN_ADVICE:
        advice = f"; {_LISTEN_ADVICE[number]}"
    return type(error)(number, f"{name}, {format_address(host, port)}: {cause}{advice}")


def _parse(text: str) -> tuple[str, str, int]:
    form = _FORM.fullmatch(text.strip())
    if form is None or int(form["port"]) > 65_535:
        raise ConfigError(f"{text!r} is not a listener; valid: NAME://HOST:PORT or HOST:PORT, port 0 to 65535")
    return (form["name"] or "PLAINTEXT").upper(), form["host"].strip("[]"), int(form["port"])
