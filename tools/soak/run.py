"""One run: a server, its clients, faults until the time is over, and the final checks."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.soak.faults import Faults, Server
from tools.soak.ledger import Ledger
from tools.soak.members import WORK, WORK_PARTITIONS, ClassicMember, ConsumerMember, Group
from tools.soak.reader import Reader
from tools.soak.wire import Client, LostError, RetryError, Worker
from tools.soak.writers import (
    PLAIN,
    TRANSACTION_PARTITIONS,
    TRANSACTIONAL,
    IdempotentWriter,
    OffsetWriter,
    TransactionalWriter,
)

PROGRESS_S = 45.0  # time limit of a client's next successful step while the server is up
DRAIN_S = 90.0
CLIENTS = {"offsets": 2, "idempotent": 2, "transactions v1": 2, "transactions v2": 1, "classic": 2, "consumer": 2}
"""The number of clients of each kind. The reader is the twelfth client."""


class _Administrator(Client):
    """The client that creates the topics and sends the final requests."""

    def prepare(self) -> str:
        """Creates the topics. Returns the id of the topic that groups share."""
        topics = {PLAIN: 4, TRANSACTIONAL: TRANSACTION_PARTITIONS, WORK: WORK_PARTITIONS}
        body = {
            "topics": [
                {"name": name, "num_partitions": partitions, "replication_factor": 1}
                for name, partitions in topics.items()
            ],
            "timeout_ms": 30_000,
        }
        for response in self.call("CreateTopics", 7, body)["topics"]:
            self.checked("CreateTopics", response["error_code"])
            if response["name"] == WORK:
                topic_id = str(response["topic_id"])
        self.retry(self.find_transaction_coordinator)
        return topic_id

    def find_transaction_coordinator(self) -> None:
        """Looks up a transaction coordinator. The first look-up makes the server create `__transaction_state`."""
        (response,) = self.call("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": ["any"]})["coordinators"]
        self.checked("FindCoordinator", response["error_code"])

    def retry(self, request: Callable[[], Any]) -> Any:
        """Repeats a request for up to `PROGRESS_S`."""
        until = time.monotonic() + PROGRESS_S
        while True:
            try:
                return request()
            except (LostError, RetryError) as error:
                if time.monotonic() > until:
                    raise TimeoutError(f"no response within {PROGRESS_S:.0f} s: {error}") from error
                time.sleep(0.05)


def soak(folder: Path, seconds: float, seed: int, kinds: list[str]) -> Ledger:
    """Runs clients and faults for `seconds`, then checks everything. Returns the ledger."""
    ledger = Ledger()
    rng = random.Random(seed)
    server = Server(folder, ledger, uvloop="memory" not in kinds)
    if not server.start():
        return ledger
    try:
        admin = _Administrator("administrator", server.port, ledger)
        clients = _clients(server.port, ledger, rng, admin.prepare())
        admin.disconnect()
        for client in clients:
            client.thread.start()
        _faults(server, ledger, rng, seconds, kinds)
        ledger.over.set()
        for client in clients:
            client.thread.join(PROGRESS_S)
            if client.thread.is_alive():
                ledger.violation("unanswered", f"{client.name} does not end")
        if server.alive:
            server.end(signal.SIGTERM)
        server.verify()
        if server.start():
            _last_checks(server, ledger, clients)
    finally:
        ledger.over.set()
        if server.alive:
            server.end(signal.SIGKILL)
    return ledger


def _clients(port: int, ledger: Ledger, rng: random.Random, topic_id: str) -> list[Worker]:
    def own() -> random.Random:
        return random.Random(rng.getrandbits(64))

    def names(kind: str) -> list[str]:
        return [f"{kind} {number}" for number in range(CLIENTS[kind])]

    plain = {
        index: IdempotentWriter(name, port, ledger, own(), index) for index, name in enumerate(names("idempotent"))
    }
    transactional = {
        name: TransactionalWriter(name, port, ledger, own(), version)
        for version in (1, 2)
        for name in names(f"transactions v{version}")
    }
    classic, consumer = Group("classic group", ledger), Group("consumer group", ledger)
    return [
        *(OffsetWriter(name, port, ledger, own()) for name in names("offsets")),
        *plain.values(),
        *transactional.values(),
        *(ClassicMember(name, port, ledger, own(), classic) for name in names("classic")),
        *(ConsumerMember(name, port, ledger, own(), consumer, topic_id) for name in names("consumer")),
        Reader("reader", port, ledger, plain, transactional),
    ]


def _faults(server: Server, ledger: Ledger, rng: random.Random, seconds: float, kinds: list[str]) -> None:
    """Injects faults until the time is over or a client makes no progress."""
    until = time.monotonic() + seconds
    faults = Faults(server, ledger, rng, kinds)
    if not _all_make_progress(ledger):
        return
    while (left_s := until - time.monotonic()) > 0:
        time.sleep(min(rng.uniform(0.5, 4.0), left_s))
        faults.once()
        if not server.alive:
            ledger.violation("ended", f"the server ended by itself: see {server.log}")
            server.start()
        ledger.count("rounds")
        if rng.random() < 0.7 and not _all_make_progress(ledger):
            return
        if sum(ledger.kinds.values()) > 50:
            return
    _all_make_progress(ledger)


def _all_make_progress(ledger: Ledger) -> bool:
    """Waits until every client has taken a step. If a client makes no step for `PROGRESS_S`, records a violation and
    returns False.
    """
    since = time.monotonic()
    while waiting := ledger.waiting_since(since):
        if time.monotonic() - since > PROGRESS_S:
            ledger.violation(
                "stalled", f"no success for {PROGRESS_S:.0f} s though the server runs: {', '.join(waiting)}"
            )
            return False
        time.sleep(0.05)
    return True


def _last_checks(server: Server, ledger: Ledger, clients: list[Worker]) -> None:
    """Ends open transactions, reads all records, and compares them with the acknowledged writes."""
    ledger.over.clear()
    admin = _Administrator("administrator", server.port, ledger)
    try:
        for writer in [client for client in clients if isinstance(client, TransactionalWriter)]:
            last = len(writer.transactions) - 1
            admin.retry(writer.initialise)
            if last >= 0 and writer.transactions[last].outcome == "open":
                writer.transactions[last].outcome = "aborted"
            if last >= 0 and writer.transactions[last].outcome == "unknown":
                admin.retry(lambda writer=writer, last=last: writer.resolve(last, writer.transactions[last]))
            offset = admin.retry(lambda writer=writer: writer.committed_offsets(writer.group, PLAIN, [0], True))[0]
            if offset != writer.expected_offset():
                ledger.violation(
                    "transactional offset", f"{writer.group}: {offset}, the last commit was {writer.expected_offset()}"
                )
        for committer in [client for client in clients if isinstance(client, OffsetWriter)]:
            admin.retry(committer.check)
        for group in {client.group for client in clients if isinstance(client, ClassicMember | ConsumerMember)}:
            offsets = admin.retry(
                lambda group=group: admin.committed_offsets(group.name, WORK, list(range(WORK_PARTITIONS)))
            )
            for partition, offset in offsets.items():
                group.check_offset(partition, offset, group.acknowledged[partition])
    except TimeoutError as error:
        ledger.violation("unanswered", str(error))
    for reader in [client for client in clients if isinstance(client, Reader)]:
        reader.drain(DRAIN_S)
        reader.check()
