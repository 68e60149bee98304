"""The tables of `make bench-peers`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench import compare
from bench.compare import CASES, PAIRS, Figure, flush_table, java_table, median_of, tcp_table
from bench.flush import FlushTimes, measure_flush


def arguments_of(name: str) -> str:
    """Returns the command-line arguments of the benchmark case that produces a value of the table."""
    (found,) = (case.arguments for case in CASES for figure in case.figures if figure.name == name)
    return found


def test_the_report_shows_the_flush_time_of_the_device_for_each_case(tmp_path: Path) -> None:
    probes = [FlushTimes(10, 20, 30, 40, 9)._asdict(), measure_flush(str(tmp_path), 0.01)._asdict()]
    probes[1].update(p50=30, p99=40, p99_9=50)
    assert flush_table({arguments_of("Heartbeat v4"): {"kcore": [], "flush": probes}}) == (
        "\n| flush of the device before it, µs | p50 | p99 | p99.9 |\n"
        "|---|---|---|---|\n"
        "| Heartbeat v4 | 20 | 30 | 40 |\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_servers_are_compared_by_their_medians() -> None:
    """More requests per CPU-second and fewer milliseconds are better. Failed or missing runs have no value."""
    measured = {
        arguments_of("Heartbeat v4"): {
            "kcore": [{"req_per_server_cpu_s": one} for one in (200_000, 300_000, 310_000)],
            "Kafka": [{"req_per_server_cpu_s": 60_000}, {"failed": "no answer"}],
        },
        arguments_of("100 members join, ms"): {
            "kcore": [{"stable_ms": [9, 11]}, {"stable_ms": [10], "server_cpu_s_per_storm": 0.01}],
            "Kafka": [{"stable_ms": [25], "server_cpu_s_per_storm": 0.03}],
        },
        arguments_of("heartbeat at 1,000/s p50, µs"): {
            "kcore": [{"heartbeat_us": [250.0, 900.0, 2000.0], "commit_us": [500.0, 1100.0, 2000.0]}],
            "Kafka": [{"heartbeat_us": [500.0, 800.0, 2000.0]}],
        },
    }
    assert tcp_table(measured, ["kcore", "Kafka"]) == (
        "| per server CPU-second | kcore | Kafka | kcore is better by |\n"
        "|---|---|---|---|\n"
        "| Heartbeat v4 | 300,000 | 60,000 | 5.00 × |\n"
        "| heartbeat at 1,000/s p50, µs | 250 | 500 | 2.00 × |\n"
        "| heartbeat at 1,000/s p99, µs | 900 | 800 | 0.89 × |\n"
        "| heartbeat at 1,000/s p99.9, µs | 2,000 | 2,000 | 1.00 × |\n"
        "| commit at 200/s beside it p50, µs | 500 | – |  |\n"
        "| commit at 200/s beside it p99, µs | 1,100 | – |  |\n"
        "| commit at 200/s beside it p99.9, µs | 2,000 | – |  |\n"
        "| 100 members join, ms | 10 | 25 | 2.50 × |\n"
        "| 100 members join, CPU s | 0.01 | 0.03 | 3.00 × |\n"
    )


def test_kafkas_classes_are_compared_by_processor_time() -> None:
    lines = [
        {"bench": "shard.commit", "params": {"partitions": 1, "encode_records": True}, "cpu_us_per_op": 2.0},
        {"bench": "shard.commit", "params": {"partitions": 1, "encode_records": False}, "cpu_us_per_op": 1.6},
        {"bench": "timer.add", "params": {"tasks": 5}, "cpu_us_per_op": 0.1},
    ]
    rows = {"test_offsets.py::test_handle_commit[1]": 3.2e-6, "test_offsets.py::test_fetch[10]": 5e-6}
    assert java_table(lines, rows) == (
        "| CPU µs an operation | kcore | Kafka's classes | kcore takes |\n"
        "|---|---|---|---|\n"
        "| timer, add | – | 0.1 |  |\n"
        "| offset commit, 1 partition | 3.2 | 1.6 | 2.00 × |\n"
        "| offset fetch, 10 partitions, unchanged | 5 | – |  |\n"
    )


def test_the_median_of_no_values_is_none() -> None:
    assert median_of([], Figure("storm", "stable_ms")) is None
    assert median_of([{"failed": "x"}, {"heartbeat_us": []}], Figure("p50", "heartbeat_us", percentile=0)) is None


def test_every_pair_names_a_row_that_exists() -> None:
    """Each pair compares a stored result of Kafka with a benchmark of kcore. Both must exist."""
    stored = [json.loads(line) for line in (compare.JAVA / "results.json").read_text().splitlines()]
    assert [pair.name for pair in PAIRS if compare.java_line(stored, pair) is None] == []
    files = sorted({f"bench/{pair.test.partition('::')[0]}" for pair in PAIRS})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files]
    listed = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())
    assert [pair.test for pair in PAIRS if f"bench/{pair.test}" not in listed] == []
    names = [figure.name for case in CASES for figure in case.figures]
    assert len(set(names)) == len(names)
    assert len({case.arguments for case in CASES}) == len(CASES)
