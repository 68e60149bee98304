"""Runs the recipes of docs/python-api.md as they are printed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.errors import ProducerFencedError

PAGE = (Path(__file__).parent.parent / "docs" / "python-api.md").read_text()
LIMIT_POLLS = 40
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.consumer.assignment.interval.ms": 0}


def block(heading: str, containing: str, language: str = "python") -> str:
    """Returns the only code block of a section that contains a text."""
    section = PAGE.split(f"\n{heading}\n", 1)[1]
    section = re.split(r"\n#{2,3} ", section, maxsplit=1)[0]
    (code,) = [each for each in re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL) if containing in each]
    return str(code)


class _Killed(BaseException):
    """Raised at the commit of a transaction, in place of killing the process."""


class _Interrupted:
    """A database connection whose first transaction commits; then the program ends."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.execute = database.execute

    def __enter__(self) -> None:
        self._database.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._database.__exit__(*error)
        if self._database.execute("SELECT count(*) FROM invoices").fetchone()[0]:
            raise _Killed


def run(code: str, done: Callable[[], bool], **names: Any) -> None:
    """Runs a recipe with an endless loop until a condition holds."""
    polls = iter(range(LIMIT_POLLS))

    def running() -> bool:
        assert next(polls, None) is not None, "the recipe makes no progress"
        return not done()

    assert code.count("while True:") == 1
    exec(
        code.replace("while True:", "while running():").replace("poll(1.0)", "poll(0.5)"), {"running": running} | names
    )


def test_the_copy_loop_copies_each_record_once() -> None:
    with kcore.open(config=SETTINGS) as node:
        source, target = node.topics.create("in", 2), node.topics.create("out", 2)
        values = [str(number) for number in range(20)]
        source.append_many([(value, value) for value in values])
        group = node.group("copier")
        code = block("## Transactions", "copier-1")
        run(code, lambda: sum(each.offset for each in group.committed().values()) == len(values), node=node)
        source.append("20", key="20")
        run(code, lambda: sum(each.offset for each in group.committed().values()) == len(values) + 1, node=node)
        copied = [record.value for partition in range(2) for record in target.read(partition, 0)]
    assert sorted(int(value or b"") for value in copied) == list(range(21))


def test_the_copy_loop_aborts_the_transaction_of_a_killed_predecessor() -> None:
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("in", 1).append_many(["a", "b"])
        target = node.topics.create("out", 1)
        group = node.group("copier")
        with kcore.connect(node.listen().bootstrap) as predecessor:
            open_transaction = predecessor.transaction("copier-1").__enter__()
            open_transaction.append("out", "lost")
            open_transaction.commit_offsets(group, {("in", 0): 1})
            open_transaction.flush()
            assert group.pending_offsets([("in", 0)]) == {("in", 0)}
            code = block("## Transactions", "copier-1")
            run(code, lambda: [each.offset for each in group.committed().values()] == [2], node=node)
            with pytest.raises(ProducerFencedError):
                open_transaction.__exit__(None, None, None)
        assert [record.value for record in target.read(0, 0)] == [b"a", b"b"]


def test_the_database_recipe_survives_a_crash_between_its_commits() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE invoices (topic, part, pos, text, PRIMARY KEY (topic, part, pos))")
    code = block("### A database and a transaction", "INSERT")
    with kcore.open(config=SETTINGS) as node:
        orders, invoices = node.topics.create("orders", 1), node.topics.create("invoices", 1)
        orders.append_many(["a", "b", "c"])
        group = node.group("invoicer")
        names: dict[str, Any] = {"node": node, "done": lambda: bool(group.lag()) and not any(group.lag().values())}
        with pytest.raises(_Killed):
            run(code, database=_Interrupted(database), invoice=lambda record: f"first {record.value.decode()}", **names)
        assert (group.committed(), invoices.read(0, 0)) == ({}, [])
        run(code, database=database, invoice=lambda record: f"second {record.value.decode()}", **names)
        texts = [(record.value or b"").decode() for record in invoices.read(0, 0)]
    assert texts == ["first a", "first b", "first c"]
    assert [text for (text,) in database.execute("SELECT text FROM invoices ORDER BY pos")] == texts


