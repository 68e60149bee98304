"""Helpers that run the command in this process, and return its exit status and output."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from kcore.cli import main
from tests.server.live import LiveServer


class CommandResult(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


class Terminal:
    """Runs the command against a server in this process."""

    def __init__(self, live: LiveServer) -> None:
        self.live = live

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> CommandResult:
        verb, *rest = arguments
        return run(verb, *rest, "--bootstrap", f"127.0.0.1:{self.live.port}", stdin=stdin)


def run(*arguments: str, stdin: bytes | None = None) -> CommandResult:
    out, err = io.StringIO(), io.StringIO()
    before = sys.stdin
    writer: threading.Thread | None = None
    if stdin is not None:
        reading, writing = os.pipe()
        sys.stdin = os.fdopen(reading)

        def feed() -> None:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(stdin)

        writer = threading.Thread(target=feed)
        writer.start()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = main(arguments)
            except SystemExit as error:
                status = int(error.code or 0)
    finally:
        if writer is not None:
            sys.stdin.close()
            sys.stdin = before
            writer.join()
    return CommandResult(status, out.getvalue(), err.getvalue())
