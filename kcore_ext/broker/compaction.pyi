"""The second half of a pass of compaction: what is left of each batch, and neighbours that become one."""

from typing import final

from kcore_ext.batch.records import Decompress
from kcore_ext.batch.run import Run
from kcore_ext.broker.compaction_map import OffsetMap

def filtered(batch: bytes, stays: bytes, horizon_ms: int) -> bytes:
    """A batch with some of its records, at least one, each at its own offset and with its own timestamp.

    Args:
        batch: not compressed.
        stays: a byte for each record, 0 for one that goes.
        horizon_ms: when the tombstones among them, or the marker, may go (KIP-534); -1: there are none.

    Raises:
        ValueError: the batch is compressed, the flags are not as many as its records, or none stays.
        CorruptBatchError: it cannot be read.
    """

def merged(batches: list[bytes]) -> bytes:
    """One batch of several of one leader epoch, in the order of their offsets; none has a producer or an attribute.

    A coordinator commits what a few requests brought, so its log is of many small batches; what is left of each after
    a while is a record or two. Loading pays for batches as well as for records.

    Raises:
        ValueError: one has attributes.
        CorruptBatchError: one cannot be read.
    """

@final
class Sweep:
    """Decides about batches, in the order of the log, and collects neighbours that may become one.

    Args:
        map: what the first half found.
        changes: gets what is to be put in the place of what; see `PartitionLog.rewrite`.
        now_ms: the wall-clock time, ms since the epoch.
        delete_retention_ms: how long tombstones stay from now on.
        max_merged_bytes: how large a merged batch may become. A batch of half of that stays alone, so that a log that
            was merged once is not written again by every pass.

    Attributes:
        size_bytes: what all batches that stay come to, as they are left; those of an open run do not count yet.
        next_horizon_ms: when the first of the tombstones and markers that stay may go; -1: there are none.
    """

    size_bytes: int
    next_horizon_ms: int

    def __init__(
        self,
        map: OffsetMap,
        changes: dict[int, bytes | None],
        now_ms: int,
        delete_retention_ms: int,
        max_merged_bytes: int,
    ) -> None: ...
    def judge(self, batch: bytes, decompress: Decompress) -> tuple[int, int, bytes]:
        """What is left of a batch, with nothing said about it yet.

        Returns:
            (how many records stay, how many of these are tombstones, a byte for each record: 0 for one that goes).

        Raises:
            CorruptBatchError: it cannot be read.
        """

    def horizon(self, horizon_ms: int) -> int:
        """When tombstones, or a marker, that stay may go: as was said before, else (-1) from now on."""

    def sweep(self, run: Run, index: int, position: int, work: int, decompress: Decompress) -> tuple[int, int, int]:
        """Decides about batches, up to the first that needs more than their records to be known.

        Such are batches of transactions and markers; those that begin below `position`; compressed ones that are to be
        changed; and those of a producer of which nothing is left.

        Args:
            run: the batches, all of them sound.
            index: of the first.
            position: the offset behind what was decided so far.
            work: how much to look at, give or take a batch. A record, a batch and 512 bytes are one each.
            decompress: for records of compressed batches.

        Returns:
            (index behind the last one, offset behind it, what is left of `work`).

        Raises:
            CorruptBatchError: a batch cannot be read.
        """

    def add(self, batch: bytes, changed: bool, may_merge: bool) -> None:
        """A batch that stays, in the order of the log.

        Args:
            batch: as it is now.
            changed: whether it is another than is stored.
            may_merge: whether it can be part of another: it says nothing but its records.
        """

    def flush(self) -> None:
        """Ends the run of neighbours: what comes next is not merged with what came before."""
