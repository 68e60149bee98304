"""Rehearsal of coordinator loads: finds the batches at which the replay of a coordinator's log would fail."""

from __future__ import annotations

from typing import Any

from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.embed import SyncEngine
from kcore.engine import Engine
from kcore.group.apis.find_coordinator import KeyType
from kcore.log import PartitionKey
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.records import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.runtime.loader import replay_batch
from kcore.runtime.machine import ShardContext

REHEARSED = (CONSUMER_OFFSETS, TRANSACTION_STATE)


class Rehearsal:
    """A trial replay of batches, one partition after the other, into state machines of an engine in memory."""

    def __init__(self) -> None:
        config = Config.of(
            {
                "kcore.durability": "memory",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
            }
        )
        self._engine = Engine.open(config, clock=ManualClock())
        self._sender = SyncEngine(self._engine)
        # The transaction topic is created when a client looks for the first coordinator of a transactional id.
        self._sender.send(FindCoordinatorRequest(key_type=KeyType.TRANSACTION, coordinator_keys=["rehearsal"]))
        self._key: PartitionKey | None = None
        self._machine: Any = None
        self._accepted: list[bytes] = []

    def close(self) -> None:
        """Closes the engine."""
        self._sender.close()

    def refusal(self, topic: str, key: PartitionKey, batch: bytes) -> str | None:
        """Replays the next batch of a partition; if that fails, returns the reason and continues without the batch."""
        if key != self._key:
            self._key, self._machine, self._accepted = key, self._new_machine(topic), []
        try:
            replay_batch(batch, self._machine)
        except Exception as error:  # any error would fail a load
            # A part of the batch may have been replayed: start again with the batches before it.
            self._machine = self._new_machine(topic)
            for accepted in self._accepted:
                replay_batch(accepted, self._machine)
            return f"it cannot be replayed: {type(error).__name__}: {error}"
        self._accepted.append(batch)
        return None

    def _new_machine(self, topic: str) -> Any:
        shards: Any = self._engine.groups if topic == CONSUMER_OFFSETS else self._engine.transactions.shards
        shard = shards.get(0)
        return shard.factory(ShardContext(shard, self._engine.now))
