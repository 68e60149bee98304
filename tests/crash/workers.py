"""Clients that load a server until it is killed. Each worker knows which of its writes were acknowledged.

The method `work` sends one request. If the connection ends before the response, the request is *uncertain*: it took
effect either completely or not at all. `check` reads a restarted server, fails if an acknowledged write is missing, and
resolves uncertain requests.
"""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod

from kcore.client import Connection, ConnectionClosedError
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.messages.metadata import MetadataRequest
from tests.kit import (
    COMMIT_VERSION,
    PRODUCE_VERSION,
    batch,
    commit,
    committed,
    create,
    heartbeat,
    join,
    produce,
    producer_id,
    read_all,
    sync,
)

MEMBER_ID_REQUIRED = 79
UNKNOWN_MEMBER_ID = 25
REFUSED = 1 << 40  # offsets from here on were always refused


class Worker(ABC):
    """One client.

    Attributes:
        name: its name, which is also that of its group or topic.
        done: the total number of responses.
    """

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.done = 0
        self.failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._stop = False

    def start(self, bootstrap: str) -> None:
        """Works in its own thread until the connection ends."""
        self._stop = False
        self._thread = threading.Thread(target=self._run, args=(bootstrap,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for the end of the thread, and raises the thread's error."""
        assert self._thread is not None
        self._stop = True
        self._thread.join(30)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        if self.failure is not None:
            raise self.failure

    def _run(self, bootstrap: str) -> None:
        try:
            with Connection.to(bootstrap, client_id=self.name) as connection:
                while not self._stop:
                    self.work(connection)
                    self.done += 1
        except ConnectionClosedError:
            pass
        except BaseException as error:
            self.failure = error

    def prepare(self, connection: Connection) -> None:  # noqa: B027  # only some workers need it
        """Creates the objects of the worker before the first round."""

    @abstractmethod
    def work(self, connection: Connection) -> None:
        """Sends one request."""

    @abstractmethod
    def check(self, connection: Connection) -> None:
        """Checks that a restarted server has every acknowledged write of the worker and no refused one."""


class Committer(Worker):
    """Commits increasing offsets, and some offsets that are refused."""

    def __init__(self, name: str, rng: random.Random) -> None:
        super().__init__(name, rng)
        self.n = 0
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.uncertain: dict[tuple[str, int], int] = {}

    def work(self, connection: Connection) -> None:
        self.n += 1
        if self.n % 7 == 0:
            refused = commit(self.name, {("offsets", 0): REFUSED + self.n}, metadata="x" * 5_000)
            (topic,) = connection.send(refused, COMMIT_VERSION).topics
            assert [part.error_code for part in topic.partitions] == [12]
            return
        partitions = self.rng.sample(range(8), self.rng.randint(1, 8))
        self.uncertain = {("offsets", partition): self.n for partition in partitions}
        (topic,) = connection.send(commit(self.name, self.uncertain), COMMIT_VERSION).topics
        assert [part.error_code for part in topic.partitions] == [0] * len(partitions)
        self.acknowledged.update(self.uncertain)
        self.uncertain = {}

    def check(self, connection: Connection) -> None:
        found = committed(connection, self.name)
        whole = {**self.acknowledged, **self.uncertain}
        assert found in (self.acknowledged, whole), f"{self.name}: {found}, promised {self.acknowledged}"
        self.acknowledged, self.uncertain = found, {}


class Member(Worker):
    """Repeatedly joins, gets an assignment, and sends heartbeats.

    The rebalance timeout is long, because it is also the time that a member has for its SyncGroup on a busy machine. A
    join waits for this timeout only if a kill has left an unknown member in the group.
    """

    def __init__(self, name: str, rng: random.Random) -> None:
        super().__init__(name, rng)
        self.member = ""
        self.generation = 0
        self.stable = False
        self.beats = 0

    def work(self, connection: Connection) -> None:
        if self.stable and self.beats:
            self.beats -= 1
            response = connection.send(heartbeat(self.name, self.member, self.generation))
            assert response.error_code == 0, response
            return
        self.stable = False
        joined = connection.send(join(self.name, self.member, session_ms=20_000, rebalance_ms=5_000))
        if joined.error_code in (MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID):
            self.member = joined.member_id if joined.error_code == MEMBER_ID_REQUIRED else ""
            return
        assert joined.error_code == 0, joined
        assert joined.generation_id > self.generation, f"{self.name}: generation {joined.generation_id} came twice"
        assigned = b"%d" % joined.generation_id
        synced = connection.send(sync(self.name, self.member, joined.generation_id, {self.member: assigned}))
        assert (synced.error_code, synced.assignment) == (0, assigned), synced
        self.generation = joined.generation_id
        self.stable = True
        self.beats = self.rng.randint(0, 5)

    def check(self, connection: Connection) -> None:
        if self.stable:
            response = connection.send(heartbeat(self.name, self.member, self.generation))
            assert response.error_code == 0, f"{self.name} {self.member} at {self.generation}: {response}"
            synced = connection.send(sync(self.name, self.member, self.generation))
            assert (synced.error_code, synced.assignment) == (0, b"%d" % self.generation), synced


class Producer(Worker):
    """Appends batches to its own topic with a producer id, so that a repeated batch is stored once."""

    def __init__(self, name: str, rng: random.Random, *, idempotent: bool) -> None:
        super().__init__(name, rng)
        self.idempotent = idempotent
        self.ids = (-1, -1)
        self.n = 0
        self.sequence = 0
        self.log: list[tuple[int, bytes | None]] = []
        self.uncertain: list[bytes] = []
        self.last: tuple[bytes, int] | None = None

    def prepare(self, connection: Connection) -> None:
        connection.send(create(self.name))
        if self.idempotent:
            given = connection.send(producer_id())
            self.ids = (given.producer_id, given.producer_epoch)

    def _batch(self, values: list[bytes]) -> bytes:
        sequence = self.sequence if self.idempotent else -1
        return batch(values, producer_id=self.ids[0], epoch=self.ids[1], sequence=sequence)

    def work(self, connection: Connection) -> None:
        self.n += 1
        if self.n % 9 == 0:
            damaged = bytearray(self._batch([b"damaged"]))
            damaged[-2] ^= 1
            assert self._send(connection, bytes(damaged)).error_code == 2
            return
        self.uncertain = [b"%s-%d-%d" % (self.name.encode(), self.n, i) for i in range(self.rng.randint(1, 6))]
        self._settle(connection, self._batch(self.uncertain))

    def _send(self, connection: Connection, records: bytes):  # type: ignore[no-untyped-def]
        (response,) = connection.send(produce(self.name, records), PRODUCE_VERSION).responses[0].partition_responses
        return response

    def _settle(self, connection: Connection, records: bytes) -> None:
        response = self._send(connection, records)
        assert response.error_code == 0, response
        self.log += list(enumerate(self.uncertain, response.base_offset))
        self.sequence += len(self.uncertain)
        self.last = (records, response.base_offset)
        self.uncertain = []

    def check(self, connection: Connection) -> None:
        found = read_all(connection, self.name)
        whole = self.log + list(enumerate(self.uncertain, len(self.log)))
        assert found in (self.log, whole), f"{self.name}: {found[-10:]}, promised {self.log[-10:]}, {self.uncertain}"
        if not self.idempotent:
            self.log, self.uncertain = found, []
            return
        if self.uncertain:  # a repeated batch must be stored once
            self._settle(connection, self._batch(self.uncertain))
        if self.last is not None:
            again = self._send(connection, self.last[0])
            assert (again.error_code, again.base_offset) == (0, self.last[1]), again
        assert read_all(connection, self.name) == whole == self.log


class Administrator(Worker):
    """Creates and deletes topics."""

    def __init__(self, name: str, rng: random.Random) -> None:
        super().__init__(name, rng)
        self.n = 0
        self.topics: set[str] = set()
        self.uncertain: set[str] = set()

    def work(self, connection: Connection) -> None:
        self.n += 1
        if self.topics and self.rng.random() < 0.2:
            taken = self.rng.choice(sorted(self.topics))
            assert connection.send(create(taken)).topics[0].error_code == 36
        elif len(self.topics) > 5 and self.rng.random() < 0.5:
            gone = self.rng.choice(sorted(self.topics))
            self.topics.discard(gone)
            self.uncertain = {gone}
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=gone)], timeout_ms=30_000)
            assert connection.send(request).responses[0].error_code == 0
            self.uncertain = set()
        else:
            name = f"{self.name}-{self.n}"
            self.uncertain = {name}
            assert connection.send(create(name, partitions=self.rng.randint(1, 3))).topics[0].error_code == 0
            self.topics.add(name)
            self.uncertain = set()

    def check(self, connection: Connection) -> None:
        names = {topic.name for topic in connection.send(MetadataRequest(topics=None)).topics}
        found = {name for name in names if name.startswith(self.name)}
        whole = self.topics | self.uncertain
        assert found in (self.topics, whole), f"{self.name}: {found ^ self.topics}, uncertain {self.uncertain}"
        self.topics, self.uncertain = found, set()
