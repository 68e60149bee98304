"""Replays the metadata log as another node writes it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcore.log.errors import LogError
from kcore.process_logging import log_failure
from kcore.runtime.shard_state import ShardState
from kcore_ext.batch import parse_header

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.log.interface import PartitionLog
    from kcore.runtime.shard import Shard

logger = logging.getLogger(__name__)


class MetadataFollower:
    """The reader of the metadata log that keeps a node's metadata machine up to date.

    Args:
        shard: the metadata shard, loaded or not.
        log: the handle of the metadata log.
    """

    __slots__ = ("_log", "_shard")

    def __init__(self, shard: Shard[MetadataMachine], log: PartitionLog) -> None:
        self._shard = shard
        self._log = log

    def catch_up(self) -> bool:
        """Replays the batches of the log that the machine has not replayed yet.

        Returns:
            True if the machine has replayed the log to its current end.
        """
        shard = self._shard
        if shard.state is not ShardState.ACTIVE:
            return False
        machine = shard.machine
        if machine.replayed_to < self._log.log_start_offset:
            # The controller has compacted the log, and this node has missed a part of it.
            shard.restart("the metadata log begins after the replayed part")
            return False
        try:
            for run in self._log.runs(machine.replayed_to):
                for _, batch in run:
                    header = parse_header(batch)
                    if header.base_offset >= machine.replayed_to and header.record_count:
                        machine.follow(batch, header.record_count)
        except LogError as error:
            log_failure(
                logger,
                error,
                "cluster: this node cannot read the metadata log at offset %d; the next poll of the cluster tries "
                "again; if this repeats, check the cluster's store",
                machine.replayed_to,
            )
            return False
        except Exception as error:
            log_failure(
                logger,
                error,
                "cluster: this node cannot replay the metadata log after offset %d, and loads the metadata log again; "
                "if this repeats, report the error",
                machine.replayed_to,
            )
            shard.restart("a followed record could not be replayed")
            return False
        return True
