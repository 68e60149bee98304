"""The command line of the comparison with Apache Kafka. See the docstring of the package."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Final, NamedTuple

from kcore.testing.server import ServerProcess
from tests.apache.broker import PROPERTIES, ApacheKafka, free_port, plain_users
from tools.differential.acls import Acls
from tools.differential.admin import Admin
from tools.differential.cluster import ClusterArea
from tools.differential.compaction import Compaction
from tools.differential.data import Data
from tools.differential.exactly_once import ExactlyOnce
from tools.differential.expiry import EXPIRY_SETTINGS, Expiry
from tools.differential.group_admin import GroupAdmin
from tools.differential.groups import Groups
from tools.differential.known import described
from tools.differential.member_rights import MemberRights
from tools.differential.members import Members
from tools.differential.program import Area
from tools.differential.quotas import Quotas
from tools.differential.rights import Rights
from tools.differential.runner import (
    AFTER_RESTART_S,
    GRANT,
    QUIET_S,
    Pair,
    await_coordinators,
    middle_of,
    run_renamed,
    shortened,
)
from tools.differential.sessions import Sessions
from tools.differential.settings import Settings
from tools.differential.shapes import Shapes
from tools.differential.share import Share
from tools.differential.share_logs import ShareLogs
from tools.differential.share_state import ShareState
from tools.differential.side import PASSWORD, USERS, Side
from tools.differential.streams import Streams
from tools.differential.timeouts import Timeouts
from tools.differential.topologies import Topologies
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
        Shapes(),
        Rights(),
        Settings(),
        Topologies(),
        Members(),
        ExactlyOnce(),
        Timeouts(),
        Compaction(),
        ShareLogs(),
        MemberRights(),
        GroupAdmin(),
        Expiry(),
        Quotas(),
    )
}
SLOW: Final = frozenset({Compaction.NAME, Expiry.NAME, ShareLogs.NAME, Timeouts.NAME})
"""Names of the areas whose test programs pause for many seconds. The tool runs them only if `--area` names them."""
JOBS: Final = 6
"""Number of test programs (lists of random requests) that run at the same time. They mostly wait."""
RESTART_S: Final = 120.0
"""Maximum time in seconds that a test program waits at its middle step for the other test programs and the servers'
restart.
"""
OF_LEADER_EPOCHS: Final = frozenset({"epoch_end"})
"""Names of the calls that depend on leader epochs.

Programs with a restart leave these calls out, because the two servers change leader epochs differently at a restart.
"""
SETTINGS: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "100",
    "offsets.retention.check.interval.ms": "86400000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""The settings of both servers in addition to those of `tests/apache/broker.py`."""
LONG_SESSIONS: Final = {"group.consumer.session.timeout.ms": "45000"}
KCORE_SETTINGS: Final = {
    name: value
    for name, _, value in (line.partition("=") for line in PROPERTIES.splitlines())
    if name.startswith(("group.", "auto.")) or name.endswith(".num.partitions")
}
"""The settings of `tests/apache/broker.py` that have an effect in kcore."""


class Servers(NamedTuple):
    """The two compared servers, kcore and Apache Kafka.

    Attributes:
        addresses: name -> HOST:PORT.
        sasl_ports: name -> the port at which users log in, for servers that this program has started.
        processes: the servers that this program has started.
    """

    addresses: Mapping[str, str]
    sasl_ports: Mapping[str, int]
    processes: Sequence[ApacheKafka | ServerProcess]

    def await_coordinators(self) -> None:
        """Waits until both servers have loaded their coordinators."""
        for name, bootstrap in self.addresses.items():
            await_coordinators(Side(name, bootstrap))

    def restart(self) -> None:
        """Ends and restarts both server processes. Kills kcore, but stops Kafka cleanly.

        Kafka stores log start offsets only once a minute, so a SIGKILL would undo recent DeleteRecords requests.
        """
        for process, (name, bootstrap) in zip(self.processes, self.addresses.items(), strict=True):
            if isinstance(process, ApacheKafka):
                process.stop()
            else:
                process.kill()
            process.start()
            await_coordinators(Side(name, bootstrap))


