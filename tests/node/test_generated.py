"""The generated synchronous API is up to date and has the operations of the asynchronous API."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import kcore

ROOT = Path(__file__).parents[2]


def test_the_synchronous_modules_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/generate_sync.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_both_styles_have_the_same_operations() -> None:
    def operations(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in vars(kind).items()
            if callable(value) and not name.startswith("_")
        }

    assert operations(kcore.Node) == operations(kcore.AsyncNode)
    assert not any(inspect.iscoroutinefunction(value) for value in vars(kcore.Node).values())


def test_a_server_does_not_import_the_client_api() -> None:
    code = (
        "import sys, kcore.cli.serve, kcore.engine, kcore.server.server, kcore.drivers.event_loop; "
        "print([name for name in sys.modules if name.startswith(('kcore.node', 'kcore.client'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_node_that_only_sends_does_not_import_topics_and_sockets() -> None:
    code = (
        "import sys, kcore\n"
        "with kcore.open() as node: pass\n"
        "print([name for name in sys.modules if name.endswith(('.topics', '.member', '.cluster', '.security'))"
        " and name.startswith(('kcore.node', 'kcore.client'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
