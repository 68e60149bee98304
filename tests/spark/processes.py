"""Jobs that run in separate processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

RUN: Final = "import sys; from kcore.cli import main; sys.exit(main())"
"""Python code that runs the command `kcore` with the interpreter's arguments."""

RUN_UNTIL: Final = f"""
import os, signal, sys

event, path = sys.argv.pop(1), sys.argv.pop(1)

def kill(name, values):
    if name == event and isinstance(values[0], (str, os.PathLike)) and os.fspath(values[0]).endswith(path):
        os.killpg(0, signal.SIGKILL)

sys.addaudithook(kill)
{RUN}
"""
"""Python code that runs the command `kcore`, but kills itself and its JVM right before a given file operation.

Its first two arguments select the operation: the name of a Python audit event, such as "open", and the end of the
file's path.
"""


@contextmanager
def watching(arguments: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `kcore spark watch`, and kills the command and its JVM at the end of the block.

    Args:
        arguments: the arguments of the command.
        output: the file to which its output is appended.
    """
    with spark_job([RUN, "spark", "watch", *arguments], output) as job:
        yield job


@contextmanager
def spark_job(arguments: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a Python program that uses Spark, and kills the program and its JVM at the end of the block.

    Args:
        arguments: the program, and its arguments.
        output: the file to which its output is appended.
    """
    with output.open("ab") as file:
        job = subprocess.Popen([sys.executable, "-c", *arguments], stdout=file, stderr=file, start_new_session=True)
        try:
            yield job
        finally:
            with suppress(ProcessLookupError):  # all processes have ended
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
