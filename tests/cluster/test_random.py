"""Random faults against a cluster: no acknowledged write is lost, and no partition has two leaders in one epoch."""

from __future__ import annotations

import contextlib
import random

import pytest

from kcore.log.errors import StoreUnavailableError, UnknownOutcomeError
from kcore.protocol.error_codes import RETRIABLE
from kcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.cluster.world import STEP_MS, TIMING, Client, ClusterWorld, NoNodeError, check
from tests.kit import COMMIT_VERSION, PRODUCE_VERSION, batch, commit, produce
from tests.seeds import SEED

GROUPS = [f"group-{number}" for number in range(6)]
PARTITIONS = 6
STEPS = 150


class Attack:
    """Random requests and faults, with a record of the acknowledged writes."""

    def __init__(self, seed: int, world: ClusterWorld | None = None) -> None:
        self.random = random.Random(seed)
        self.world = world or ClusterWorld()
        self.client = Client(self.world)
        self.offsets: dict[str, int] = {}
        self.attempted: dict[str, set[int]] = {group: set() for group in GROUPS}
        self.records: dict[tuple[int, int], bytes] = {}
        self.number = 0
        self.trouble_until_ms = 0
        self.refused = 0
        self.moves = 0

    def run(self) -> None:
        self.world.start()
        self.client.create("t", PARTITIONS)
        actions = [self.commit] * 6 + [self.produce] * 6 + [self.wait] * 4
        actions += [self.kill, self.start, self.pause, self.resume, self.drain, self.cut]
        actions += [self.move] * 3 + [self.lose, self.hand_over]
        for _ in range(STEPS):
            self.random.choice(actions)()
            if self.world.clock.monotonic_ms() > self.trouble_until_ms:
                self.world.store.intercept = None
            self.world.advance(STEP_MS * self.random.randrange(4))
            self.check_leaders()
        self.heal()
        self.verify()

    # ---- requests

    def commit(self) -> None:
        group = self.random.choice(GROUPS)
        self.number += 1
        self.attempted[group].add(self.number)
        try:
            request = commit(group, {("t", 0): self.number})
            response = self.client.coordinator(group).send(request, COMMIT_VERSION)
            code = response.topics[0].partitions[0].error_code
        except (NoNodeError, AttributeError):  # no node, or a parked request of one that cannot commit
            return
        if code == 0:
            self.offsets[group] = self.number
            self.attempted[group] = set()
        else:
            self.refused += 1
            assert code in RETRIABLE, response

    def produce(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        self.number += 1
        value = b"%d" % self.number
        try:
            node = self.client.leader("t", partition)
            response = node.send(produce("t", batch([value]), partition), PRODUCE_VERSION)
            result = response.responses[0].partition_responses[0]
        except (NoNodeError, AttributeError, IndexError):
            return
        if result.error_code == 0:
            assert (partition, result.base_offset) not in self.records, "each offset is assigned once"
            self.records[partition, result.base_offset] = value
        else:
            self.refused += 1
            assert result.error_code in RETRIABLE, response

    def wait(self) -> None:
        self.world.advance(self.random.choice([100, 500, 2_000, 7_000]))

    # ---- faults

    def kill(self) -> None:
        node = self.random.choice(list(self.world.nodes.values()))
        if node.engine is not None and not node.paused and len(self.world.up) > 1:
            self.random.choice([node.kill, node.stop])()

    def start(self) -> None:
        for node in self.world.nodes.values():
            if node.engine is None and not self.world.store.intercept:
                self.restart(node.node_id)

    def restart(self, node_id: int) -> None:
        store = self.world.open_store()
        held = [node for node in store.nodes() if node.node_id == node_id and node.lease.remaining_ms]
        if held:
            self.world.advance(TIMING.ttl_ms)  # a supervisor tries again until the lease has ended
        try:
            self.world.nodes[node_id].start()
        except StoreUnavailableError:
            self.world.nodes[node_id].engine = None  # no controller has prepared the cluster

    def pause(self) -> None:
        node = self.random.choice(self.world.up)
        if len([one for one in self.world.up if not one.paused]) > 1:
            node.paused = True

    def resume(self) -> None:
        for node in self.world.up:
            node.paused = False

    def drain(self) -> None:
        if not self.world.store.intercept:
            self.world.open_store().set_draining(self.random.choice([1, 2, 3]), self.random.random() < 0.5)

    def move(self) -> None:
        """Requests the move of a partition to a random node."""
        topic, partitions = self.random.choice([("t", PARTITIONS), ("__consumer_offsets", 6)])
        entry = ReassignablePartition(
            partition_index=self.random.randrange(partitions), replicas=(self.random.choice([1, 2, 3]),)
        )
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[entry])])
        with contextlib.suppress(NoNodeError):
            self.client.any_node().send(request)
            self.moves += 1

    def lose(self) -> None:
        """Makes the network lose some requests and responses between nodes, or ends that fault."""
        share = self.random.choice([0.0, 0.3, 0.6])
        self.world.network.lose = lambda call: self.random.random() < share

    def hand_over(self) -> None:
        """Makes a node hand over all its partitions and stop, if the handover ends in time."""
        node = self.random.choice(self.world.up)
        if node.engine is None or node.paused or len(self.world.up) < 2:
            return
        engine, ended = node.engine, []
        engine.hand_over(lambda: ended.append(True))
        for _ in range(100):
            if ended:
                break
            self.world.advance(STEP_MS)
            self.check_leaders()
        if node.engine is engine:
            node.stop()

    def cut(self) -> None:
        """Lets the store refuse operations of one node or of all nodes for some time. The outcome of a failed write is
        unknown.
        """
        victim = self.random.choice([1, 2, 3, 0])
        self.trouble_until_ms = self.world.clock.monotonic_ms() + self.random.choice([200, 3_000, 9_000])

        def intercept(operation: str, node_id: int, stored: bool) -> None:
            if victim in (0, node_id) and self.random.random() < 0.7:
                if operation == "write":
                    raise UnknownOutcomeError("the connection was lost")
                raise StoreUnavailableError("the store cannot be reached")

        self.world.store.intercept = intercept

    # ---- checks

    def check_leaders(self) -> None:
        rows = {row.key: row for row in self._rows()}
        for node in self.world.up:
            assert node.engine is not None
            for key, (_, epoch) in node.engine.leadership.led.items():
                row = rows.get(key)
                assert row is not None
                assert epoch < row.leader_epoch or (epoch, node.node_id) == (row.leader_epoch, row.leader)

    def _rows(self) -> list[object]:
        intercept, self.world.store.intercept = self.world.store.intercept, None
        rows = self.world.open_store().leaders()
        self.world.store.intercept = intercept
        return list(rows)

    def heal(self) -> None:
        """Ends all faults. Fenced processes start again."""
        self.world.store.intercept = None
        self.world.network.lose = lambda call: False
        self.resume()
        self.world.advance(2_000)
        for node in list(self.world.up):
            assert node.engine is not None
            if node.engine.membership.fenced:
                node.kill()
        for number in (1, 2, 3):
            self.world.open_store().set_draining(number, False)
        for node in self.world.nodes.values():
            if node.engine is None:
                self.restart(node.node_id)
        self.world.advance(3 * TIMING.ttl_ms)

    def verify(self) -> None:
        check(self.world)
        for group, offset in self.offsets.items():
            found = self.client.committed(group)
            assert found == offset or found in self.attempted[group], f"{group}: {found} after {offset}"
        for (partition, offset), value in self.records.items():
            assert self.client.read("t", partition)[offset] == value
        for group in GROUPS:
            self.client.commit(group, 1_000_000)
        for node in self.world.up:
            assert node.engine is not None
            assert node.engine.topics.image.successors == {}, "every planned move has ended"
        self.world.close()


@pytest.mark.seeded
@pytest.mark.parametrize("number", range(4))
def test_random_faults_lose_no_acknowledged_write(number: int) -> None:
    attack = Attack(SEED + number)
    attack.run()
    assert attack.records or attack.offsets, "the attack stored records or offsets, which `verify` has compared"
