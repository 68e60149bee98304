"""`kcore serve`: serves Kafka clients over TCP."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kcore import process_logging
from kcore.cli.collector import COLLECTOR
from kcore.cli.properties import make_config
from kcore.cli.stop_signals import stop_at_signals
from kcore.config.node import Config
from kcore.errors import ConfigError, EngineInterruptedError, KcoreError
from kcore.printable import clean, counted

if TYPE_CHECKING:
    from kcore.engine import Engine
    from kcore.server.http import HttpServer

logger = logging.getLogger("kcore.serve")

MIN_DESCRIPTORS = 64
"""Minimum number of files and sockets that the process must be able to open.

A node with one listener and one client needs a third of this number. If an event loop has no free file descriptor, it
cannot even report the resulting error.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "--data", metavar="DIR", help="the data folder, created if missing; without it (or kcore.data.dir) "
        "all data is in memory and lost when the process ends",
    )  # fmt: skip
    parser.add_argument(
        "--listen", metavar="HOST:PORT", action="append", default=[], help="an address to listen on, "
        "[NAME://]HOST:PORT (may be repeated); port 0 selects a free port; replaces the setting listeners",
    )  # fmt: skip
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="serve the console, metrics and health at this address "
        "(kcore.http.listen); it has no access control, so choose an address that only operators reach",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", metavar="URL", help="serve as a node of the cluster whose nodes share the store at this URL, such "
        "as postgresql://HOST/DATABASE; `kcore cluster init` creates it",
    )  # fmt: skip
    parser.add_argument(
        "--processes", metavar="N", type=int, help="serve the data folder with N processes, which form one cluster for "
        "clients; each has the id and ports of the previous process plus one",
    )  # fmt: skip
    parser.add_argument("--node-id", metavar="N", type=int, help="this node's id (node.id), unique in its cluster")
    parser.add_argument("--config", metavar="FILE", type=Path, help="a properties file with Kafka's names")
    parser.add_argument(
        "-c",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="a setting (may be repeated); takes precedence over --config",
    )
    parser.add_argument("--print-config", action="store_true", help="show the effective configuration and exit")
    parser.add_argument(
        "--control", metavar="HOST:PORT", help="serve a broker for tests, which keeps all data in memory; "
        "HTTP requests to this loopback address control its faults and clock; GET /openapi.json lists these requests",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error"), help="default: warning"
    )
    parser.add_argument(
        "--log-format", default="text", choices=process_logging.FORMATS, help="default: text; json: one object per line"
    )


def run(options: argparse.Namespace) -> int:
    """Serves until SIGTERM, SIGINT or SIGHUP."""
    if options.http is not None and not options.http.strip():
        raise ConfigError("--http is empty; valid: HOST:PORT")
    given: dict[str, str] = {}
    if options.data is not None:
        given["kcore.data.dir"] = options.data
    if options.listen:
        given["listeners"] = ",".join(_named(options.listen))
    if options.http is not None:
        given["kcore.http.listen"] = options.http
    if options.node_id is not None:
        given["node.id"] = str(options.node_id)
    config = make_config(options.config, options.settings, given)
    if not options.print_config:
        _check_descriptors()
    if options.processes is not None:
        return _run_processes(config, options, given)
    if options.cluster is not None:
        return _run_cluster(config, options)
    forgetful = not config.kcore_data_dir and config.source("kcore.durability") == "default"
    if forgetful:
        config.set("kcore.durability", "memory", "there is no kcore.data.dir")
    if options.print_config:
        print_config(config)
        return 0
    process_logging.configure(sys.stderr, options.log_level, options.log_format)
    if options.control is not None:
        from kcore.testing.control.serve import serve_controlled  # noqa: PLC0415  # only for tests

        return serve_controlled(config, options.control)
    gc.disable()  # until all modules are imported: collections would take a fifth of the start time
    return run_loop(_serve(config, forgetful))


