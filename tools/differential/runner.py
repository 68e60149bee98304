"""Runs a test program against both servers, step by step, and compares their responses."""

from __future__ import annotations

import json
import random
import re
import time
from binascii import crc32
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from kcore.protocol.messages import delete_share_group_state as share_state
from kcore.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from kcore.protocol.messages.describe_quorum import DescribeQuorumResponse
from kcore.protocol.messages.fetch import FetchableTopicResponse, FetchResponse
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest
from tools.differential.program import Area, Call, Step
from tools.differential.quotas import address_of
from tools.differential.records import Ends, internal_ends, internal_records, last_records, user_logs
from tools.differential.side import USERS, ClosedError, Side

QUIET_S: Final = 0.08
"""The default of `Pair.quiet_s`."""
AFTER_RESTART_S: Final = 0.5
"""The value of `Pair.quiet_s` in a test program with a restart. It is longer, because Kafka is slow after its start."""
AGREE_S: Final = 10.0
"""Maximum time in seconds until both servers agree: until they have responded to the same clients, or list the same
topics.
"""
WRITTEN_S: Final = 1.5
"""Maximum time in seconds until a server has written the records that it writes only after a response."""
LEARN_S: Final = 0.15
"""Delay in seconds until Kafka's coordinators know a new topic.

Kafka's metadata responses contain the topic earlier.
"""
GRANT: Final = "grant"
"""The call that gives a user a permission. Areas with this call have a user."""
ANY: Final = 1
"""In filters of access control lists, the number of any type, operation or permission."""
COMPACTED: Final = frozenset({"compaction"})
"""Names of the areas that compare only the last record of each key, because the servers' cleaners run independently."""
INDEX: Final = re.compile(r"\[\d+\]|(?<=\d)r\d+x[0-9a-f]+")
"""A pattern for the parts of a field's path that differ between runs: array indices, and the numbers of runs in names.
"""
REPEATS: Final = 3
"""Maximum number of runs that try to reproduce a difference before a test program is shortened."""
START_S: Final = 30.0
"""Maximum time in seconds until a started server has loaded its coordinators."""
NOT_LOADED: Final = frozenset({14, 15, 16})
"""Error codes of a coordinator that is not loaded yet."""
PROBES: Final = 12
"""Number of group ids and of transactional ids whose coordinators the tool looks up, to check that all are loaded.

The hashes of these ids cover all partitions of both internal topics."""
SHARE_PARTITIONS: Final = 24
"""Number of share partitions whose coordinators the tool looks up, to check that all are loaded.

The hashes very probably cover all partitions of `__share_group_state`."""
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
"""FindCoordinator's key type for share partitions. The types 0 and 1 are those of groups and of transactional ids."""
FOREIGN: Final = re.compile(r"__[a-z_]+|[a-z]{2}\d+r\d+x[0-9a-f]+\b.*")
"""A pattern for the names of internal topics, and for names of test programs."""
NAMED_LISTS: Final = (
    ("topics", "name"),
    ("topics", "topic"),
    ("results", "user"),
    ("replica_election_results", "topic"),
    ("config_resources", "resource_name"),
)
"""Pairs as in `LISTS`. A response may also have the requested names, which may begin with any other name."""
LISTS: Final = (
    ("groups", "group_id"),
    ("transaction_states", "transactional_id"),
    ("config_resources", "resource_name"),
)
"""Response fields that may list the objects of all test programs -> the field of their rows with the object's name."""


class Difference(NamedTuple):
    """A difference between two responses.

    Attributes:
        step: index of the last step that was sent before the responses arrived. The responses may belong to an earlier
            step whose request waited.
        what: the differing values, one line for each.
    """

    step: int
    what: str


