"""What a verb looks at: a data folder, or a running server. Both take the same typed requests."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from kcore.errors import ConfigError
from kcore.inspect import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`DIR` or `--bootstrap`."""
    parser.add_argument("data", nargs="?", metavar="DIR", help="a data folder that no server has open")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a running server, kcore's or any Kafka-compatible one"
    )


def check(options: argparse.Namespace) -> None:
    """Raises ConfigError unless exactly one of the two was named."""
    if (options.data is None) == (options.bootstrap is None):
        raise ConfigError("name a data folder, or --bootstrap HOST:PORT of a running server")


@contextmanager
def open_target(options: argparse.Namespace, create: bool = False) -> Iterator[Target]:
    """Opens what the arguments name.

    Args:
        options: the verb's.
        create: whether a data folder that is not there may be made.

    Raises:
        ConfigError: neither or both were named.
        DataFolderError: the folder cannot be opened (a server that has it open says so).
    """
    check(options)
    if options.bootstrap is not None:
        from kcore.client import Connection  # noqa: PLC0415

        with Connection.to(options.bootstrap) as connection:
            yield connection
    else:
        import kcore  # noqa: PLC0415

        with kcore.open(options.data, create=create) as engine:
            yield engine
