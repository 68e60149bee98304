"""Producer ids: taken from durable blocks, so that none is ever given out twice, whatever crashes in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker.metadata.records import producer_ids_record
from kcore.runtime.shard import ShardState

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.machine import Outcome
    from kcore.runtime.shard import Shard

BLOCK_SIZE = 1_000
"""How many ids one record takes, as in Kafka; the rest of a block is given up at a restart."""


class ProducerIds:
    """Gives out producer ids.

    An id taken from a block that is not durable yet is safe all the same: whatever is answered with it waits for a
    commit that the block is part of.

    Args:
        shard: the metadata, whose log holds the blocks.
        node_id: this node.
    """

    __slots__ = ("_node_id", "_shard")

    def __init__(self, shard: Shard[MetadataMachine], node_id: int) -> None:
        self._shard = shard
        self._node_id = node_id

    def take(self) -> int | None:
        """The next id, for use in an answer that waits for the next commit; None while the metadata is loaded."""
        if self._shard.state is not ShardState.ACTIVE:
            return None  # the block in hand may be one whose commit failed
        machine = self._shard.machine
        if machine.block_next >= machine.block_end:
            self._shard.perform(self._next_block)
            if self._shard.state is not ShardState.ACTIVE:
                return None
        producer_id = machine.block_next
        machine.block_next += 1
        return producer_id

    def _next_block(self) -> Outcome:
        machine = self._shard.machine
        return machine.outcome([producer_ids_record(self._node_id, machine.image.next_producer_id + BLOCK_SIZE)])
