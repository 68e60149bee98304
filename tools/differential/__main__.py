"""The command line; see the package."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kcore.testing.server import ServerProcess
from tests.apache.broker import PROPERTIES, ApacheKafka
from tools.differential.admin import Admin
from tools.differential.data import Data
from tools.differential.groups import Groups
from tools.differential.program import Area
from tools.differential.runner import Pair, await_coordinators, run_renamed, shortened
from tools.differential.side import Side
from tools.differential.transactions import Transactions

AREAS: Final[dict[str, Area]] = {area.NAME: area for area in (Groups(), Transactions(), Data(), Admin())}
SETTINGS: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "offsets.retention.check.interval.ms": "86400000",
}
"""What both servers get beside the settings of `tests/apache/broker.py`."""
KCORE_SETTINGS: Final = {
    name: value
    for name, _, value in (line.partition("=") for line in PROPERTIES.splitlines())
    if name.startswith(("group.", "auto.")) or name.endswith(".num.partitions")
}
"""The settings of `tests/apache/broker.py` that mean something to kcore."""


@contextmanager
def both(kafka: str, server: str) -> Iterator[list[Side]]:
    """Yields the two servers; starts those that have no address."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if kafka == "start":
            kafka = stack.enter_context(ApacheKafka(folder, SETTINGS)).bootstrap
        if server == "start":
            server = stack.enter_context(ServerProcess(folder / "data", settings=KCORE_SETTINGS | SETTINGS)).bootstrap
        sides = [Side("Kafka", kafka), Side("kcore", server)]
        for side in sides:
            await_coordinators(side)
        yield sides


def arguments() -> argparse.Namespace:
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.differential", description=__doc__)
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="default: every area")
    parser.add_argument("--seeds", default="0-99", help="FIRST-LAST, or one seed")
    parser.add_argument("--kafka", default="start", help="HOST:PORT of Apache Kafka; default: start one")
    parser.add_argument("--server", default="start", help="HOST:PORT of kcore; default: start one")
    parser.add_argument("--texts", action="store_true", help="compare the texts of errors, too")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--attempts", type=int, default=60, help="runs that may shorten a program")
    return parser.parse_args()


def main() -> int:
    """Runs the seeds of the areas; returns the number of programs with a difference, at most 1."""
    options = arguments()
    first, _, last = options.seeds.partition("-")
    failed = programs = requests = 0
    begun_s = time.monotonic()
    with both(options.kafka, options.server) as sides:
        for area in options.area or sorted(AREAS):
            pair = Pair(sides, AREAS[area], options.texts)
            for seed in range(int(first), int(last or first) + 1):
                name = f"{area[0]}{seed}"
                steps = AREAS[area].draw(random.Random(f"{area} {seed}"), name)
                if options.trace:
                    print(*steps, sep="\n")
                programs += 1
                found = run_renamed(pair, steps, name, 0)
                if found is None:
                    continue
                failed += 1
                steps, found = shortened(pair, steps[: found.step + 1], name, options.attempts)
                print(
                    f"{area}, seed {seed}: the responses to the last step differ",
                    *steps,
                    found.what,
                    "",
                    sep="\n",
                    flush=True,
                )
            requests += pair.requests
    elapsed_s = time.monotonic() - begun_s
    print(f"{programs} programs, {requests} requests to each server, {elapsed_s:.0f} s, {failed} with a difference")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
