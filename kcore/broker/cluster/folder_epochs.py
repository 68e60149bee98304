"""The leaders and leader epochs in the metadata of a data folder that several processes are about to serve.

A process that serves a folder alone leads every partition. Its leader epoch is the number of times that the folder was
opened. The metadata log does not contain this epoch. If several processes serve the folder, their controller elects
each leader in the epoch after the partition's epoch in the metadata log. If a partition's log has a later epoch,
`raise_leader_epochs` must first raise the epoch in the metadata log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kcore.broker.metadata.machine import METADATA_PARTITION, MetadataMachine, metadata_shard
from kcore.broker.metadata.topics import Topics
from kcore.log.errors import LogError
from kcore.log.interface import PartitionKey
from kcore.runtime import CommitPipeline, Slices
from kcore.runtime.cluster import Leader
from kcore.runtime.shard_services import ShardServices
from kcore.runtime.shard_state import ShardState
from kcore_ext.runtime.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.log.interface import LogEngine
    from kcore.runtime.shard import Shard

MAX_ROUNDS: Final = 100_000
"""Maximum number of commits while the metadata log is loaded or replaced. The limit only prevents an endless loop."""


def raise_leader_epochs(log: LogEngine, now: Now) -> dict[PartitionKey, Leader]:
    """Makes the leader epochs in the metadata at least as high as the epochs of the logs.

    If a log has a higher epoch, the function replaces the metadata log by a new image of the metadata. In this image,
    all partitions have the current epoch of the folder (`log.node_epoch`). If the process dies during the replacement,
    the next call repeats it.

    Args:
        log: the folder's log, which no other process has open.
        now: the clock.

    Returns:
        The leader of each partition in the metadata.

    Raises:
        LogError: the metadata log cannot be read or written.
    """
    metadata = _Metadata(log, now)
    machine = metadata.load()
    if any(_is_behind(log, key, leader) for key, leader in _leaders(machine)):
        for key, leader in list(_leaders(machine)):
            machine.image.set_leader(key.topic_id, key.partition, Leader(leader.node_id, log.node_epoch))
        metadata.rewrite()
        machine = _Metadata(log, now).load()
        behind = [key for key, leader in _leaders(machine) if _is_behind(log, key, leader)]
        if behind:
            raise LogError(f"the leader epochs of {len(behind)} partitions cannot be raised: {behind[:5]}")
    return dict(_leaders(machine))


def _leaders(machine: MetadataMachine) -> Iterator[tuple[PartitionKey, Leader]]:
    image = machine.image
    for topic in image.all():
        for index in range(topic.partitions):
            leader = image.leader(topic.topic_id, index)
            assert leader is not None, "the partition exists"
            yield PartitionKey(topic.topic_id, index), leader


def _is_behind(log: LogEngine, key: PartitionKey, leader: Leader) -> bool:
    partition = log.get(key)
    return partition is not None and partition.leader_epoch > leader.epoch


class _Metadata:
    """The metadata shard of a folder, loaded without the other components of a node."""

    def __init__(self, log: LogEngine, now: Now) -> None:
        self._log = log
        self._deciding = False
        self._pipeline = CommitPipeline(log)
        self._slices = Slices()
        self._shard: Shard[MetadataMachine] = metadata_shard(
            log.open(METADATA_PARTITION),
            Topics(),
            ShardServices(self._pipeline, TimerWheel(now.now_ms), self._slices, now),
            leads=lambda: self._deciding,
        )
        self._shard.leader_epoch = log.node_epoch

    def load(self) -> MetadataMachine:
        """Loads the metadata log, and returns its state machine. The load appends no records."""
        self._shard.load()
        self._commit()
        if self._shard.state is not ShardState.ACTIVE:
            raise LogError("the metadata log cannot be read; the last ERROR line of this process's log has the cause")
        return self._shard.machine

    def rewrite(self) -> None:
        """Replaces the metadata log by the records of its current state."""
        self._deciding = True
        self._shard.perform(self._shard.machine.rewrite)
        self._commit()
        self._deciding = False

    def _commit(self) -> None:
        for _ in range(MAX_ROUNDS):
            self._slices.finish()
            if not self._pipeline.commit():
                raise LogError(
                    "the metadata log cannot be written; the last ERROR line of this process's log has the cause"
                )
            if not (self._slices or self._pipeline.dirty):
                return
        raise LogError("the metadata log was not written completely")
