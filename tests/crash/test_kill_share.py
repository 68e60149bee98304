"""Kills a server with SIGKILL at random moments while share consumers run. The server never delivers accepted records
again, but delivers all other records again.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kcore.client import Connection
from kcore.log import verify_folder
from kcore.testing import ServerProcess
from tests.crash.share_workers import Ledger, ShareMember, drain
from tests.kit import wait_until

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "group.share.delivery.count.limit": "10",
}
"""Settings of the server.

The delivery count limit has its maximum, so that the server archives no record because of the kills.
"""


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_acknowledgements_survive_every_kill(tmp_path: Path, rounds: int, seed: int) -> None:
    """Four members of one share group run while the server is killed repeatedly. Then one member fetches the remaining
    records.
    """
    rng = random.Random(seed)
    ledger = Ledger("jobs")
    members = [ShareMember(f"member-{number}", random.Random(rng.randrange(1 << 32)), ledger) for number in range(4)]
    folder = tmp_path / "data"
    for number in range(rounds + 1):
        durability = "fsync" if number % 2 == 0 else "os"
        server = ServerProcess(folder, {**SETTINGS, "kcore.durability": durability}, stderr=tmp_path / "server.log")
        with server:
            with Connection.to(server.bootstrap) as connection:
                if number == 0:
                    ledger.prepare(connection)
                if number == rounds:
                    drain(connection, ledger, rng)
                    break
            before = sum(member.done for member in members)
            for member in members:
                member.start(server.bootstrap)
            until = before + 20 + rng.randrange(150)
            wait_until(
                lambda until=until: (
                    sum(member.done for member in members) >= until  # type: ignore[misc]
                    or any(member.failure for member in members)
                ),
                "the load goes on",
            )
            server.kill()
            for member in members:
                member.join()
    assert ledger.redelivered, "records were released"
    assert len(ledger.done) > 10 * rounds, "records were accepted"
    assert verify_folder(folder, deep=True) == []
    log = (tmp_path / "server.log").read_text()
    assert "Traceback" not in log, log[-4_000:]
    print({"delivered": ledger.delivered, "redelivered": ledger.redelivered, "done": len(ledger.done)})
