"""The `kcore` command. Each verb has a separate module."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence

from kcore.errors import KafkaError, KcoreError, PartitionErrors
from kcore.printable import clean

# verb -> (module below kcore.cli, description); a verb's module is imported when the verb is used
VERBS: dict[str, tuple[str, str]] = {
    "serve": ("serve", "serve Kafka clients over TCP"),
    "topics": ("topics", "create, list, describe and delete topics"),
    "produce": ("produce", "write lines to a topic"),
    "consume": ("consume", "print the records of topics"),
    "groups": ("groups", "list and describe groups"),
    "offsets": ("offsets", "list committed offsets and lag; apply a restore plan"),
    "transactions": ("transactions", "list, describe and abort transactions; find hanging ones"),
    "producers": ("producers", "describe the producers of partitions"),
    "users": ("users", "add, remove and list users that authenticate with a password"),
    "log": ("log", "dump, verify, repair, copy or compact the event log of a folder"),
    "export": ("export", "export event logs as Parquet or JSON lines; verify exports"),
    "spark": ("spark", "run Spark jobs over event logs: rebuild, audit, restore-plan, timeline, watch"),
    "cluster": ("cluster", "create the store of a cluster; show, drain and fence its nodes; move leaders"),
    "demo": ("demo", "run three client libraries in one group, and kill processes; or run Spark jobs over a log"),
}


def parser_for(verb: str | None) -> argparse.ArgumentParser:
    """Returns the command's parser with the arguments of one verb.

    If the verb is None, adds the arguments of all verbs. The generated documentation needs all of them.
    """
    parser = argparse.ArgumentParser(
        prog="kcore", description="Kafka's coordinator as a Python library and as a server."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    # Without `prog`, argparse would format a usage text to derive it, for which it imports shutil.
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", prog="kcore")
    for name, (module, summary) in VERBS.items():
        sub = verbs.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if verb is None or verb == name:
            importlib.import_module(f"kcore.cli.{module}").add_arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 success, 1 a finding or a failure, 2 wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _escape_unencodable_characters()
    verb = next((word for word in arguments if not word.startswith("-")), None)
    gc.disable()  # imports create no garbage, and collections would take a tenth of the import time
    try:
        parser = parser_for(verb if verb in VERBS else "")
        options = parser.parse_args(arguments)
    except KcoreError as error:  # a dependency of the verb is not installed
        print(f"kcore: {clean(error)}", file=sys.stderr)
        return 1
    finally:
        gc.enable()
    if options.version:
        from kcore import __version__  # noqa: PLC0415

        print(f"kcore {__version__}")
        return 0
    if options.verb is None:
        parser.print_help()
        return 2
    module = importlib.import_module(f"kcore.cli.{VERBS[options.verb][0]}")
    try:
        status = int(module.run(options) or 0)
        sys.stdout.flush()
    except (KcoreError, KafkaError, PartitionErrors, TimeoutError) as error:
        print(f"kcore: {clean(_described(error))}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output closed the pipe: no error now, nor when the interpreter flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # of a file: a full disk, missing permissions
        print(f"kcore: {clean(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _escape_unencodable_characters() -> None:
    """Makes text output escape the characters that its encoding lacks.

    Clients choose the names of groups and topics, and a name that cannot be encoded would stop the output.
    """
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper) and output.errors == "strict":
        output.reconfigure(errors="backslashreplace")


def _described(error: Exception) -> str:
    """Returns the text of an error; for `PartitionErrors`, the texts of the errors of all partitions."""
    if isinstance(error, PartitionErrors):
        return "; ".join(map(str, error.exceptions))
    return str(error)
