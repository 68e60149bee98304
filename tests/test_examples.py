"""The examples run and print the expected output."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from kcore.testing import ServerProcess

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"

EXPECTED = {
    "embed_sync": ["workers is at 42 of lines-0"],
    "sharded_service": [
        "64 shards are shared by 10 workers, 6 to 7 each",
        "worker-3 freezes: its shards move to other workers",
        "worker-3 wakes up: the store refuses its late writes",
        "worker-3 is back in the group and owns shards in a newer epoch",
        "every shard was written",
        "the empty group keeps its epochs",
    ],
    "embed_async": ["offset 0: first", "offset 1: second"],
    "manual_clock": [
        "generation 1: alice leads, both are members",
        "after  21 s alice gets NONE",
        "after  36 s alice gets NONE",
        "after  51 s alice gets REBALANCE_IN_PROGRESS",
        "after  66 s alice gets REBALANCE_IN_PROGRESS",
        "bob gets UNKNOWN_MEMBER_ID",
    ],
    "etl_to_sqlite": [
        "the first step failed before the commit: the transaction aborts",
        "the second step failed before the commit: SQLite rolls back",
        "200 squares are stored, each once: True",
    ],
    "lag_monitor": [
        "GROUP                TYPE      STATE                     LAG  WORST                CAUGHT UP IN",
        "billing              classic   Empty                      60  orders-0             -",
        "shipping             classic   Empty                       0  -                    caught up",
        "billing: lag 60, then 30",
        "shipping: lag 0, then 30",
    ],
    "work_queue": [
        "11 jobs are done",
        "the killed worker's job: done in delivery 2",
        "the slow job: done in delivery 1, its lock was renewed 5 times",
        "the failing job: archived after 3 deliveries",
    ],
    "work_distribution": [
        "ann: job-0 job-3 job-6 job-9",
        "ben: job-1 job-4 job-7",
        "cat: job-2 job-5 job-8",
        "cat leaves",
        "ann: job-0 job-2 job-4 job-6 job-8",
        "ben: job-1 job-3 job-5 job-7 job-9",
    ],
    "stream_tasks": [
        "ann starts; copies need a second worker",
        "  ann runs 0=10 1=10 2=10 3=10; copies: none",
        "ben restores two tasks; each has copies of the other's",
        "  ann runs 0=10 1=10; copies: 2=10 3=10",
        "  ben runs 2=10 3=10; copies: 0=10 1=10, restored [2, 3]",
        "ben leaves; ann has the counts",
        "  ann runs 0=15 1=15 2=17 3=17; copies: none",
        "cat joins, and ann fails for a whole session timeout; cat has the counts of ann's tasks",
        "  cat runs 0=15 1=15 2=17 3=17; copies: none, restored [2, 3]",
    ],
}


def run(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=EXAMPLES.parent,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_prints_the_expected_output(name: str) -> None:
    assert run(str(EXAMPLES / f"{name}.py")) == EXPECTED[name]


def test_the_store_of_the_sharded_service_refuses_other_members_of_an_epoch() -> None:
    namespace = runpy.run_path(str(EXAMPLES / "sharded_service.py"))
    store = namespace["Store"]()
    writes = [(5, "ann"), (5, "ben"), (4, "ann"), (5, "ann"), (6, "ben"), (5, "ann"), (6, "ann"), (6, "ben")]
    assert [store.write(0, fence[1], fence) for fence in writes] == [
        True,
        False,  # the same epoch of another member
        False,  # an older epoch of the same member
        True,
        True,
        False,
        False,
        True,
    ]
    assert (store.fences, store.owners, store.counts) == ({0: (6, "ben")}, {0: "ben"}, {0: 4})


@pytest.mark.long
def test_the_work_queue_of_a_server_prints_the_same() -> None:
    settings = {
        "group.share.record.lock.duration.ms": "1000",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.assignment.interval.ms": "0",
    }
    with ServerProcess(None, settings) as server:
        assert run(str(EXAMPLES / "work_queue.py"), "--connect", server.bootstrap) == EXPECTED["work_queue"]


def test_the_sync_example_reads_its_folder_again(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(str(EXAMPLES / "embed_sync.py"), str(tmp_path / "data")) == EXPECTED["embed_sync"]


def test_the_plugin_of_the_example_gives_each_test_a_server() -> None:
    assert "2 passed" in run("-m", "pytest", "-q", str(EXAMPLES / "pytest_plugin.py"))[-1]


def test_every_example_is_tested() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    assert [path.name for path in EXAMPLES.glob("*.py") if path.stem not in tests] == []


def test_the_index_lists_every_example() -> None:
    listed = set(re.findall(r"\]\((\w+)(?:\.py)?\)", (EXAMPLES / "README.md").read_text()))
    names = subprocess.run(["git", "ls-files", "examples"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {name.split("/")[1] for name in names.split()} - {"README.md"}
    assert listed == {name.removesuffix(".py") for name in found}


def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    first, second, queue, testing = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

    def output(block: str) -> str:
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    for _ in range(2):  # the second run uses the folder of the first
        committed = "OffsetAndMetadata(offset=42, metadata='', leader_epoch=None)"
        assert output(first) == f"{{TopicPartition(topic='jobs', partition=0): {committed}}}\n"
        assigned, record, revoked = output(f"import kcore\n{second}").splitlines()[-3:]
        assert assigned.startswith("Assigned(partitions=(TopicPartition(topic='jobs', partition=0)")
        assert record.endswith("b'a key' b'a record'")
        assert revoked.startswith("Revoked(partitions=(TopicPartition(topic='jobs', partition=0)")
    assert output(f"import kcore\n{queue}") == "b'a record'\n"  # the first job: the second block appended it
    assert "@pytest.mark.kcore" in testing