class Pair:
    """The two compared servers, which receive the same requests.

    Args:
        sides: the servers; the first one is the reference.
        area: the part of the protocol with the calls that the test programs make.
        texts: True to compare the texts of errors, too.
        logs: True to compare the logs, too, after a test program without a difference.
        quiet_s: the time in seconds without a response after which the next step is sent, although requests still wait.
    """

    def __init__(
        self, sides: Sequence[Side], area: Area, texts: bool = False, *, logs: bool = False, quiet_s: float = QUIET_S
    ) -> None:
        self._sides = sides
        self._area = area
        self._texts = texts
        self._logs = logs
        self._quiet_s = quiet_s
        self._name = ""
        self._waiting: dict[int, int] = {}
        self.requests = 0

    def run(self, steps: Sequence[Step], name: str, restart: Callable[[], None] | None = None) -> Difference | None:
        """Runs a test program, in which every name begins with `name`. Returns the first difference, or None.

        Args:
            steps: the requests of the test program.
            name: the prefix of all names that the test program uses.
            restart: restarts both servers. It is called in the middle of the test program, which then connects again.
        """
        self._waiting = {}
        self._name = name
        for side in self._sides:
            side.reset()
            side.user = USERS[crc32(name.encode()) % len(USERS)] if GRANT in self._area.CALLS else None
        ends = [internal_ends(side) for side in self._sides] if self._logs else []
        try:
            for number, step in enumerate(steps):
                if restart is not None and number == middle_of(steps):
                    self._waiting = {}
                    for side in self._sides:
                        side.disconnect()
                    restart()
                difference = self._run_step(number, step, steps)
                if difference is not None:
                    return difference
            return self._compare_logs(ends, len(steps) - 1) if self._logs else None
        finally:
            for side in self._sides:
                side.reset()
                delete_topics(side, name)
                delete_acls(side)

    def _run_step(self, number: int, step: Step, steps: Sequence[Step]) -> Difference | None:
        if step.client in self._waiting:
            return None  # the client still waits for another response on each server
        call = self._area.CALLS[step.call]
        self.requests += 1
        for side in self._sides:
            request, version = call.build(side, **step.arguments)
            side.send(step.client, request, version)
        self._waiting[step.client] = number
        if not call.waits:
            difference = self._compare(step.client, call, step, number)
            if difference is None and call.changes_metadata:
                difference = self._await_topics(number)
            if difference is not None:
                return difference
            if call.settle is not None:
                for side in self._sides:
                    call.settle(side, **step.arguments)
        return self._collect(steps, number)

    def _collect(self, steps: Sequence[Step], number: int) -> Difference | None:
        """Compares the responses that have arrived for waiting requests. `number` is the last step that was sent."""
        quiet_since = time.monotonic()
        while self._waiting:
            clients = sorted(self._waiting)
            responded = [{each for each in clients if side.responded(each, 0.002)} for side in self._sides]
            common = set.intersection(*responded)
            if common:
                for client in sorted(common):
                    step = steps[self._waiting[client]]
                    difference = self._compare(client, self._area.CALLS[step.call], step, number)
                    if difference is not None:
                        return difference
                quiet_since = time.monotonic()
                continue
            elapsed_s = time.monotonic() - quiet_since
            if not any(responded):
                if elapsed_s > self._quiet_s:
                    return None
            elif elapsed_s > AGREE_S:
                lines = []
                for side, clients_of_side in zip(self._sides, responded, strict=True):
                    responses = {each: side.plain(side.receive(each)) for each in sorted(clients_of_side)}
                    lines.append(f"  {side.name} responds to these clients: {responses}")
                return Difference(number, "\n".join(lines))
        return None

    def _compare(self, client: int, call: Call, step: Step, number: int) -> Difference | None:
        """Compares the responses to `step`. `number` is the last step that was sent before they arrived."""
        del self._waiting[client]
        values: list[Any] = []
        for side in self._sides:
            try:
                response = side.receive(client)
            except ClosedError:
                values.append("the connection is closed")
            except TimeoutError:
                values.append("no response")
            else:
                values.append(side.plain(own_rows(response, self._name), texts=self._texts))
                if call.learn is not None:
                    call.learn(side, response, **step.arguments)
        if values[0] == values[1]:
            return None
        return Difference(number, "\n".join(differences(self._sides, *values)))

    def _compare_logs(self, ends: Sequence[Ends], number: int) -> Difference | None:
        """Compares the logs repeatedly, until they are equal or `WRITTEN_S` has passed.

        Some records are written only after the response to their request.
        """
        until_s = time.monotonic() + WRITTEN_S
        read_logs = last_records if self._area.NAME in COMPACTED else user_logs
        while True:
            logs = [
                {
                    "logs": read_logs(side, _partitions(topics_of(side, self._name))),
                    "records": internal_records(side, start, self._name),
                }
                for side, start in zip(self._sides, ends, strict=True)
            ]
            if logs[0] == logs[1]:
                return None
            if time.monotonic() > until_s:
                return Difference(number, "\n".join(differences(self._sides, *logs)))
            time.sleep(0.1)

    def _await_topics(self, number: int) -> Difference | None:
        until_s = time.monotonic() + AGREE_S
        while True:
            first, second = (topics_of(side, self._name) for side in self._sides)
            if first == second:
                time.sleep(LEARN_S)
                return None
            if time.monotonic() > until_s:
                return Difference(number, "\n".join(differences(self._sides, first, second)))
            time.sleep(0.01)


def middle_of(steps: Sequence[Step]) -> int:
    """Returns the index of the step before which a test program pauses for the restart of the servers."""
    return len(steps) // 2


def _partitions(topics: dict[str, Any]) -> dict[str, int]:
    return {name: len(rows) for name, (_, rows) in topics.items()}


