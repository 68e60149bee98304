"""The command line of the comparison, which the package describes."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from kcore.testing.server import ServerProcess
from tests.apache.broker import PROPERTIES, ApacheKafka
from tools.differential.acls import Acls
from tools.differential.admin import Admin
from tools.differential.cluster import ClusterArea
from tools.differential.data import Data
from tools.differential.groups import Groups
from tools.differential.known import described
from tools.differential.program import Area
from tools.differential.runner import Pair, await_coordinators, run_renamed, shortened
from tools.differential.sessions import Sessions
from tools.differential.share import Share
from tools.differential.share_state import ShareState
from tools.differential.side import Side
from tools.differential.streams import Streams
from tools.differential.transactions import Transactions

AREAS: Final[dict[str, Area]] = {
    area.NAME: area
    for area in (
        Groups(),
        Transactions(),
        Data(),
        Admin(),
        Share(),
        Streams(),
        Acls(),
        ClusterArea(),
        ShareState(),
        Sessions(),
    )
}
JOBS: Final = 6
"""Programs that run at the same time: most of their time is spent in waiting."""
SETTINGS: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.retention.check.interval.ms": "86400000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""The settings of both servers in addition to those of `tests/apache/broker.py`."""
KCORE_SETTINGS: Final = {
    name: value
    for name, _, value in (line.partition("=") for line in PROPERTIES.splitlines())
    if name.startswith(("group.", "auto.")) or name.endswith(".num.partitions")
}
"""The settings of `tests/apache/broker.py` that have an effect in kcore."""


@contextmanager
def both(kafka: str, server: str) -> Iterator[dict[str, str]]:
    """Yields the names and addresses of the two servers. Starts the servers that have no address."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if kafka == "start":
            kafka = stack.enter_context(ApacheKafka(folder, SETTINGS)).bootstrap
        if server == "start":
            server = stack.enter_context(ServerProcess(folder / "data", settings=KCORE_SETTINGS | SETTINGS)).bootstrap
        servers = {"Kafka": kafka, "kcore": server}
        for name, bootstrap in servers.items():
            await_coordinators(Side(name, bootstrap))
        yield servers


def arguments() -> argparse.Namespace:
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.differential", description=__doc__)
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="default: every area")
    parser.add_argument("--seeds", default="0-99", help="FIRST-LAST, or one seed")
    parser.add_argument("--kafka", default="start", help="HOST:PORT of Apache Kafka; default: start one")
    parser.add_argument("--server", default="start", help="HOST:PORT of kcore; default: start one")
    parser.add_argument("--texts", action="store_true", help="compare the texts of errors, too")
    parser.add_argument("--logs", action="store_true", help="compare the records of the logs, too")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--attempts", type=int, default=60, help="runs that may shorten a program")
    parser.add_argument("--jobs", type=int, default=JOBS, help="programs that run at the same time")
    return parser.parse_args()


class Result(NamedTuple):
    """Outcome of a program.

    Attributes:
        requests: number of requests to each server.
        kind: `equal`, `documented`, `once` (a difference that did not appear again) or `different`.
        report: lines to print.
    """

    requests: int
    kind: str
    report: list[str]


def run_seed(servers: Mapping[str, str], area: Area, seed: int, options: argparse.Namespace) -> Result:
    """Runs the program of a seed over its own connections, and shortens it if it finds a difference."""
    pair = Pair([Side(name, bootstrap) for name, bootstrap in servers.items()], area, options.texts, logs=options.logs)
    name = f"{area.NAME[:2]}{seed}"
    steps = area.draw(random.Random(f"{area.NAME} {seed}"), name)
    trace = [str(step) for step in steps] if options.trace else []
    difference = run_renamed(pair, steps, name, 0)
    if difference is None:
        return Result(pair.requests, "equal", trace)
    steps = steps[: difference.step + 1]
    known = partial(described, area.NAME)
    words = known(steps[-1], difference.what)
    if words is not None:
        return Result(
            pair.requests, "documented", [*trace, f"{area.NAME}, seed {seed}: documented: {words}", difference.what]
        )
    steps, again = shortened(pair, steps, name, options.attempts, known)
    kind, text = ("once", "differed once") if again is None else ("different", "differ")
    what = difference.what if again is None else again.what
    lines = [f"{area.NAME}, seed {seed}: the responses after the last step {text}", *map(str, steps), what, ""]
    return Result(pair.requests, kind, trace + lines)


def main() -> int:
    """Runs the seeds of the areas. Returns 1 if a program found an undocumented difference, otherwise 0."""
    options = arguments()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    kinds: Counter[str] = Counter()
    requests = 0
    begun_s = time.monotonic()
    with both(options.kafka, options.server) as servers, ThreadPoolExecutor(options.jobs) as pool:
        for area in options.area or sorted(AREAS):
            for result in pool.map(lambda seed, of=area: run_seed(servers, AREAS[of], seed, options), seeds):
                kinds[result.kind] += 1
                requests += result.requests
                if result.report:
                    print(*result.report, sep="\n", flush=True)
    elapsed_s = time.monotonic() - begun_s
    print(
        f"{kinds.total()} programs, {requests} requests to each server, {elapsed_s:.0f} s: {kinds['different']} with a "
        f"difference, {kinds['documented']} with a documented one, {kinds['once']} with one that did not appear again"
    )
    return 1 if kinds["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
