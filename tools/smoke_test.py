"""Checks an installed kcore: its compiled modules, its command, an embedded node, a server and a client.

    python tools/smoke_test.py [--outside FOLDER]

The program needs only the installed package, so that it can check a wheel in an empty environment.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

TIMEOUT_S = 60.0

if sys.path[0] == str(Path(__file__).resolve().parents[1]):
    del sys.path[0]


def check_modules(outside: Path | None) -> int:
    """Imports every module of kcore_ext. Returns the number of compiled modules.

    Raises:
        AssertionError: a module is not compiled, or the package is that of a checkout.
    """
    import kcore_ext  # noqa: PLC0415

    if outside is not None:
        assert outside not in Path(kcore_ext.__file__).resolve().parents, f"{kcore_ext.__file__} is not installed"
    compiled = 0
    for info in pkgutil.walk_packages(kcore_ext.__path__, "kcore_ext."):
        module = importlib.import_module(info.name)
        if not info.ispkg:
            assert str(module.__file__).endswith(".so"), f"{module.__file__} is not compiled"
            compiled += 1
    assert compiled, "kcore_ext has no modules"
    return compiled


def check_command() -> None:
    """Compares the version that `kcore --version` prints with the installed one."""
    printed = subprocess.run(
        [kcore_command(), "--version"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    assert printed == f"kcore {metadata.version('kcore')}\n", printed


def check_embedded(folder: Path) -> None:
    """Writes records and a commit to a data folder, reopens the folder, and reads both."""
    import kcore  # noqa: PLC0415

    with kcore.open(folder) as node:
        node.topics.create("smoke", partitions=1).append_many(["one", "two"], compression="zstd")
        node.group("workers").commit({("smoke", 0): 1})
    with kcore.open(folder) as node:
        assert [record.value for record in node.topics["smoke"].read(0, 0)] == [b"one", b"two"]
        assert [committed.offset for committed in node.group("workers").committed().values()] == [1]


def check_server(folder: Path) -> None:
    """Starts `kcore serve`, writes and reads with a client, and stops the server with a signal."""
    import kcore  # noqa: PLC0415

    command = [kcore_command(), "serve", "--data", str(folder), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1].rpartition("//")[2]
            with kcore.connect(address) as node:
                node.topics.create("smoke", partitions=2).append("three", partition=1)
                assert [record.value for record in node.topics["smoke"].read(1, 0)] == [b"three"]
            server.send_signal(signal.SIGTERM)
            assert server.wait(TIMEOUT_S) == 0, f"the server ended with {server.returncode}"
        finally:
            server.kill()


def kcore_command() -> str:
    """Returns the path of the command `kcore` of this environment."""
    return str(Path(sys.executable).with_name("kcore"))


def main() -> None:
    """Runs all checks. A failed check raises an exception."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--outside", type=Path, metavar="FOLDER", help="kcore must not be imported from here")
    options = parser.parse_args()
    compiled = check_modules(options.outside and options.outside.resolve())
    check_command()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_embedded(Path(folder, "embedded"))
        check_server(Path(folder, "server"))
    print(f"kcore {metadata.version('kcore')}: {compiled} compiled modules, the command, a node and a server work")


if __name__ == "__main__":
    main()
