"""Allocation of producer ids from durable blocks: no id is allocated twice, even across crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker.metadata.records import producer_ids_record
from kcore.runtime.shard_state import ShardState

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.machine import Outcome
    from kcore.runtime.shard import Shard

BLOCK_SIZE = 1_000
"""Number of ids that one record allocates, as in Kafka; a restart discards the rest of a block."""


class ProducerIds:
    """The allocator of producer ids.

    A block of ids can be in use before it is durable. So a response with one of its ids waits for the commit of the
    block.

    Args:
        shard: the metadata shard, whose log contains the blocks.
        node_id: the id of this node, to which the blocks are allocated.
    """

    __slots__ = ("_node_id", "_shard")

    def __init__(self, shard: Shard[MetadataMachine], node_id: int) -> None:
        self._shard = shard
        self._node_id = node_id

    def next_id(self) -> int | None:
        """Returns the next id, for a response that waits for the next commit; None while the metadata is loading."""
        if self._shard.state is not ShardState.ACTIVE:
            return None  # the commit of the current block may have failed
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
