"""The target of a verb: a data folder or a running cluster. Both are nodes of the client API."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kcore.cluster.urls import is_store_url
from kcore.config.paths import check_path
from kcore.errors import ConfigError

if TYPE_CHECKING:
    from kcore.client import ClientSecurity
    from kcore.node._sync.node import Node


FOLDER_HELP = "a data folder that no server has open"


def add_arguments(parser: argparse.ArgumentParser, folder_help: str = FOLDER_HELP) -> None:
    """Adds the arguments that name a target, `DIR` and `--bootstrap`, to a verb."""
    parser.add_argument("data", nargs="?", metavar="DIR", help=folder_help)
    add_bootstrap(parser)


def add_bootstrap(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """Adds `--bootstrap` and the options of its connection to a verb."""
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        required=required,
        help="a running server: kcore, or another server with Kafka's protocol",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a properties file with Kafka's names for the connection to the server: security.protocol, "
        "sasl.mechanism, sasl.jaas.config, ssl.truststore.location (PEM), ...",
    )


def security(options: argparse.Namespace) -> ClientSecurity | None:
    """Reads the security settings of `--command-config`; returns None without it."""
    if options.command_config is None:
        return None
    if options.bootstrap is None:
        raise ConfigError("--command-config requires --bootstrap: a data folder needs no credentials")
    from kcore.client import ClientSecurity  # noqa: PLC0415

    return ClientSecurity.of_file(options.command_config)


def require_folder(data: str, instead: str) -> None:
    """Raises ConfigError if the argument for a data folder is empty, or is the URL of a cluster's store.

    Args:
        data: the path or URL that the user has passed.
        instead: the command for a cluster, for the error message.
    """
    check_path("DIR", data)
    if is_store_url(data):
        raise ConfigError(f"this command needs a data folder, and {data} is the store of a cluster: {instead}")


def check(options: argparse.Namespace) -> None:
    """Raises ConfigError unless exactly one of folder and server was named."""
    if options.data is not None and options.bootstrap is not None:
        raise ConfigError(
            f"{options.data!r} is read as a data folder, and --bootstrap names a server: name only one of them. To "
            "name a group or a topic, use --group or --topic"
        )
    if options.data is None and options.bootstrap is None:
        raise ConfigError("name a data folder, or --bootstrap HOST:PORT of a running server")
    security(options)  # called here so that its errors come before anything is opened
    if options.data is not None:
        require_folder(options.data, "name a node with --bootstrap HOST:PORT")


@contextmanager
def open_target(options: argparse.Namespace, create: bool = False) -> Iterator[Node]:
    """Opens the target that the arguments name.

    Args:
        options: the verb's options.
        create: True to create a missing data folder.

    Raises:
        ConfigError: the arguments name neither a data folder nor a server, or both.
        DataFolderError: the folder cannot be opened, e.g. because a server has it open.
        ConnectionClosedError: no server can be reached.
    """
    import kcore  # noqa: PLC0415

    check(options)
    if options.bootstrap is not None:
        with kcore.connect(options.bootstrap, security=security(options)) as node:
            yield node
    else:
        from kcore.log.reserve import with_reserve  # noqa: PLC0415

        with with_reserve(options.data, lambda: kcore.open(options.data, create=create)) as embedded:
            yield embedded