def own_rows(response: Any, name: str) -> Any:
    """Removes the rows of other test programs from a response that lists the objects of all test programs.

    In a Fetch response, also joins all rows of the same topic. Servers begin a new row whenever the topic changes from
    one partition to the next, and the order of partitions has no meaning.
    """
    if isinstance(response, FetchResponse):
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for row in response.responses:
            known = topics.setdefault((row.topic, row.topic_id), row)
            if known is not row:
                known.partitions = [*known.partitions, *row.partitions]
        response.responses = list(topics.values())
    for field, key in LISTS:
        if hasattr(response, field):
            rows = [row for row in getattr(response, field) if getattr(row, key, name).startswith(name)]
            setattr(response, field, rows)
    if isinstance(response, DescribeQuorumResponse):
        response.nodes = ()  # the listeners of Kafka's controllers
        for partition in (each for topic in response.topics for each in topic.partitions):
            partition.high_watermark = 0  # it counts the changes of all test programs
            for replica in partition.current_voters:
                replica.log_end_offset = 0
                replica.replica_directory_id = bytes(16)
                replica.last_fetch_timestamp = min(replica.last_fetch_timestamp, 0)
                replica.last_caught_up_timestamp = min(replica.last_caught_up_timestamp, 0)
    if isinstance(response, DescribeClientQuotasResponse) and response.entries is not None:
        response.entries = [row for row in response.entries if _is_quota_of(row, name)]
    _drop_foreign(response, name)
    for row in getattr(response, "results", ()):
        _drop_foreign(row, name)
    return response


def _is_quota_of(row: Any, name: str) -> bool:
    """Returns True if a part of the entity of a quota has a name of the test program, or an address for such a name."""
    own = [*(address_of(f"{name}-{number}") for number in (1, 2))]
    return any((part.entity_name or "").startswith(name) or part.entity_name in own for part in row.entity)


def _drop_foreign(response: Any, name: str) -> None:
    """Removes the topics, users and settings of other test programs from a response, or from a part of a response."""
    for field, key in NAMED_LISTS:
        rows = getattr(response, field, ())
        if rows and hasattr(rows[0], key):
            foreign = [row for row in rows if _is_foreign(getattr(row, key), name)]
            setattr(response, field, [row for row in rows if row not in foreign])


def _is_foreign(named: str | None, name: str) -> bool:
    """Returns True if a name belongs to another test program than `name`, or to a server."""
    return named is not None and not named.startswith(name) and FOREIGN.match(named) is not None


def await_coordinators(side: Side) -> None:
    """Waits until the server has created its internal topics and loaded its coordinators.

    FindCoordinator requests make the server create the topics.
    """
    until_s = time.monotonic() + START_S
    for kind, key, version in ((GROUP, "any", 4), (TRANSACTION, "any", 4), (SHARE, "any:AAAAAAAAAAAAAAAAAAAAAA:0", 6)):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        _repeat(side, request, version, lambda response: response.coordinators[0].error_code, until_s)
    for number in range(PROBES):
        probes: tuple[Any, ...] = (
            OffsetFetchRequest(group_id=f"any-{number}", topics=None),
            InitProducerIdRequest(transactional_id=f"any-{number}", transaction_timeout_ms=1_000),
        )
        for probe in probes:
            _repeat(side, probe, 2, lambda response: response.error_code, until_s)
    new_id = InitProducerIdRequest(transactional_id=None)
    _repeat(side, new_id, 2, lambda response: response.error_code, until_s)
    partitions = [share_state.PartitionData(partition=number) for number in range(SHARE_PARTITIONS)]
    topics = [share_state.DeleteStateData(topic_id=bytes([7] * 16), partitions=partitions)]
    forget = share_state.DeleteShareGroupStateRequest(group_id="any", topics=topics)
    _repeat(side, forget, 0, _share_error, until_s)


def _share_error(response: Any) -> int:
    """Returns the error of a share coordinator that is not loaded, or 0 if all are loaded."""
    codes = {row.error_code for topic in response.results for row in topic.partitions}
    return max(codes & NOT_LOADED, default=0)


def _repeat(side: Side, request: Any, version: int, error: Callable[[Any], int], until_s: float) -> None:
    while True:
        side.send(0, request, version)
        code = error(side.receive(0))
        if not code:
            return
        if time.monotonic() > until_s:
            raise TimeoutError(f"{side.name} has no coordinator: {type(request).__name__} still gets error {code}")
        time.sleep(0.1)


