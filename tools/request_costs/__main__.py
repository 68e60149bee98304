"""Measures the most expensive request of at most 1 MB for each served API, each in a child process.

    python -m tools.request_costs [--api NAME] [--large] [--rounds COUNT]

A slice is one callback of the event loop: during it, the loop does not check its sockets. Its length is CPU time of the
loop's thread. Other load on the machine fills the CPU caches and thus makes slices longer. So each request is measured
in several rounds, and the round whose longest slice is the shortest counts. The table is in docs/request-costs.md.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Iterable
from itertools import chain
from typing import Any

from kcore.drivers.event_loop import AsyncDriver
from kcore.protocol.api_keys import ApiKey
from kcore.server.connection import Connection
from kcore.server.listeners import parse_listeners
from kcore.server.server import Server
from kcore_ext.codec.frames import encode_request
from tools.request_costs.cases import Case, Cases
from tools.request_costs.large_cases import LargeCases
from tools.request_costs.large_group_cases import LargeGroupCases
from tools.request_costs.large_state import LargeState
from tools.request_costs.share_cases import ShareCases
from tools.request_costs.state import State
from tools.request_costs.streams_cases import StreamsCases

LIMIT_S = 300.0
PAGE_BYTES = 4_096
MAX_SLICE_MS = 50.0
MAX_RESPONSE_BYTES = 100 << 20


class Transport(asyncio.Transport):
    """A transport whose peer reads all bytes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_bytes = 0
        self.frames = 0
        self.closed = False
        self._head = b""
        self._left = 0

    def write(self, data: Any) -> None:
        """Counts the frames that the server sends."""
        self.sent_bytes += len(data)
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
            else:
                self._head += data[at : at + 4 - len(self._head)]
                at += 4
                self._left, self._head = int.from_bytes(self._head, "big"), b""
            if not self._left:
                self.frames += 1

    def get_write_buffer_size(self) -> int:
        """Returns 0, because the peer has read everything."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing, because the peer reads everything at once."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns the address of the peer."""
        return ("127.0.0.1", 1) if name == "peername" else default

    def pause_reading(self) -> None:
        """Does nothing: the tool sends one request at a time."""

    def resume_reading(self) -> None:
        """Does nothing, because reading never pauses."""

    def close(self) -> None:
        """Records that the server closed the connection."""
        self.closed = True

    abort = close


class Measured:
    """The times of all callbacks of event loops within its `with` block."""

    def __init__(self) -> None:
        self.slices: list[float] = []
        self._run = asyncio.Handle._run

    def __enter__(self) -> Measured:
        run, slices = self._run, self.slices

        def timed(handle: asyncio.Handle) -> None:
            begun_s = time.thread_time()
            run(handle)
            slices.append(time.thread_time() - begun_s)

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]


