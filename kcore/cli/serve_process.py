"""One process of `kcore serve --processes`: it runs one node of the cluster.

The supervisor starts the process as `python -m kcore.cli.serve_process`. The first line of the standard input is a JSON
object with the settings. The input stays open as long as the supervisor lives. At the end of the input, this process
ends, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, Final

from kcore import process_logging
from kcore.cli.collector import COLLECTOR
from kcore.cli.properties import make_config
from kcore.cli.serve import run_loop
from kcore.cli.serve_cluster import Stop, serve_node
from kcore.errors import KcoreError
from kcore.json_text import parse_json

logger = logging.getLogger("kcore.serve")

ALL_END: Final = b"end\n"
"""The line that the supervisor sends to every process to end all of them.

A process that receives it does not hand its partitions over to another process.
"""
STANDARD_INPUT: Final = 0
EXIT_S: Final = 10.0
"""Time in seconds within which a process must end after its supervisor has died."""


def main() -> int:
    """Reads the settings and serves; returns the exit status."""
    line = _next_line()
    if not line:
        return 1
    start = parse_json(line)
    process_logging.configure(sys.stderr, start["log_level"], start["log_format"])
    for handler in logging.getLogger().handlers:
        handler.addFilter(partial(_with_node, start["node_id"]))
    try:
        return run_loop(_serve(start))
    except KcoreError as error:
        print(f"kcore: node {start['node_id']}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _next_line() -> bytes:
    """Waits for the next line of the standard input. Returns b"" at the end of the input.

    The function does not use `sys.stdin`, because a thread holds the lock of `sys.stdin` while it waits for a line.
    If the interpreter ended while the lock is held, it would abort the process.
    """
    with io.FileIO(STANDARD_INPUT, closefd=False) as stdin:
        return stdin.readline()


def _with_node(node_id: int, record: logging.LogRecord) -> bool:
    """Adds the node's id to the fields of a line of the log."""
    record.fields = {"node": node_id, **(getattr(record, "fields", None) or {})}
    return True


async def _serve(start: dict[str, Any]) -> int:
    from kcore.cluster.local import LocalClusterStore  # noqa: PLC0415  # after the start of the log

    file = None if start["file"] is None else Path(start["file"])
    config = make_config(file, start["settings"], start["options"])
    path = config.kcore_data_dir
    stop = Stop()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_watch, args=(loop, stop), name="kcore-supervisor", daemon=True).start()
    COLLECTOR.start()

    def ready() -> None:
        COLLECTOR.freeze()
        with contextlib.suppress(OSError):  # the supervisor has died
            os.write(start["ready"], b"\0")

    return await serve_node(config, lambda: LocalClusterStore(path, config.kcore_durability), stop, ready)


def _watch(loop: asyncio.AbstractEventLoop, stop: Stop) -> None:
    """Ends this process when the supervisor requests the end, or has died."""
    line = _next_line()
    stop.hand_over = False
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(stop.requested.set)
    if line != ALL_END:
        timer = threading.Timer(EXIT_S, os._exit, (1,))
        timer.daemon = True
        timer.start()


if __name__ == "__main__":
    sys.exit(main())