def topics_of(side: Side, name: str) -> dict[str, Any]:
    """Returns the topics whose names begin with `name`, with their partition counts and error codes."""
    side.send(-1, MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
    response: Any = side.receive(-1)
    return {
        topic.name: (topic.error_code, sorted((p.partition_index, p.error_code) for p in topic.partitions))
        for topic in response.topics
        if topic.name.startswith(name)
    }


def delete_topics(side: Side, name: str) -> None:
    """Deletes the topics that a test program has left."""
    names = list(topics_of(side, name))
    if names:
        topics = [DeleteTopicState(name=each) for each in names]
        side.send(-1, DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6)
        side.receive(-1)


def delete_acls(side: Side) -> None:
    """Deletes the access control lists of a test program's user."""
    if side.user is not None:
        any_acl = DeleteAclsFilter(
            resource_type_filter=ANY,
            pattern_type_filter=ANY,
            principal_filter=f"User:{side.user}",
            operation=ANY,
            permission_type=ANY,
        )
        side.send(-1, DeleteAclsRequest(filters=[any_acl]), 3)
        side.receive(-1)


def differences(sides: Sequence[Side], first: Any, second: Any, path: str = "") -> list[str]:
    """Returns a line for each value in which two responses differ."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return [line for key in first for line in differences(sides, first[key], second[key], f"{path}.{key}")]
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [line for n, (a, b) in pairs for line in differences(sides, a, b, f"{path}[{n}]")]
    if first == second:
        return []
    if path.startswith(".records") and isinstance(first, list) and isinstance(second, list):
        return _extra_rows(sides, first, second, path)
    texts = [json.dumps(value, default=repr)[:400] for value in (first, second)]
    return [f"  {path or 'response'}: {sides[0].name} {texts[0]}, {sides[1].name} {texts[1]}"]


def _extra_rows(sides: Sequence[Side], first: list[Any], second: list[Any], path: str) -> list[str]:
    """Returns a line for each record that only one of two logs has."""
    texts = [[json.dumps(row, default=repr) for row in rows] for rows in (first, second)]
    lines = []
    for kind, *spans in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        for side, rows, start, stop in zip(sides, texts, spans[::2], spans[1::2], strict=True):
            if kind != "equal":
                lines += [f"  {path}[{n}]: only {side.name} {rows[n][:400]}" for n in range(start, stop)]
    return lines


def fields(what: str) -> list[str]:
    """Returns the path of the differing field in each line of a difference.

    The path has no value, no array indices, and no numbers of runs in names.
    """
    return [INDEX.sub("", line.partition(": ")[0]) for line in what.splitlines()]


def shortened(
    pair: Pair, steps: list[Step], name: str, attempts: int, known: Callable[[Step, str], str | None]
) -> tuple[list[Step], Difference | None]:
    """Removes steps as long as the same fields differ; every attempt uses new names.

    Args:
        pair: the two compared servers.
        steps: a test program with a difference.
        name: the prefix of all names that the test program uses.
        attempts: the largest number of runs.
        known: returns the text of a documented difference, and None for other differences. A shortened test program
            must not end with a documented difference.

    Returns:
        The test program and its difference. The difference is None if `REPEATS` runs of the whole test program found
        none.
    """
    difference = None
    for runs in range(REPEATS):
        difference = run_renamed(pair, steps, name, runs)
        if difference is not None:
            steps = steps[: difference.step + 1]
            break
    else:
        return steps, None
    first = fields(difference.what)

    def same(fewer: list[Step], result: Difference) -> bool:
        return fields(result.what) == first and known(fewer[result.step], result.what) is None

    size = max(len(steps) // 2, 1)
    while runs < attempts:
        start = 0
        removed = False
        while start < len(steps) and runs < attempts:
            fewer = steps[:start] + steps[start + size :]
            runs += 1
            result = run_renamed(pair, fewer, name, runs)
            if result is not None and same(fewer, result):
                steps, difference, removed = fewer[: result.step + 1], result, True
            else:
                start += size
        if size == 1 and not removed:
            break
        size = max(size // 2, 1)
    return steps, difference


def run_renamed(
    pair: Pair, steps: Sequence[Step], name: str, number: int, restart: Callable[[], None] | None = None
) -> Difference | None:
    """Runs a test program with new names for its groups, topics and other objects, so that it does not meet the objects
    of an earlier run. Returns the first difference, or None.

    Args:
        pair: the servers.
        steps: the test program.
        name: the prefix of the names in `steps`, which the new prefix replaces.
        number: the number of the run, which becomes part of the new prefix.
        restart: restarts both servers in the middle of the test program; None: the servers are not restarted.
    """
    other = f"{name}r{number}x{random.randrange(1 << 30):x}"
    return pair.run([step._replace(arguments=renamed(step.arguments, name, other)) for step in steps], other, restart)


def renamed(value: Any, old: str, new: str) -> Any:
    """Replaces the beginning of every name in a step's arguments."""
    if isinstance(value, str):
        return new + value[len(old) :] if value.startswith(old) else value
    if isinstance(value, dict):
        return {renamed(key, old, new): renamed(each, old, new) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(renamed(each, old, new) for each in value)
    return value