def test_a_cache_waits_until_its_consumer_has_caught_up() -> None:
    code = block("### Wait until a consumer has caught up", "caught_up")
    with kcore.open(config=SETTINGS) as node:
        prices = node.topics.create("prices", 3)
        prices.append_many([(f"key-{number}", str(number)) for number in range(10)], partition=0)
        with node.transaction("writer") as transaction:
            transaction.append("prices", "2", key="key-2", partition=1)
        with suppress(_Killed), node.transaction("writer") as transaction:
            transaction.append("prices", "aborted", key="key-3", partition=1)
            transaction.flush()
            raise _Killed
        cache: dict[bytes, bytes] = {}
        names: dict[str, Any] = {"node": node, "cache": cache}
        after = "    seen = {each: consumer.position(each) for each in consumer.assignment}"
        exec(code.replace("    ...", after), names)
    assert cache == {f"key-{number}".encode(): str(number).encode() for number in range(10)}
    assert names["seen"] == {("prices", 0): 10, ("prices", 1): 4, ("prices", 2): 0}


def test_the_monitor_counts_partitions_without_a_committed_offset(capsys: pytest.CaptureFixture[str]) -> None:
    code = block("### Lag", "for listing in")
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("jobs", 1).append_many(["a", "b", "c"])
        node.group("committed").commit({("jobs", 0): 1})
        with node.group("member").consume(["jobs"], auto_commit=None) as consumer:
            assert consumer.poll(30)
            exec(code, {"node": node})
    assert capsys.readouterr().out.splitlines() == ["committed classic Empty 2", "member consumer Stable 3"]


def test_the_times_of_commits_are_those_of_their_records() -> None:
    code = block("### Times of commits", "decode_key")
    with kcore.open(config=SETTINGS, clock=kcore.ManualClock(1_000_000)) as node:
        node.topics.create("jobs", 1)
        names: dict[str, Any] = {"node": node}
        for _ in range(2):
            node.group("workers").commit({("jobs", 0): 1})
            node.advance(5_000)
        exec(code, names)
    ((key, when),) = names["times"].items()
    assert (key, when.timestamp()) == (("workers", "jobs", 0), 1_005.0)


def test_the_settings_for_a_faster_failover_are_valid() -> None:
    rows = [line.split("=") for line in block("### Fail over faster", "=", "").splitlines()]
    settings = dict(rows)
    assert len(rows) == len(settings) == 5
    kcore.open(config=settings).close()
    minimums = {name: value for name, value in settings.items() if ".min." in name}
    (call,) = re.findall(r"`(node\.group\(\"workers\"\)\.set_config\(.*?\))`", PAGE.replace("\n", " "))[:1]
    with kcore.open(config=minimums) as node:
        exec(call, {"node": node})
        assert node.group("workers").config(own=True) == {
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "1000",
        }


class _WorkerKilledError(BaseException):
    """Raised in place of killing a worker's process while the worker handles a job."""


def test_the_queue_recipe_keeps_each_job_that_fails_or_kills_its_worker() -> None:
    """The loop of the recipe is endless. In this test, it ends when all jobs are done."""
    code = block("### Retries and dead letters", "handle(job)")
    step = "while running():\n        job = queue.get(1.0)\n        if job is None:\n            continue"
    assert code.count("for job in queue:") == 1
    code = code.replace("for job in queue:", step)
    handled: list[tuple[str, int]] = []

    def handle(job: kcore.Job) -> None:
        value = (job.value or b"").decode()
        handled.append((value, job.delivery_count))
        if value == "fails":
            raise ValueError(value)
        if value == "kills":
            raise _WorkerKilledError

    with kcore.open(config={"group.share.assignment.interval.ms": 0}) as node:
        jobs, dead = node.topics.create("jobs", 1), node.topics.create("dead-jobs", 1)
        group = node.group("workers")
        group.set_config({"share.auto.offset.reset": "earliest"})
        jobs.append_many([("key", "kills"), "fails", "works"])
        polls = iter(range(LIMIT_POLLS))

        def running() -> bool:
            assert next(polls, None) is not None, "the recipe makes no progress"
            lag = group.lag()
            return not lag or any(lag.values())

        names: dict[str, Any] = {"node": node, "handle": handle, "running": running}
        for _ in range(3):
            with pytest.raises(_WorkerKilledError):
                exec(code, names)
        exec(code, names)
        letters = dead.read(0, 0)
    assert [each for each in handled if each[0] == "kills"] == [("kills", number) for number in (1, 2, 3)]
    assert [number for value, number in handled if value == "fails"] == [1, 2, 3]
    assert ("works", 1) in handled
    assert sorted((each.value, each.key, each.headers) for each in letters) == [
        (b"fails", None, (("source", b"jobs-0-1"),)),
        (b"kills", b"key", (("source", b"jobs-0-0"),)),
    ]


def test_the_settings_for_a_faster_failover_of_queues_are_valid() -> None:
    rows = [line.split("=") for line in block("### Killed workers", "=", "").splitlines()]
    assert len(dict(rows)) == 4
    kcore.open(config=dict(rows)).close()
