"""A sharded service: workers own shards, every write has a fence, and the store refuses the writes of a worker that was
paused.

    python examples/sharded_service.py              ten workers on an embedded node
    python examples/sharded_service.py HOST:PORT    the same against kcore serve, or against Apache Kafka

Sixty-four shards are the partitions of a virtual topic, which has no data. Ten workers share them as members of a
group. A worker writes the state of its shards to a store, with a fence. The fence has two parts: the epoch in which the
worker got the shard, and the worker's member id. The store refuses an epoch that is older than the shard's newest
epoch, and the newest epoch with another member id. One worker freezes for longer than its session: its shards move to
other workers, and when it wakes up, the store refuses its writes.

The epochs must never decrease. A group without members and without committed offsets is deleted, and a new one begins
at epoch 1. So each worker commits an offset that has no other use, and keeps the group for `offsets.retention.minutes`
after the last worker has left. A server that keeps its data in memory forgets the epochs when it ends.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from typing import Any

import kcore
from kcore import Assigned

SHARDS, WORKERS, TOPIC, GROUP = 64, 10, "accounts", "account-workers"
SESSION_S = 6.0
LIMIT_S = 90.0
TOPIC_SETTINGS = {"max.message.bytes": "0"}  # a virtual topic: partitions without records
NODE_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}


Fence = tuple[int, str]
"""Type of a fence: (epoch in which a worker received a shard, member id of the worker)."""


class Store:
    """A database with a fencing check.

    A write needs a newer epoch than the shard's last write, or the same epoch of the same member. The member id is
    necessary because two processes may have the same epoch: a static member (`instance_id`) and the process that
    replaces it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.fences: dict[int, Fence] = {}
        self.counts: Counter[int] = Counter()
        self.owners: dict[int, str] = {}

    def write(self, shard: int, worker: str, fence: Fence) -> bool:
        """Adds one to the shard's count. Returns False if another owner has written in this epoch or a newer one."""
        with self._lock:
            last = self.fences.get(shard, fence)
            if fence != last and fence[0] <= last[0]:
                return False
            self.fences[shard] = fence
            self.owners[shard] = worker
            self.counts[shard] += 1
            return True


class Worker:
    """A worker with an event loop in a separate thread, so that it can freeze alone."""

    def __init__(self, bootstrap: str, name: str, store: Store) -> None:
        self.name = name
        self.store = store
        self.fences: dict[int, Fence] = {}  # owned shard -> the fence with which this worker got it
        self.refused = 0
        self.freeze_s = 0.0
        self.stop = False
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run(bootstrap)), name=name)
        self.thread.start()

    async def _run(self, bootstrap: str) -> None:
        async with kcore.connect_async(bootstrap, client_id=self.name) as node:
            self.member = node.group(GROUP).join(
                TOPIC,
                protocol="classic",
                assignors=["cooperative-sticky"],
                session_timeout=SESSION_S,
                heartbeat_interval=SESSION_S / 6,
                on_assigned=self._assigned,
                on_revoked=self._removed,
            )
            async with self.member:
                while not self.stop:
                    self._write_all()
                    await asyncio.sleep(0.05)

    async def _assigned(self, event: Assigned) -> None:
        fence = event.epoch, self.member.member_id
        for shard in event:
            self.fences[shard.partition] = fence
            self.store.write(shard.partition, self.name, fence)  # before the first read: fences the former owner
        # A commit keeps the group. In a KIP-848 group its retention begins at the commit: commit once a day there.
        await self.member.commit(dict.fromkeys(event, 0), wait=False)

    def _removed(self, event: Any) -> None:
        for shard in event:
            self.fences.pop(shard.partition, None)

    def _write_all(self) -> None:
        owned = dict(self.fences)
        if self.freeze_s:  # stops the event loop, as if the process was paused: no heartbeats, no events
            time.sleep(self.freeze_s)
            self.freeze_s = 0.0
        for shard, fence in owned.items():
            self.refused += not self.store.write(shard, self.name, fence)


def until(condition: Any, description: str) -> None:
    """Waits for a condition of the workers."""
    until_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until_s:
            sys.exit(f"not within {LIMIT_S:g} s: {description}")
        time.sleep(0.02)


def demonstrate(node: kcore.Node, bootstrap: str) -> None:
    node.topics.create(TOPIC, SHARDS, config=TOPIC_SETTINGS, exist_ok=True)
    store = Store()
    workers = [Worker(bootstrap, f"worker-{number}", store) for number in range(WORKERS)]

    def shared() -> bool:
        owned = [shard for worker in workers for shard in worker.fences]
        return sorted(owned) == list(range(SHARDS)) and all(len(worker.fences) >= 6 for worker in workers)

    try:
        until(shared, "the shards are shared out")
        print(
            f"{SHARDS} shards are shared by {WORKERS} workers, {min(len(each.fences) for each in workers)} to ", end=""
        )
        print(f"{max(len(each.fences) for each in workers)} each")
        frozen = workers[3]
        before = set(frozen.fences)
        frozen.freeze_s = SESSION_S * 3
        until(lambda: all(store.owners[shard] != frozen.name for shard in before), "the shards move")
        print("worker-3 freezes: its shards move to other workers")
        until(lambda: frozen.refused > 0, "the late writes are refused")
        print("worker-3 wakes up: the store refuses its late writes")
        until(shared, "worker-3 is back")
        print("worker-3 is back in the group and owns shards in a newer epoch")
    finally:
        for worker in workers:
            worker.stop = True
        for worker in workers:
            worker.thread.join()
    print("every shard was written" if len(store.counts) == SHARDS else "shards were not written")
    kept = bool(node.group(GROUP).committed())
    print("the empty group keeps its epochs" if kept else "the empty group will be deleted with its epochs")


def main() -> None:
    if len(sys.argv) > 1:
        with kcore.connect(sys.argv[1]) as node:
            demonstrate(node, sys.argv[1])
    else:
        with kcore.open(config=NODE_SETTINGS) as node:
            demonstrate(node, node.listen().bootstrap)


if __name__ == "__main__":
    main()
