"""Assertions about a test broker: it is at rest, offsets are committed, records are processed once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from kcore.protocol.topic_partition import TopicPartition
from kcore.testing.arguments import check_type
from kcore.testing.group_state import snapshot
from kcore.transaction.states import TransactionStatus
from kcore_ext.batch.header import BatchHeader, parse_header
from kcore_ext.batch.records import iter_records

if TYPE_CHECKING:
    from kcore.broker.data.aborted_transactions import AbortedTransaction
    from kcore.testing.broker import Broker
    from kcore.testing.recorder import ObservedEngine

MAX_TABLES = 20  # groups in the text of a failed assertion
MAX_LINES = 200  # and events of each
MAX_NAMED = 10  # records named in the text of a failed assertion
RESTING = ("Stable", "Empty", "Dead")
OPEN = (TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)

Position = tuple[str, int, int]
"""Topic, partition and offset of a record."""


def position_of(record: Any) -> Position:
    """Returns the topic, partition and offset of a record.

    The record is a tuple (topic, partition, offset), or a record object of a known Python client.

    Raises:
        TypeError: the object is neither a tuple nor a record of a known client.
    """
    if isinstance(record, tuple) and len(record) == 3:
        topic, partition, offset = record
        return str(topic), int(partition), int(offset)
    try:
        values = [getattr(record, name) for name in ("topic", "partition", "offset")]
    except AttributeError:
        raise TypeError(f"{record!r} is neither a record nor a tuple (topic, partition, offset)") from None
    topic, partition, offset = (value() if callable(value) else value for value in values)
    return str(topic), int(partition), int(offset)


def name_of(condition: Any) -> str:
    """Returns the name of a function, with the file and line of a lambda."""
    name = str(getattr(condition, "__name__", "the condition"))
    code = getattr(condition, "__code__", None)
    if name != "<lambda>" or code is None:
        return name
    return f"the condition at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"


class Checks:
    """The assertions of `Broker` and `VirtualNode`."""

    def _check_functions(self) -> None:
        """Raises the first error that a fault's function has raised, if any."""

    def fail_with(self, text: str, group_ids: Iterable[str]) -> NoReturn:
        """Raises an AssertionError with the histories of groups.

        Raises:
            AssertionError: always.
        """
        broker = cast("Broker", self)
        self._check_functions()
        tables = [broker.history(group_id).table(MAX_LINES) for group_id in list(group_ids)[:MAX_TABLES]]
        raise AssertionError("\n\n".join([text, *tables]))

    def _require_group(self, group: str) -> None:
        """Raises LookupError if the broker has never had a group, so that an assertion about a misspelled id fails."""
        broker = cast("Broker", self)
        known = broker._recorder.groups
        if group not in known and group not in broker.groups.ids():
            raise LookupError(f"the broker has never had a group {group!r}, only {known}")

    def assert_at_rest(self) -> None:
        """Asserts that no rebalance is in progress, no request is held and no transaction is open.

        Raises:
            AssertionError: the broker is not at rest; the text names the rebalance, the requests or the transactions.
        """
        broker = cast("Broker", self)

        def busy(engine: ObservedEngine) -> list[str]:
            ids = [group_id for shard in engine.groups for group_id in shard.machine.groups]
            states = {group_id: snapshot(engine, group_id).state for group_id in ids}
            found = [f"group {name} is {state}" for name, state in sorted(states.items()) if state not in RESTING]
            for shard in engine.transactions.shards or ():
                for name, transaction in shard.machine.transactions.items():
                    if transaction.state in OPEN:
                        status = TransactionStatus(transaction.state)
                        found.append(f"transaction {name} is {status.name}")
            return found

        found = broker.call(busy)
        held = getattr(broker, "held", ())  # a node without connections holds no requests
        found += [f"held: {type(each.request).__name__} of {each.context.client_id}" for each in held]
        if found:
            self.fail_with(f"the broker is not at rest: {'; '.join(found)}", broker._recorder.groups)

    def assert_committed(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Asserts the committed offsets of some partitions of a group; other partitions are not checked.

        Args:
            group: the id of the group.
            offsets: the expected offsets by (topic, partition). A consumer that has processed offset 4 commits 5.

        Raises:
            AssertionError: another offset, or none, is committed; the text has the group's history.
        """
        broker = cast("Broker", self)
        check_type("offsets", offsets, Mapping)
        for partition in offsets:
            if not isinstance(partition, tuple) or [type(each) for each in partition] != [str, int]:
                raise TypeError(f"{partition!r} is not a partition: use (topic, partition), such as ('jobs', 0)")
        actual = broker.committed(group)
        expected = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        wrong = [
            f"{partition}: expected {offset}, committed {actual.get(partition, 'none')}"
            for partition, offset in expected.items()
            if actual.get(partition) != offset
        ]
        if wrong:
            self.fail_with(f"offsets of group {group}: {'; '.join(wrong)}", [group])

    def assert_no_double_processing(self, processed: Iterable[Any], group: str | None = None) -> None:
        """Asserts that no record was processed twice.

        Args:
            processed: the processed records, of any Python client, or tuples (topic, partition, offset).
            group: the group whose history explains a failure; None: all groups.

        Raises:
            AssertionError: a record occurs twice.
            LookupError: the broker has never had the group.
        """
        broker = cast("Broker", self)
        if group is not None:
            self._require_group(group)
        counts = Counter(map(position_of, processed))
        twice = sorted(position for position, count in counts.items() if count > 1)
        if twice:
            self.fail_with(
                f"{_records(twice)} processed more than once: {_named(twice)}",
                broker._recorder.groups if group is None else [group],
            )

    def assert_nothing_skipped(self, processed: Iterable[Any], group: str) -> None:
        """Asserts that every record before the committed offsets was processed.

        A record that is committed and not processed is lost: no consumer of the group reads it again.

        Args:
            processed: the processed records, of any Python client, or tuples (topic, partition, offset).
            group: the id of the group whose committed offsets are checked.

        Raises:
            AssertionError: a record is committed and was not processed.
            LookupError: the broker has never had the group.
        """
        broker = cast("Broker", self)
        self._require_group(group)
        positions = set(map(position_of, processed))
        committed = broker.committed(group)
        beyond, present = broker.call(lambda engine: _records_before(engine, committed))
        skipped = [each for each in present if each not in positions]
        if beyond:
            self.fail_with(f"group {group} has committed offsets beyond the end of the log: {beyond}", [group])
        if skipped:
            self.fail_with(
                f"{_records(skipped)} committed in group {group} but not processed: {_named(skipped)}",
                [group],
            )


def _records(positions: list[Position]) -> str:
    return "1 record was" if len(positions) == 1 else f"{len(positions)} records were"


def _named(positions: list[Position]) -> str:
    names = [f"{topic}-{partition}@{offset}" for topic, partition, offset in positions[:MAX_NAMED]]
    return ", ".join(names) + (", …" if len(positions) > MAX_NAMED else "")


def _records_before(
    engine: ObservedEngine, committed: Mapping[TopicPartition, int]
) -> tuple[dict[str, str], list[Position]]:
    """Compares committed offsets with the logs of their partitions.

    Leaves out records that no consumer with isolation level read_committed gets: markers of transactions, and records
    of aborted transactions.

    Returns:
        A text for each partition whose committed offset is beyond the end of its log, and the positions of the records
        before the committed offsets of the other partitions.
    """
    beyond: dict[str, str] = {}
    present: list[Position] = []
    for topic_partition, end in sorted(committed.items()):
        partition = engine.partitions.get(topic_partition.topic, topic_partition.partition)
        if partition is None:
            continue
        if end > partition.end_offset:
            beyond[str(topic_partition)] = f"{end}, and the log ends at {partition.end_offset}"
            continue
        aborted = partition.producers.aborted.entries
        for _, batch in partition.log.batches():
            header = parse_header(batch)
            if header.base_offset >= end or header.is_control or _is_aborted(header, aborted):
                continue
            present += [(*topic_partition, record.offset) for record in iter_records(batch)
                        if partition.log_start_offset <= record.offset < end]  # fmt: skip
    return beyond, present


def _is_aborted(header: BatchHeader, aborted: Iterable[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset < entry.last_offset
        for entry in aborted
    )
