"""Jobs in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

RUN: Final = "import sys; from kcore.cli import main; sys.exit(main())"
"""The program of the command line."""


@contextmanager
def watching(arguments: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `kcore spark watch`, and kills it and its JVM at the end of the block.

    Args:
        arguments: its arguments.
        output: the file to which its output is appended.
    """
    with output.open("ab") as file:
        job = subprocess.Popen(
            [sys.executable, "-c", RUN, "spark", "watch", *arguments], stdout=file, stderr=file, start_new_session=True
        )
        try:
            yield job
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
