"""The comparison of two servers by random test programs.

Equal servers show no difference. A planted difference is found, and the test program that revealed it is shortened.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any, Final

import pytest

from kcore.testing import ServerProcess
from tests.apache.broker import free_port
from tests.seeds import first_of
from tools.differential.__main__ import AREAS, KCORE_SETTINGS, SETTINGS, SLOW, Servers, kcore_server, run_seed
from tools.differential.known import KNOWN, described
from tools.differential.program import Step
from tools.differential.records import _in_fixed_order, internal_ends, internal_records
from tools.differential.runner import (
    Difference,
    Pair,
    await_coordinators,
    differences,
    fields,
    renamed,
    run_renamed,
    shortened,
)
from tools.differential.side import Side

SEEDS: Final = (4, 5)
"""Seeds of test programs of the area `groups`. The second test program has a commit that the server `other` refuses."""


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    """Starts three servers. The last one has different limits."""
    limits = {"offset.metadata.max.bytes": "3", "transaction.max.timeout.ms": "5000"}
    ports = [free_port() for _ in range(3)]
    with (
        kcore_server(None, SETTINGS, ports[0]) as one,
        kcore_server(None, SETTINGS, ports[1]) as two,
        kcore_server(None, SETTINGS | limits, ports[2]) as other,
    ):
        names = zip(("one", "two", "other"), (one, two, other), ports, strict=True)
        found = [Side(name, each.bootstrap, sasl_port=port) for name, each, port in names]
        for side in found:
            await_coordinators(side)
        yield found


@pytest.mark.parametrize("area", sorted(AREAS.keys() - SLOW))
def test_equal_servers_respond_alike(sides: list[Side], area: str) -> None:
    pair = Pair(sides[:2], AREAS[area], logs=True)
    for seed in range(2):
        steps = AREAS[area].draw(random.Random(seed), f"e{area}{seed}")
        assert run_renamed(pair, steps, f"e{area}{seed}", 0) is None
    assert pair.requests > 20


@pytest.mark.parametrize("area", first_of(["groups", "transactions", "share", "streams"], 2))
def test_a_program_continues_after_a_restart(tmp_path: Path, area: str) -> None:
    """Both servers are killed in the middle of the test program, and load their state again."""
    with (
        ServerProcess(tmp_path / "one", settings=KCORE_SETTINGS | SETTINGS) as one,
        ServerProcess(tmp_path / "two", settings=KCORE_SETTINGS | SETTINGS) as two,
    ):
        servers = Servers({"one": one.bootstrap, "two": two.bootstrap}, {}, (one, two))
        servers.await_coordinators()
        barrier = Barrier(2, servers.restart)
        pids = one.pid, two.pid
        options = argparse.Namespace(texts=True, logs=True, trace=False, attempts=0)
        run = partial(run_seed, servers, AREAS[area], options=options, barrier=barrier)
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(run, SEEDS))
        assert [result.kind for result in results] == ["equal", "equal"], results
        assert one.pid != pids[0]
        assert two.pid != pids[1]


def test_a_difference_is_found_and_its_program_is_shortened(sides: list[Side]) -> None:
    pair = Pair(sides[1:], AREAS["groups"])
    found: Difference | None = None
    for seed in range(20):
        name = f"p{seed}"
        steps = AREAS["groups"].draw(random.Random(seed), name)
        found = run_renamed(pair, steps, name, 0)
        if found is not None:
            break
    assert found is not None
    kept, again = shortened(pair, steps[: found.step + 1], name, 40, lambda last, what: None)
    assert again is not None
    assert kept[-1].call == "commit"
    assert len(kept) <= 3
    assert "two 0, other 12" in again.what


def test_a_difference_names_the_field_and_both_values(sides: list[Side]) -> None:
    steps = [
        Step(
            0,
            "init",
            {"tid": "n-t", "timeout_ms": 60_000, "known": "none", "delta": 0, "version": 4, "known_as": "n-t"},
        )
    ]
    found = Pair(sides[1:], AREAS["transactions"]).run(steps, "n")
    assert found is not None
    assert found.step == 0
    assert "  .error_code: two 0, other 50" in found.what.splitlines()


def test_a_record_that_only_one_log_has_is_a_difference(sides: list[Side]) -> None:
    arguments = {"tid": "l-t", "timeout_ms": 4_000, "known": "none", "delta": 0, "version": 4, "known_as": "l-t"}
    seen = []
    for side, count in zip(sides[:2], (1, 2), strict=True):
        side.reset()
        ends = internal_ends(side)
        for _ in range(count):
            side.send(0, *AREAS["transactions"].CALLS["init"].build(side, **arguments))
            side.receive(0)
        seen.append({"records": internal_records(side, ends, "l-")})
        side.reset()
    assert [row["type"] for row in seen[0]["records"]["l-t"]] == ["TransactionLogKey"]
    (line,) = differences(sides[:2], *seen)
    assert line.startswith("  .records.l-t[1]: only two ")


def test_documented_differences_are_distinguished_from_others(sides: list[Side]) -> None:
    """The same differing lines are a documented difference after one call, and an unknown difference after another
    call.
    """
    rows = [("t", 0, -3, -1)]
    arguments: dict[str, Any] = {"rows": rows, "version": 7, "isolation": 0}
    lines = [
        f"  .topics[0].partitions[0].{each}, kcore -1" for each in ('timestamp: Kafka "<moment>"', "offset: Kafka 0")
    ]
    what = "\n".join(lines)
    words = described("data", Step(0, "list_offsets", arguments), what)
    assert words is not None
    assert words.startswith("ListOffsets for the largest timestamp")
    assert described("data", Step(0, "list_offsets", {**arguments, "rows": [("t", 0, -1, -1)]}), what) is None
    assert described("data", Step(0, "fetch", arguments), what) is None
    assert described("data", Step(0, "list_offsets", arguments), what + "\n  .topics[0].name: Kafka 1, kcore 2") is None


def test_the_page_of_differences_describes_every_known_difference() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "differences.md").read_text().split())
    assert [known.described for known in KNOWN if known.described not in page] == []
    assert {known.area for known in KNOWN} <= set(AREAS)
    assert all(known.call is None or known.call in AREAS[known.area].CALLS for known in KNOWN)


def test_the_order_of_records_counts_only_within_a_share_partition() -> None:
    """Kafka's persister writes share partitions independently of each other."""
    rows = [
        {"type": "ShareUpdateKey", "key": "b", "value": 1},
        {"type": "ShareSnapshotKey", "key": "a", "value": 2},
        {"type": "ShareSnapshotKey", "key": "b", "value": 3},
        {"type": "ShareUpdateKey", "key": "a", "value": 4},
    ]
    assert [row["value"] for row in _in_fixed_order(rows)] == [2, 4, 1, 3]
    others = [{"type": name, "key": key} for name, key in [("T", "b"), ("M", "a"), ("M", "b")]]
    assert _in_fixed_order(others) == others


