"""`kcore users`: manages users that authenticate with a password (SCRAM, PLAIN)."""

from __future__ import annotations

import argparse
import getpass
import secrets
import sys
import warnings
from pathlib import Path

from kcore.cli import output, target
from kcore.errors import ConfigError, KcoreError
from kcore.inspect import Target
from kcore.protocol.error_codes import code_name
from kcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kcore.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kcore.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, NEW_SALT_BYTES, ScramMechanism

MECHANISMS = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    adding = actions.add_parser("add", help="add a user or change a password; creates a missing data folder")
    removing = actions.add_parser("remove", help="remove a user")
    listing = actions.add_parser("list", help="list users with the mechanisms that have a password")
    for action in (adding, removing):
        action.add_argument("--user", required=True, metavar="NAME", help="the user's name")
        action.add_argument(
            "--mechanism",
            action="append",
            default=[],
            choices=sorted(MECHANISMS),
            help="(may be repeated); default: all",
        )
    adding.add_argument(
        "--password-file",
        metavar="FILE",
        help="a file whose first line is the password; - reads the standard input; default: prompt",
    )
    adding.add_argument(
        "--iterations", type=int, default=MIN_ITERATIONS, help=f"{MIN_ITERATIONS} to {MAX_ITERATIONS}"
    )  # fmt: skip
    for action in (adding, removing, listing):
        target.add_arguments(action)
    output.add_arguments(listing)


def run(options: argparse.Namespace) -> int:
    """Changes or lists users."""
    if options.action == "add":
        target.check(options)
        password = _password(options.password_file)
        with target.open_target(options, create=True) as server:
            return add(server, options.user, password, _mechanisms(options), options.iterations)
    with target.open_target(options) as server:
        if options.action == "remove":
            return remove(server, options.user, _mechanisms(options), bool(options.mechanism))
        rows = [(user, ",".join(mechanisms)) for user, mechanisms in users(server).items()]
        output.print_rows(("user", "mechanisms"), rows, options.format)
        return 0


def _mechanisms(options: argparse.Namespace) -> list[ScramMechanism]:
    return [MECHANISMS[name] for name in options.mechanism] or list(ScramMechanism)


def _password(file: str | None) -> str:
    """Reads the password. It is never an argument, because every user of the machine can see those."""
    if file is None:
        password, again = _ask()
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


def _ask() -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)  # else it would read with echo on
            return getpass.getpass("password: "), getpass.getpass("again: ")
    except (EOFError, getpass.GetPassWarning):
        raise ConfigError(
            "there is no terminal to type the password at: --password-file FILE reads it from a file, "
            "--password-file - from the standard input"
        ) from None


def add(server: Target, user: str, password: str, mechanisms: list[ScramMechanism], iterations: int) -> int:
    """Sets a user's password; sends only its salted form."""
    for mechanism in mechanisms:
        salt = secrets.token_bytes(NEW_SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=mechanism.salted_password(password.encode(), salt, max(iterations, 1)),
        )
        _alter(server, AlterUserScramCredentialsRequest(upsertions=[upsertion]))
        output.say(f"{user}: {mechanism.sasl_name} password set")
    return 0


def remove(server: Target, user: str, mechanisms: list[ScramMechanism], named: bool) -> int:
    """Removes a user's passwords: those of all mechanisms that have one, unless mechanisms were `named`."""
    if not named:
        there = users(server).get(user)
        if there is None:
            raise KcoreError(f"no such user: {user}")
        mechanisms = [MECHANISMS[name] for name in there]
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
        _alter(server, AlterUserScramCredentialsRequest(deletions=[deletion]))
        output.say(f"{user}: {mechanism.sasl_name} password removed")
    return 0


def users(server: Target) -> dict[str, list[str]]:
    """Returns user -> names of the mechanisms that have a password."""
    response = server.send(DescribeUserScramCredentialsRequest(users=None))
    _check(response.error_code, response.error_message)
    return {
        one.user: [ScramMechanism(info.mechanism).sasl_name for info in one.credential_infos]
        for one in sorted(response.results, key=lambda one: one.user)
    }


def _alter(server: Target, request: AlterUserScramCredentialsRequest) -> None:
    for result in server.send(request).results:
        _check(result.error_code, result.error_message)


def _check(code: int, message: str | None) -> None:
    if code:
        raise KcoreError(f"{code_name(code)}: {message or ''}")
