"""Kills a server under load with SIGKILL. Acknowledged writes survive, refused writes do not exist, and no write is
partial.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kcore.client import Connection
from kcore.inspect import Selection, folder_events
from kcore.log import verify_folder
from kcore.testing import ServerProcess
from tests.crash.workers import Administrator, Committer, Member, Producer, Worker
from tests.kit import QUICK, make_topic, wait_until

SETTINGS = {**QUICK, "offsets.topic.num.partitions": "8", "auto.create.topics.enable": "false"}


def crew(rng: random.Random) -> list[Worker]:
    """Makes clients of every kind, each with its own random number generator."""

    def dice() -> random.Random:
        return random.Random(rng.randrange(1 << 32))

    return [
        Committer("commits-1", dice()),
        Committer("commits-2", dice()),
        Member("members-1", dice()),
        Member("members-2", dice()),
        Producer("plain", dice(), idempotent=False),
        Producer("idempotent", dice(), idempotent=True),
        Administrator("admin", dice()),
    ]


def start(server: ServerProcess, workers: list[Worker], responses: int) -> None:
    """Starts the load. Waits for one response to each worker, and then for `responses` further responses in total."""
    before = [worker.done for worker in workers]
    for worker in workers:
        worker.start(server.bootstrap)
    wait_until(
        lambda: all(worker.done > done or worker.failure for worker, done in zip(workers, before, strict=True)),
        "each worker has a response",
    )
    until = sum(worker.done for worker in workers) + responses
    wait_until(
        lambda: sum(worker.done for worker in workers) >= until or any(worker.failure for worker in workers),
        f"{responses} more responses",
    )


def check(server: ServerProcess, workers: list[Worker]) -> None:
    with Connection.to(server.bootstrap) as connection:
        for worker in workers:
            worker.check(connection)


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_acknowledged_writes_survive_kills(tmp_path: Path, rounds: int, seed: int) -> None:
    """Kills servers on one folder repeatedly. The durability setting differs between rounds, and a kill loses no
    acknowledged write with any setting.
    """
    rng = random.Random(seed)
    workers = crew(rng)
    folder = tmp_path / "data"
    for number in range(rounds + 1):
        durability = "fsync" if number % 2 == 0 else "os"
        server = ServerProcess(folder, {**SETTINGS, "kcore.durability": durability}, stderr=tmp_path / "server.log")
        with server:
            if number == 0:
                with Connection.to(server.bootstrap) as connection:
                    make_topic(connection, "offsets", 8)
                    for worker in workers:
                        worker.prepare(connection)
            check(server, workers)
            if number == rounds:
                break
            start(server, workers, rng.randrange(150))  # counts responses, not time
            server.kill()
            for worker in workers:
                worker.join()
    assert verify_folder(folder, deep=True) == []
    assert sum(1 for _ in folder_events(folder, Selection(topics=("idempotent",)))) == len(workers[5].log)  # type: ignore[attr-defined]
    log = (tmp_path / "server.log").read_text()
    assert "Traceback" not in log, log[-4_000:]
    print({worker.name: worker.done for worker in workers})


@pytest.mark.crash
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_sigterm_under_load_is_a_clean_end(durability: str, tmp_path: Path, seed: int) -> None:
    """The exit status is 0, the log reports no failure, and every acknowledged write exists."""
    workers = crew(random.Random(seed))
    settings = {**SETTINGS, "kcore.durability": durability}
    server = ServerProcess(tmp_path / "data", settings, stderr=tmp_path / "server.log")
    with server:
        with Connection.to(server.bootstrap) as connection:
            make_topic(connection, "offsets", 8)
            for worker in workers:
                worker.prepare(connection)
        start(server, workers, 100)
        assert server.stop() == 0
        for worker in workers:
            worker.join()
    assert (tmp_path / "server.log").read_text() == ""
    with ServerProcess(tmp_path / "data", settings, stderr=tmp_path / "server.log") as server:
        check(server, workers)