def resident(field: str) -> int:
    """Reads VmHWM or VmRSS of this process, in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(field))


async def converse(state: State, case: Case) -> dict[str, Any]:
    """Sends the requests of a case, one after the other. Measures the last request."""
    loop = asyncio.get_running_loop()
    driver = AsyncDriver(state.engine, loop)
    server = Server(driver, parse_listeners(state.engine.config))
    driver.start()
    connection, transport = Connection(server, "PLAINTEXT", 1), Transport()
    connection.connection_made(transport)
    measured = Measured()
    size = 0
    for number, made in enumerate(case.requests):
        request = made(state) if callable(made) else made
        version = case.version if case.key == request.API_KEY else case.earlier_version
        if version < 0:
            version = state.engine.newest_version(request)
        frame = encode_request(request, version, number, "tool")
        size = len(frame)
        gc.collect()
        before_bytes = resident("VmRSS")
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
        measured.slices.clear()
        sent_bytes = transport.sent_bytes
        begun_s, until_s = time.thread_time(), time.monotonic() + LIMIT_S
        with measured:
            loop.call_soon(connection.data_received, frame)
            while transport.frames == number and not transport.closed and time.monotonic() < until_s:
                await asyncio.sleep(0)
            while state.engine.slices and time.monotonic() < until_s:
                await asyncio.sleep(0)
        spent_s = time.thread_time() - begun_s
        await asyncio.sleep(0)  # the preparation of the next request is not part of a measured callback
    peak_bytes = resident("VmHWM") - before_bytes
    frame = b""
    gc.collect()
    driver.close()
    return {
        "request": size,
        "response": transport.sent_bytes - sent_bytes,
        "closed": transport.closed,
        "cpu_ms": spent_s * 1000,
        "slice_ms": max(measured.slices) * 1000,
        "slices": sum(one > 0.001 for one in measured.slices),
        "peak": peak_bytes,
        "left": resident("VmRSS") - before_bytes,
    }


def own_memory() -> None:
    """Copies the memory pages that this process shares with its parent.

    Without this step, the first access to each page would copy the page, and this time would count for the request.
    """
    with open("/proc/self/maps") as maps:
        regions = [line.split() for line in maps]
    for fields in regions:
        places, rights, *_, inode = fields[:5]
        if rights == "rw-p" and inode == "0" and fields[-1] != "[stack]":
            start, end = (int(place, 16) for place in places.split("-"))
            for address in range(start, end, PAGE_BYTES):
                page = ctypes.c_ubyte.from_address(address)
                page.value = page.value


def measure(state: State, case: Case) -> dict[str, Any]:
    """Measures a case in a child process, which has its own copy of the state."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            own_memory()
            result = asyncio.run(converse(state, case))
            with os.fdopen(writer, "w") as pipe:
                json.dump(result, pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {}


def measure_rounds(state: State, case: Case, rounds: int) -> dict[str, Any]:
    """Measures a case several times. Returns the round that other load on the machine has disturbed least."""
    results = [measure(state, case) for _ in range(rounds)]
    return min(results, key=lambda found: float(found.get("slice_ms", sys.float_info.max)))


def main() -> int:
    """Prints the table. Returns exit status 1 if a request exceeds the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", default="", help="only APIs whose names contain this")
    parser.add_argument("--large", action="store_true", help="only the node with 100,000 partitions and groups")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each request")
    arguments = parser.parse_args()
    gc.set_threshold(20_000, 50, 10)
    print("| API | request | response | CPU | longest slice | memory: peak, left |\n|---|---|---|---|---|---|")
    above = 0
    if not arguments.large:
        state = State()
        cases = list(chain(Cases(state), ShareCases(state), StreamsCases(state), LargeGroupCases(state)))
        above += show(state, cases, arguments.api, arguments.rounds)
        missing = {ApiKey(key).name for key in state.engine.apis} - {case.key.name for case in cases}
        print(f"\nno case: {', '.join(sorted(missing))}", file=sys.stderr)
        del state, cases
    large = LargeState()
    above += show(large, LargeCases(large), arguments.api, arguments.rounds)
    print(f"\n{above} above {MAX_SLICE_MS:.0f} ms or 100 MB", file=sys.stderr)
    return 1 if above else 0


def show(state: State, cases: Iterable[Case], api: str, rounds: int) -> int:
    """Measures the cases of the APIs whose names contain `api`. Returns the number of cases above the limits."""
    gc.collect()
    gc.freeze()
    above = 0
    for case in cases:
        name = case.key.name.replace("_", " ").title().replace(" ", "")
        if api.lower() not in name.lower():
            continue
        costs = measure_rounds(state, case, rounds)
        if not costs:
            print(f"| {name} | {case.what} | failed | | | |")
            above += 1
            continue
        bad = costs["slice_ms"] > MAX_SLICE_MS or costs["response"] > MAX_RESPONSE_BYTES
        above += bad
        response = "closed" if costs["closed"] else f"{costs['response'] / 1e6:.2f} MB"
        print(
            f"| {name} | {costs['request'] / 1e3:.0f} KB: {case.what} | {response} | {costs['cpu_ms']:.0f} ms | "
            f"{costs['slice_ms']:.0f} ms{' !' if bad else ''} of {costs['slices']} | {costs['peak'] / 1e6:.0f} MB, "
            f"{costs['left'] / 1e6:.0f} MB |",
            flush=True,
        )
    return above


if __name__ == "__main__":
    sys.exit(main())