def kcore_server(data: Path | None, settings: Mapping[str, str], sasl_port: int) -> ServerProcess:
    """Returns a server that is not started. `USERS` may log in at the port `sasl_port`."""
    users = plain_users(dict.fromkeys(USERS, PASSWORD))
    logins = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": users}
    listener = ["--listen", f"SASL_PLAINTEXT://127.0.0.1:{sasl_port}"]
    return ServerProcess(data, KCORE_SETTINGS | settings | logins, arguments=listener)


@contextmanager
def both(kafka: str, server: str, restarts: bool, more: Mapping[str, str]) -> Iterator[Servers]:
    """Yields the two servers. Starts each server whose address is "start".

    Args:
        kafka: HOST:PORT of a running Kafka broker, or "start".
        server: HOST:PORT of a running kcore server, or "start".
        restarts: True to give the started servers long session timeouts, so that members survive a restart.
        more: further settings of the started servers.
    """
    settings = {**SETTINGS, **(LONG_SESSIONS if restarts else {}), **more}
    users = dict.fromkeys(USERS, PASSWORD)
    sasl_ports: dict[str, int] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes: list[ApacheKafka | ServerProcess] = []
        if kafka == "start":
            broker = stack.enter_context(ApacheKafka(folder, settings, users))
            processes.append(broker)
            sasl_ports["Kafka"] = broker.sasl_port
            kafka = broker.bootstrap
        if server == "start":
            sasl_ports["kcore"] = free_port()
            started = stack.enter_context(kcore_server(folder / "data", settings, sasl_ports["kcore"]))
            processes.append(started)
            server = started.bootstrap
        servers = Servers({"Kafka": kafka, "kcore": server}, sasl_ports, processes)
        servers.await_coordinators()
        yield servers


class MiddleBarrier:
    """The pause of a test program at its middle step, until all test programs have paused and both servers have
    restarted.

    Args:
        barrier: the barrier that all test programs share. Its action restarts the servers.
    """

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier
        self._reached = False

    def __call__(self) -> None:
        """Waits at the barrier at the first call. Later calls do nothing.

        A test program that ends before its middle step calls the object at its end, so that the other test programs do
        not wait for it in vain.
        """
        if not self._reached:
            self._reached = True
            self._barrier.wait(RESTART_S)


def arguments() -> argparse.Namespace:
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.differential", description=__doc__)
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="default: every area without pauses")
    parser.add_argument("--seeds", default="0-99", help="FIRST-LAST, or one seed")
    parser.add_argument("--kafka", default="start", help="HOST:PORT of Apache Kafka; default: start one")
    parser.add_argument("--server", default="start", help="HOST:PORT of kcore; default: start one")
    parser.add_argument("--texts", action="store_true", help="compare the texts of errors, too")
    parser.add_argument("--logs", action="store_true", help="compare the records of the logs, too")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--attempts", type=int, default=60, help="runs that may shorten a test program")
    parser.add_argument(
        "--restart", action="store_true", help="kill and restart both servers in the middle of the test programs"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a further setting of both started servers"
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help="test programs that run at the same time")
    options = parser.parse_args()
    if any("=" not in each for each in options.set):
        parser.error("--set needs NAME=VALUE")
    if options.restart and (options.kafka, options.server) != ("start", "start"):
        parser.error("--restart restarts servers that this program starts: leave out --kafka and --server")
    if (options.kafka, options.server) != ("start", "start"):
        with_users = {name for name, area in AREAS.items() if GRANT in area.CALLS}
        options.area = [area for area in options.area or sorted(AREAS.keys() - SLOW) if area not in with_users]
    return options


class Result(NamedTuple):
    """Outcome of a test program.

    Attributes:
        requests: number of requests to each server.
        kind: `equal`, `documented`, `once` (a difference that did not appear again) or `different`.
        report: lines to print.
    """

    requests: int
    kind: str
    report: list[str]


