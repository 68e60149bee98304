"""`kcore users`: manages users that authenticate with a password (SCRAM, PLAIN)."""

from __future__ import annotations

import argparse
import getpass
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from kcore.cli import output, target
from kcore.errors import ConfigError, KcoreError
from kcore.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism

if TYPE_CHECKING:
    from kcore.node._sync.node import Node

MECHANISMS = [mechanism.sasl_name for mechanism in ScramMechanism]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    adding = actions.add_parser("add", help="add a user or change a password; creates a missing data folder")
    removing = actions.add_parser("remove", help="remove a user")
    listing = actions.add_parser("list", help="list users, each with the mechanisms for which it has a password")
    for action in (adding, removing):
        action.add_argument("--user", required=True, metavar="NAME", help="the user's name")
        action.add_argument(
            "--mechanism",
            action="append",
            default=[],
            choices=sorted(MECHANISMS),
            help="a SCRAM mechanism (may be repeated); default: all",
        )
    adding.add_argument(
        "--password-file",
        metavar="FILE",
        help="a file whose first line is the password; - reads standard input; default: ask at the terminal",
    )
    adding.add_argument(
        "--iterations",
        type=int,
        default=MIN_ITERATIONS,
        help=f"iterations of the password's hash: {MIN_ITERATIONS} (the default) to {MAX_ITERATIONS}",
    )
    for action in (adding, removing, listing):
        target.add_arguments(action)
    output.add_arguments(listing)


def run(options: argparse.Namespace) -> int:
    """Changes or lists users."""
    if options.action == "add":
        target.check(options)
        password = _password(options.password_file)
        with target.open_target(options, create=True) as node:
            return add(node, options.user, password, options.mechanism or MECHANISMS, options.iterations)
    with target.open_target(options) as node:
        if options.action == "remove":
            return remove(node, options.user, options.mechanism)
        rows = [(user, ",".join(mechanisms)) for user, mechanisms in node.users.list().items()]
        output.print_rows(("user", "mechanisms"), rows, options.format)
        return 0


def _password(file: str | None) -> str:
    """Reads the password.

    No option takes the password, because every user of the machine can see a process's arguments.
    """
    if file is None:
        password, again = _prompt()
        if again != password:
            raise ConfigError("the two passwords differ")
    elif file == "-":
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        try:
            password = next(iter(Path(file).read_text(encoding="utf-8").splitlines()), "")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: cannot be read: {error}") from error
    if not password:
        raise ConfigError("the password is empty")
    return password


def _prompt() -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)  # otherwise the password would be echoed
            return getpass.getpass("password: "), getpass.getpass("again: ")
    except (EOFError, getpass.GetPassWarning):
        raise ConfigError(
            "no terminal to ask for the password: use --password-file FILE, or --password-file - for the standard input"
        ) from None


def add(node: Node, user: str, password: str, mechanisms: list[str], iterations: int) -> int:
    """Sets a user's password for some mechanisms."""
    for mechanism in mechanisms:
        node.users.set_password(user, password, mechanisms=[mechanism], iterations=iterations)
        output.say(f"{user}: {mechanism} password set")
    return 0


def remove(node: Node, user: str, mechanisms: list[str]) -> int:
    """Removes a user's passwords for some mechanisms; with an empty list, for every mechanism that has one."""
    if not mechanisms:
        existing = node.users.list().get(user)
        if existing is None:
            raise KcoreError(f"user {user!r} does not exist")
        mechanisms = list(existing)
    for mechanism in mechanisms:
        node.users.remove(user, [mechanism])
        output.say(f"{user}: {mechanism} password removed")
    return 0
