"""`kcore serve --control`: a test broker in a separate process, controlled over HTTP."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from kcore.errors import ConfigError
from kcore.server.listeners import parse_listeners
from kcore.server.unused_settings import warn_of_unused_settings
from kcore.testing.broker import Broker
from kcore.testing.control.control import Control
from kcore.testing.control.server import ControlServer, loopback_address

if TYPE_CHECKING:
    from kcore.config.node import Config


def broker_for(config: Config) -> Broker:
    """Returns a broker with the settings of a server; it does not run yet.

    Raises:
        ConfigError: a setting does not fit a test broker, whose records are in memory.
    """
    for name, value in (("kcore.data.dir", config.kcore_data_dir), ("kcore.http.listen", config.kcore_http_listen)):
        if value:
            raise ConfigError(
                f"{config.source(name)}: {name} cannot be combined with --control: a controlled broker keeps all data "
                "in memory and serves no metrics"
            )
    parse_listeners(config)
    settings = {
        setting.name: setting.format(value)
        for setting, value, source in config.effective()
        if source != "default" and setting.name != "kcore.durability"
    }
    settings["listeners"] = ",".join(config.listeners)
    return Broker(settings)


def serve_controlled(config: Config, address: str) -> int:
    """Serves Kafka clients and the control server until SIGTERM or SIGINT. Call it on the main thread.

    Args:
        config: the settings.
        address: HOST:PORT of the control server.

    Returns:
        The exit status of the process.
    """
    loopback_address(address)
    broker = broker_for(config)
    warn_of_unused_settings(config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        with broker, ControlServer(Control(broker), address) as server:
            print(f"kcore: control at {server.url}")
            for name, (host, port) in broker.addresses.items():
                print(f"kcore: {name} listening on {host or '0.0.0.0'}:{port}", flush=True)
            print("kcore: recovered nothing: a controlled broker keeps all data in memory", flush=True)
            stop.wait()
    except OSError as error:
        print(f"kcore: cannot listen: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0