def run_seed(
    servers: Servers, area: Area, seed: int, options: argparse.Namespace, barrier: Barrier | None = None
) -> Result:
    """Generates and runs the test program of a seed over separate connections. Shortens a test program that finds a
    difference.

    Args:
        barrier: the barrier for a run in which the servers restart; None: the servers do not restart. In a run with a
            restart, test programs are not shortened.
    """
    restarts = barrier is not None
    sides = [
        Side(name, bootstrap, hides_leader_epochs=restarts, sasl_port=servers.sasl_ports.get(name))
        for name, bootstrap in servers.addresses.items()
    ]
    quiet_s = AFTER_RESTART_S if restarts else QUIET_S
    pair = Pair(sides, area, options.texts, logs=options.logs, quiet_s=quiet_s)
    name = f"{area.NAME[:2]}{seed}"
    steps = area.draw(random.Random(f"{area.NAME} {seed}"), name)
    if restarts:
        steps = [step for step in steps if step.call not in OF_LEADER_EPOCHS]
    trace = [str(step) for step in steps] if options.trace else []
    if barrier is None:
        difference = run_renamed(pair, steps, name, 0)
    else:
        middle = MiddleBarrier(barrier)
        try:
            difference = run_renamed(pair, steps, name, 0, middle)
        finally:
            middle()
    if difference is None:
        return Result(pair.requests, "equal", trace)
    restarted_before = middle_of(steps)
    steps = steps[: difference.step + 1]
    known = partial(described, area.NAME)
    words = known(steps[-1], difference.what)
    if words is not None:
        return Result(
            pair.requests, "documented", [*trace, f"{area.NAME}, seed {seed}: documented: {words}", difference.what]
        )
    if barrier is not None:
        where = "before" if difference.step < restarted_before else f"after the restart before step {restarted_before}"
        lines = [f"{area.NAME}, seed {seed}: the responses after the last step differ, {where}", *map(str, steps)]
        return Result(pair.requests, "different", [*trace, *lines, difference.what, ""])
    steps, again = shortened(pair, steps, name, options.attempts, known)
    kind, text = ("once", "differed once") if again is None else ("different", "differ")
    what = difference.what if again is None else again.what
    lines = [f"{area.NAME}, seed {seed}: the responses after the last step {text}", *map(str, steps), what, ""]
    return Result(pair.requests, kind, trace + lines)


def results(
    servers: Servers, area: Area, seeds: range, options: argparse.Namespace, pool: ThreadPoolExecutor
) -> Iterator[Result]:
    """Runs the test programs of an area in the threads of the pool, one for each seed. Yields their results."""
    if not options.restart:
        yield from pool.map(lambda seed: run_seed(servers, area, seed, options), seeds)
        return
    for first in range(seeds.start, seeds.stop, options.jobs):
        batch = range(first, min(first + options.jobs, seeds.stop))
        barrier = Barrier(len(batch), servers.restart)
        yield from pool.map(partial(run_seed, servers, area, options=options, barrier=barrier), batch)


def main() -> int:
    """Runs the seeds of the areas. Returns 1 if a test program found an undocumented difference, otherwise 0."""
    options = arguments()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    kinds: Counter[str] = Counter()
    requests = 0
    begun_s = time.monotonic()
    areas = options.area or sorted(AREAS.keys() - SLOW)
    more = dict(EXPIRY_SETTINGS) if Expiry.NAME in areas else {}
    more |= dict(each.split("=", 1) for each in options.set)
    with (
        both(options.kafka, options.server, options.restart, more) as servers,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        for area in areas:
            for result in results(servers, AREAS[area], seeds, options, pool):
                kinds[result.kind] += 1
                requests += result.requests
                if result.report:
                    print(*result.report, sep="\n", flush=True)
    elapsed_s = time.monotonic() - begun_s
    print(
        f"{kinds.total()} test programs, {requests} requests to each server, {elapsed_s:.0f} s: {kinds['different']} "
        f"with a difference, {kinds['documented']} with a documented one, {kinds['once']} with one that did not appear "
        "again"
    )
    return 1 if kinds["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