def _check_descriptors() -> None:
    """Raises KcoreError if this process may open too few files and sockets to serve."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < MIN_DESCRIPTORS:
        raise KcoreError(
            f"this process may have only {limit} open files and sockets; kcore serve needs at least {MIN_DESCRIPTORS}, "
            "and one for each connection: raise the limit with `ulimit -n`"
        )


def _run_processes(config: Config, options: argparse.Namespace, given: dict[str, str]) -> int:
    """Serves a data folder with several processes."""
    from kcore.cli.serve_processes import Start, serve_processes  # noqa: PLC0415  # only the supervisor needs it

    for name in ("cluster", "control"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--processes and --{name} exclude each other")
    if options.print_config:
        print_config(config)
        return 0
    process_logging.configure(sys.stderr, options.log_level, options.log_format)
    file = None if options.config is None else str(options.config)
    start = Start(config.node_id, file, options.settings, given, options.log_level, options.log_format)
    return serve_processes(config, options.processes, start)


def _run_cluster(config: Config, options: argparse.Namespace) -> int:
    """Serves as one node of a cluster."""
    from kcore.cli.serve_cluster import serve_cluster  # noqa: PLC0415  # only nodes of a cluster need it

    if options.print_config:
        print_config(config)
        return 0
    process_logging.configure(sys.stderr, options.log_level, options.log_format)
    return run_loop(serve_cluster(config, options.cluster))


def _named(listeners: list[str]) -> list[str]:
    """Names unnamed listeners PLAINTEXT, PLAINTEXT2, …"""
    named = []
    for number, listener in enumerate(listeners, 1):
        suffix = "" if number == 1 else str(number)
        named.append(listener if "://" in listener else f"PLAINTEXT{suffix}://{listener}")
    return named


def print_config(config: Config) -> None:
    """Prints every setting with the source of its value."""
    for setting, value, source in config.effective():
        print(f"{setting.name}={setting.format(value) or ''}  # {source}")


def run_loop(main: object) -> int:
    """Runs a coroutine on uvloop if it is installed, else on asyncio's own loop."""
    try:
        import uvloop  # noqa: PLC0415  # an optional extra
    except ImportError:
        return asyncio.run(main)  # type: ignore[arg-type]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)  # type: ignore[arg-type]


def place_of_listeners(config: Config) -> str:
    """Returns the place where `listeners` was set (an option or a line of a file), for error messages."""
    sources = {config.source(name) for name in ("listeners", "advertised.listeners")} - {"default"}
    return ", ".join(sorted(sources)) or "default"


def recovered(engine: Engine) -> None:
    """Prints the recovery result with the data folder, and excludes the loaded state from garbage collection."""
    COLLECTOR.freeze()
    found = engine.recovery
    folder = engine.config.kcore_data_dir
    where = f" from {clean(os.path.abspath(folder))}" if folder else ""
    print(
        f"kcore: recovered {counted(found.topics, 'topics')}, {counted(found.groups, 'groups')} and "
        f"{counted(found.records, 'records')} of {counted(found.shards, 'coordinator partitions')} in "
        f"{found.elapsed_ms} ms{where}",
        flush=True,
    )


async def _serve(config: Config, forgetful: bool) -> int:
    # Imported here: `--print-config` and `--help` need neither the engine nor the log.
    from kcore.drivers.event_loop import AsyncDriver  # noqa: PLC0415
    from kcore.engine import Engine  # noqa: PLC0415
    from kcore.log.errors import DataFolderError  # noqa: PLC0415
    from kcore.log.reserve import explained, make_reserve  # noqa: PLC0415
    from kcore.server.listeners import format_address, parse_listeners  # noqa: PLC0415
    from kcore.server.server import Server  # noqa: PLC0415
    from kcore.server.unused_settings import warn_of_unused_settings  # noqa: PLC0415

    try:
        listeners = parse_listeners(config)
    except ConfigError as error:
        raise ConfigError(f"{place_of_listeners(config)}: {error}") from None
    warn_of_unused_settings(config)
    if forgetful:
        logger.warning("server: no data folder (--data DIR); all data is in memory, and is lost when this process ends")
    COLLECTOR.start()
    try:
        engine = Engine.open(config, wait=False)
    except DataFolderError as error:
        raise explained(error) from error
    loop = asyncio.get_running_loop()
    driver = AsyncDriver(engine, loop)
    server = Server(driver, listeners)
    http: HttpServer | None = None
    stop = asyncio.Event()
    broken = asyncio.Event()

    def give_up() -> None:
        broken.set()
        stop.set()

    driver.when_broken(give_up)
    stop_at_signals(loop, stop.set)
    try:
        if config.kcore_data_dir:
            make_reserve(os.path.abspath(config.kcore_data_dir), config.kcore_reserve_bytes)
        try:
            await server.start()
            if config.kcore_http_listen:
                from kcore.server.http import HttpServer  # noqa: PLC0415
                from kcore.server.observe import Observer  # noqa: PLC0415

                http = HttpServer(Observer(engine, driver, server), config.kcore_http_listen)
                await http.start()
                address = format_address(*http.address)
                print(f"kcore: console at http://{address}/, metrics at http://{address}/metrics")
        except OSError as error:
            print(f"kcore: cannot listen: {error.strerror or error}", file=sys.stderr)
            return 1
        for name, (host, port) in server.addresses.items():
            print(f"kcore: {name} listening on {format_address(host, port)}", flush=True)
        engine.when_loaded(lambda: recovered(engine))
        driver.start()
        await stop.wait()
    finally:
        if http is not None:
            await http.stop()
        try:
            await server.stop()
            driver.close()
        finally:
            engine.close()
    if broken.is_set():
        print(f"kcore: {EngineInterruptedError()}", file=sys.stderr)
        return 1
    logger.info("server: has ended in an orderly way")
    return 0
