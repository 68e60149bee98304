"""Partitions move between nodes that write continuously: a former leader never stores a late round."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator

import pytest

from kcore.cluster.postgresql import PostgresClusterStore
from kcore.cluster.store import METADATA_NUMBER
from kcore.log.errors import FencedWriteError
from kcore.log.interface import PartitionKey
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from tests.cluster.conftest import TTL_MS, description
from tests.cluster.test_shared_engine import become_controller, create, record
from tests.kit import wait_until
from tests.log.batches import batch, key
from tests.postgresql.shared import PostgresShared

PARTITIONS = 6
MOVES = 80


@pytest.fixture
def shared(reused_url: str) -> Iterator[PostgresShared]:
    store = PostgresShared(reused_url)
    yield store
    store.close()


class Writer:
    """A node that regularly looks up which partitions it leads, adopts them, and appends to all of them."""

    def __init__(self, shared: PostgresShared, node_id: int, stopped: threading.Event) -> None:
        self.node_id = node_id
        self.store: PostgresClusterStore = shared.open()
        self.store.register(node_id, description(node_id), TTL_MS)
        self.engine = SharedLogEngine(self.store.storage())
        self.acknowledged: list[tuple[PartitionKey, int, int]] = []
        self.adopted: list[tuple[PartitionKey, int, int]] = []
        self.fenced = 0
        self.unexpected = False
        self.error: BaseException | None = None
        self._stopped = stopped
        self._owned: dict[PartitionKey, int] = {}
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._refresh()
                for _ in range(5):
                    if self._owned and not self._write():
                        break
        except BaseException as error:
            self.error = error

    def _refresh(self) -> None:
        for row in self.store.leaders():
            if row.leader == self.node_id and self._owned.get(row.key, -1) < row.leader_epoch:
                self.engine.release(row.key)
                self._owned.pop(row.key, None)
                try:
                    [log] = self.engine.adopt([Leadership(row.key, row.leader_epoch)])
                except FencedWriteError:
                    continue  # moved on in between
                self._owned[row.key] = row.leader_epoch
                self.adopted.append((row.key, row.leader_epoch, log.end_offset))

    def _write(self) -> bool:
        chosen = random.Random(len(self.acknowledged)).sample(sorted(self._owned), min(3, len(self._owned)))
        placed = []
        for each in chosen:
            epoch = self._owned[each]
            placed.append((each, self.engine.open(each).append(batch(fill=self.node_id), epoch), epoch))
        try:
            self.engine.commit()
        except FencedWriteError as error:
            self.fenced += 1
            self.unexpected |= error.node or not set(error.partitions) <= set(chosen)
            for each in error.partitions:
                self.engine.release(each)
                self._owned.pop(each, None)
            return False
        self.acknowledged += placed
        return True


def test_no_round_of_a_former_leader_is_stored_late(shared: PostgresShared) -> None:
    store, lease, controller = shared.node(9)
    become_controller(store, lease, controller)
    stopped = threading.Event()
    writers = [Writer(shared, 1, stopped), Writer(shared, 2, stopped)]
    leaders = {key(number): [1 + number % 2, 0] for number in range(PARTITIONS)}
    create(controller, {each.partition: leader for each, (leader, _) in leaders.items()})
    for writer in writers:
        writer.thread.start()
    rng = random.Random(7)
    for move in range(MOVES):
        wait_until(lambda move=move: sum(len(one.acknowledged) for one in writers) > 3 * move, "rounds")
        record(controller)
        for each in rng.sample(sorted(leaders), 2):
            leader, epoch = leaders[each]
            leaders[each] = [3 - leader, epoch + 1]
            controller.move(each, 3 - leader, epoch + 1, epoch)
        controller.commit()
    stopped.set()
    for writer in writers:
        writer.thread.join()
        assert writer.error is None, writer.error
        assert not writer.unexpected
    check(shared, writers)


def check(shared: PostgresShared, writers: list[Writer]) -> None:
    numbers = {row.number: row.key for row in shared.open().leaders() if row.number != METADATA_NUMBER}
    stored: dict[PartitionKey, list[tuple[int, int]]] = {each: [] for each in numbers.values()}
    for number, base, last, data in shared.execute(
        "SELECT number, base_offset, last_offset, batch FROM batches WHERE number > 0 ORDER BY number, base_offset"
    ):
        assert last == base
        stored[numbers[number]].append((base, struct.unpack_from(">i", data, 12)[0]))
    for rows in stored.values():
        assert [base for base, _ in rows] == list(range(len(rows))), "gap"
        assert [epoch for _, epoch in rows] == sorted(epoch for _, epoch in rows), "an epoch decreases"
    for writer in writers:
        for each, base, epoch in writer.acknowledged:
            assert stored[each][base] == (base, epoch)
        for each, epoch, end in writer.adopted:
            late = [base for base, other in stored[each] if other < epoch and base >= end]
            assert not late, f"{each}: batches {late} of earlier leaders were stored after epoch {epoch} began"
    assert sum(writer.fenced for writer in writers) > 0
