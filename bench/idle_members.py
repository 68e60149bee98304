"""`python -m bench.idle_members`: compares the cost of many idle group members in one process.

    python -m bench.idle_members [--clients kcore aiokafka] [--members 1000] [--seconds 20]

Each member is the only member of its group, and sends a heartbeat every 3 seconds, the default of both clients. Each
client runs in a separate process, with one `kcore serve` as the server. Prints the CPU time of the client process per
minute, and the growth of its resident memory per member.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import kcore
from bench.client_work import Meter
from bench.clients import PACKAGES, server

TOPIC = "idle"
AT_ONCE = 50
"""Number of members that join at the same time."""
SETTLE_S = 8.0
"""Time in seconds between the last join and the measurement.

Within it, all members get their partitions, so that later heartbeats do not change the groups.
"""


async def _kcore(address: str, stack: AsyncExitStack) -> Callable[[int], Awaitable[Any]]:
    node = await stack.enter_async_context(kcore.connect_async(address))

    async def join(number: int) -> None:
        group = node.group(f"kcore-{number}")
        await stack.enter_async_context(group.join(TOPIC, protocol="classic", assignors=["range"]))

    return join


async def _aiokafka(address: str, stack: AsyncExitStack) -> Callable[[int], Awaitable[Any]]:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - may be missing

    async def join(number: int) -> None:
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=address, group_id=f"aiokafka-{number}", enable_auto_commit=False
        )
        await stack.enter_async_context(consumer)
        while not consumer.assignment():
            await asyncio.sleep(0.05)
        consumer.pause(*consumer.assignment())  # a member without fetches

    return join


CLIENTS = {"kcore": _kcore, "aiokafka": _aiokafka}


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure_here(client: str, address: str, members: int, seconds: float) -> dict[str, float]:
    """Joins all members in this process. Prints CPU seconds per minute of all members, and memory in KiB per member."""
    async with AsyncExitStack() as stack:
        join = await CLIENTS[client](address, stack)
        await join(0)
        before = _resident_bytes()
        slots = asyncio.Semaphore(AT_ONCE)

        async def limited(number: int) -> None:
            async with slots:
                await join(number)

        await asyncio.gather(*(limited(number) for number in range(1, members)))
        await asyncio.sleep(SETTLE_S)
        grown = _resident_bytes() - before
        meter = Meter()
        meter.start()
        await asyncio.sleep(seconds)
        result = {"cpu_s": meter.us_per(1) / 1e6 * 60 / seconds, "kib": grown / 1024 / (members - 1)}
        print(json.dumps(result), flush=True)
        os._exit(0)  # leaving 1,000 groups is no part of the measurement


def measure(client: str, address: str, members: int, seconds: float) -> dict[str, float]:
    """Performs the measurement of `measure_here` in a new process, and returns the printed values."""
    command = [sys.executable, "-m", "bench.idle_members", "--here", client, address]
    command += ["--members", str(members), "--seconds", str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    """Compares the clients or, with `--here`, performs one measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--here", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each member has connections
    if options.here:
        asyncio.run(measure_here(*options.here, options.members, options.seconds))
        return 0
    print("| idle members in one process | CPU, s per minute | memory of a member, KiB |\n|---|---|---|")
    with server() as address:
        with kcore.connect(address) as node:
            node.topics.create(TOPIC, partitions=1)
        for client in options.clients:
            if importlib.util.find_spec(PACKAGES[client]) is None:
                print(f"{client} is not installed", file=sys.stderr)
                continue
            costs = measure(client, address, options.members, options.seconds)
            print(f"| {client}, {options.members:,} | {costs['cpu_s']:.2f} | {costs['kib']:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
