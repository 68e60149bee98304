"""The state, history and audit of a partition, which are stored as bytes between two micro-batches.

The state has the format of a rebuild's checkpoints. The history and the audit are pickled without their state machines.
Group shards are restored from the checkpoint, share shards from their states.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kcore.errors import KcoreError
from kcore.group.shard import GroupShard
from kcore.share.shard import ShareShard
from kcore.share.state import SharePartitionKey, key_of
from kcore.spark.audit.finding import Finding
from kcore.spark.audit.frames import findings_batch
from kcore.spark.audit.partition import PartitionAudit
from kcore.spark.events.arrow import from_batch
from kcore.spark.state.batch_replay import BatchReplay
from kcore.spark.state.checkpoint import checkpoint_batches, resume
from kcore.spark.state.machines import share_machine
from kcore.spark.state.rebuild import Rebuilt
from kcore.spark.state.table_batches import all_tables
from kcore.spark.timeline.event_kinds import kind_batch
from kcore.spark.timeline.history import History, HistoryOptions
from kcore.version import VERSION
from kcore_ext.group.offsets import OffsetDecoder
from kcore_ext.share.states import ShareState

GROUPS: Final = "groups"
"""The persistent id that replaces the group shard in a pickled audit."""

ANY_OFFSET: Final = 2**62
"""The offset up to which compaction is assumed to have run if the rows lack transaction markers.

So the audit never reports a gap, because a marker may have had the missing offset.
"""

STATE_DDL: Final = "version string, checkpoint binary, history binary"
"""The schema of the state of a partition, in the order of `Stored`."""

STATE: Final = "state"
TIMELINE: Final = "timeline"
FINDINGS: Final = "findings"


class Stored(NamedTuple):
    """A partition between two micro-batches.

    Attributes:
        version: the version of kcore that wrote it. Another version cannot read it.
        checkpoint: the checkpoint of the state, as an Arrow stream.
        history: the pickled history and audit.
    """

    version: str
    checkpoint: bytes
    history: bytes


class ContinuedPartition:
    """One partition of an internal topic: state, history and audit continue with each micro-batch.

    Args:
        topic: the name of an internal topic.
        partition: the number of the partition.
        options: the options of the history. A later micro-batch may have another session timeout.
        hides_control: True if the rows lack transaction markers, so that any gap may be a marker.
        stored: the partition after the previous micro-batch; None: there was none.

    Raises:
        KcoreError: another version of kcore wrote the stored partition.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        options: HistoryOptions,
        hides_control: bool,
        stored: Stored | None = None,
    ) -> None:
        self.topic, self.partition = topic, partition
        self._hides_control = hides_control
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._rebuilt: Rebuilt | None = None
        cleaned_to = ANY_OFFSET if hides_control else None
        if stored is None:
            self._replay = BatchReplay(topic, partition, with_records=True)
            self._history = History(topic, partition, options)
            self._audit = PartitionAudit(topic, partition, cleaned_to)
            return
        if stored.version != VERSION:
            raise KcoreError(
                f"the checkpoint of the stream was written by kcore {stored.version}, and this is {VERSION}: "
                "name another output folder, where the stream starts from the beginning"
            )
        resumed, beside = (self._resume(stored.checkpoint) for _ in range(2))
        self._replay = BatchReplay(topic, partition, with_records=True, resumed=resumed, may_lack=True)
        self._history, self._audit = _Unpickler(io.BytesIO(stored.history), beside.state.groups).load()
        self._history.change_session_timeout(options.session_timeout_ms)

    def _resume(self, checkpoint: bytes) -> Any:
        with pa.ipc.open_stream(pa.py_buffer(checkpoint)) as reader:
            return resume(self.topic, self.partition, [reader.read_all()], None)

    def add(self, batch: pa.RecordBatch) -> None:
        """Reads the next events of the log.

        Args:
            batch: has the columns of a data source of events, in offset order.
        """
        self._replay.add(batch)
        for row in from_batch(batch):
            self._audit.process(row)
            for kind, event in self._history.process(row):
                self._rows.setdefault(kind, []).append(event)

    def tables(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yields the rows of this micro-batch after its last event, with the names of their tables.

        Tables of the state have all rows of the partition. Tables of the timeline and of findings have the rows that
        the micro-batch completed.
        """
        for table, batch in all_tables([self._finished()]):
            yield f"{STATE}/{table}", batch
        for kind, rows in self._rows.items():
            yield f"{TIMELINE}/{kind}", kind_batch(kind, rows)
        self._rows = {}
        findings = [result for result in self._audit.take() if isinstance(result, Finding)]
        if findings:
            yield FINDINGS, findings_batch(findings)

    def stored(self) -> Stored:
        """Returns the partition for the next micro-batch."""
        live = self._finished().live
        assert live is not None, "the records were requested"
        sink = pa.BufferOutputStream()
        batches = list(checkpoint_batches(live, False))
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        history = io.BytesIO()
        _Pickler(history).dump((self._history, self._audit))
        return Stored(VERSION, sink.getvalue().to_pybytes(), history.getvalue())

    def _finished(self) -> Rebuilt:
        if self._rebuilt is None:
            self._rebuilt = self._replay.end(hides_control=self._hides_control)
        return self._rebuilt


def _share_machine_of(states: list[tuple[SharePartitionKey, tuple[Any, ...]]]) -> ShareShard:
    machine = share_machine()
    for key, fields in states:
        state = ShareState()
        state.restore(*fields)
        machine.states.put(key, state)
    return machine


def _read_only(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


class _Pickler(pickle.Pickler):
    """A pickler that leaves out state machines.

    Group shards are restored from the checkpoint, share shards from their states.

    After damage in the log, an audit drops its groups. A restored audit has the groups of the checkpoint again.
    """

    def persistent_id(self, value: Any) -> str | None:
        return GROUPS if isinstance(value, GroupShard) else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ShareShard):
            return _share_machine_of, ([(key_of(state), state.dump()) for state in value.states.values()],)
        if isinstance(value, OffsetDecoder):
            return OffsetDecoder, ()
        if isinstance(value, MappingProxyType):
            return _read_only, (dict(value),)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """The unpickler of a history and an audit.

    Args:
        file: a stream with the pickled objects.
        groups: the groups at the checkpoint.
    """

    def __init__(self, file: io.BytesIO, groups: GroupShard) -> None:
        super().__init__(file)
        self._groups = groups

    def persistent_load(self, pid: Any) -> Any:
        assert pid == GROUPS, pid
        return self._groups
