"""Kills a server with SIGKILL at random moments while share consumers of four real clients run. A proxy checks their
requests and responses.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kcore.client import Connection
from kcore.log import verify_folder
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.testing import ServerProcess
from tests.crash.share_books import ACCEPT, GAP, REJECT, RELEASE, BookingProxy, Books
from tests.crash.share_clients import Client, commands
from tests.crash.workers import Worker
from tests.kit import PRODUCE_VERSION, batch, make_topic, produce, wait_until

TOPIC = "jobs"
PARTITIONS = 2
BACKLOG = 400
DELIVERY_LIMIT = 10
GROUP_RESOURCE = 32
WAIT_S = 120.0
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "group.share.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}


class Producer(Worker):
    """Appends records unless the consumers fall behind.

    Attributes:
        produced: the offset after the last confirmed append, by partition.
    """

    def __init__(self, rng: random.Random, books: Books) -> None:
        super().__init__("producer", rng)
        self.books = books
        self.produced = dict.fromkeys(range(PARTITIONS), 0)

    def work(self, connection: Connection) -> None:
        """Appends one batch, unless the backlog is long."""
        if self._is_ahead():
            wait_until(lambda: self._stop or not self._is_ahead(), "the consumers keep pace", WAIT_S)
            return
        partition, size = self.rng.randrange(PARTITIONS), self.rng.randint(1, 20)
        response = connection.send(produce(TOPIC, batch([b"job"] * size), partition), PRODUCE_VERSION)
        row = response.responses[0].partition_responses[0]
        if row.error_code == 0:
            self.produced[partition] = max(self.produced[partition], row.base_offset + size)

    def _is_ahead(self) -> bool:
        return sum(self.produced.values()) - len(self.books.done) > BACKLOG

    def check(self, connection: Connection) -> None:
        """Does nothing, because `Books` checks the records."""


def prepare(bootstrap: str) -> None:
    """Creates the topic, and a group of the same name that begins at the first record."""
    with Connection.to(bootstrap) as connection:
        make_topic(connection, TOPIC, PARTITIONS)
        earliest = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        group = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=TOPIC, configs=[earliest])
        response = connection.send(IncrementalAlterConfigsRequest(resources=[group]))
        assert response.responses[0].error_code == 0, response


@pytest.mark.crash
@pytest.mark.timeout(1_800)
@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 20])
def test_acknowledgements_of_real_clients_survive_every_kill(tmp_path: Path, kills: int, seed: int) -> None:
    """Java, librdkafka, kcore and (in the long test) franz-go share a group. Accepted or rejected records never come
    again, all others are delivered, delivery counts never decrease, and no record is lost.

    A round ends with kill -9 once every client has got confirmations in this round. The clients run through all rounds.
    """
    rng = random.Random(seed)
    books = Books()
    producer = Producer(random.Random(rng.randrange(1 << 32)), books)
    with BookingProxy(books) as proxy, (tmp_path / "clients.log").open("w+") as log:
        settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}
        clients: list[Client] = []
        server = ServerProcess(tmp_path / "data", settings, stderr=tmp_path / "server.log")
        try:
            with server:
                prepare(server.bootstrap)
                proxy.target = server.port
                for name, command in commands(proxy.bootstrap, TOPIC, rng, tmp_path, go=kills > 2).items():
                    clients.append(Client(name, command, log))

                def check(condition: bool) -> bool:
                    assert not proxy.failed
                    assert not books.faults, books.faults[:10]
                    assert all(client.alive for client in clients), (tmp_path / "clients.log").read_text()[-4_000:]
                    return condition or producer.failure is not None

                for _ in range(kills):
                    producer.start(server.bootstrap)
                    enough = {client.name: books.final_of(client.name) + rng.randint(1, 60) for client in clients}
                    wait_until(
                        lambda enough=enough: check(  # type: ignore[misc]
                            all(books.final_of(name) >= count for name, count in enough.items())
                        ),
                        f"confirmations to all clients: {enough}",
                        WAIT_S,
                    )
                    server.kill()
                    producer.join()
                    server.start()
                wait_until(lambda: check(not books.missing(producer.produced)), "all records are done", WAIT_S)
                for client in clients:
                    assert client.stop() == 0, f"{client.name}: {(tmp_path / 'clients.log').read_text()[-4_000:]}"
        finally:
            for client in clients:
                client.kill()
    assert not books.faults, books.faults[:10]
    assert not books.missing(producer.produced)
    assert max(books.counts.values()) < DELIVERY_LIMIT, "no record was archived by the limit of deliveries"
    kinds = {kind: sum(books.confirmed[client.name, kind] for client in clients) for kind in (ACCEPT, REJECT, RELEASE)}
    assert all(kinds.values()), kinds
    assert GAP not in books.done.values()
    assert books.redelivered
    assert verify_folder(tmp_path / "data", deep=True) == []
    text = (tmp_path / "server.log").read_text()
    assert "Traceback" not in text, text[-4_000:]
    print(
        {
            "clients": {client.name: (books.delivered[client.name], books.final_of(client.name)) for client in clients},
            "done": len(books.done),
            "uncertain": len(books.uncertain),
            "redelivered": books.redelivered,
            "kinds": kinds,
        }
    )