@pytest.mark.parametrize(("second", "expected"), [("two", "equal"), ("other", "different")])
def test_a_seed_has_a_result(sides: list[Side], second: str, expected: str) -> None:
    """Without a difference, the result of a test program is "equal". If only one of the servers refuses a request, the
    result is "different".
    """
    servers = Servers({side.name: side.bootstrap for side in sides if side.name in ("one", second)}, {}, ())
    options = argparse.Namespace(texts=False, trace=False, attempts=1, logs=False)
    results = [run_seed(servers, AREAS["groups"], seed, options) for seed in SEEDS]
    assert {result.kind for result in results} - {"equal"} == {expected} - {"equal"}
    assert any("groups, seed" in line for result in results for line in result.report) == (expected == "different")


def test_programs_of_a_seed_are_always_the_same() -> None:
    for area in AREAS.values():
        first, second = (area.draw(random.Random("x"), "x") for _ in range(2))
        assert first == second
        assert first != area.draw(random.Random("y"), "x")


def test_other_names_begin_every_name_of_a_program() -> None:
    arguments = {"group": "g1-g", "rows": [("g1-a", 1), ("other", 2)], "topics": {"g1-b": [0]}, "size": 3}
    assert renamed(arguments, "g1", "z") == {
        "group": "z-g", "rows": [("z-a", 1), ("other", 2)], "topics": {"z-b": [0]}, "size": 3,
    }  # fmt: skip


def test_the_paths_of_fields_are_equal_in_every_run_of_a_program() -> None:
    """Otherwise a test program with a difference in the logs would never be shortened."""
    one = '  .records.gr397r0x6bca30d-simple[3]: only Kafka {"type": "a"}'
    two = '  .records.gr397r12x2ea011fc-simple[14]: only Kafka {"type": "b"}'
    assert fields(one) == fields(two) == ["  .records.gr397-simple"]
