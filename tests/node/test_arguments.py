"""Arguments that are probably mistakes: names that do not exist, and milliseconds instead of seconds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import kcore
from kcore.errors import ConfigError, ImplausibleTimeWarning
from kcore.group.classic.states import GroupState as ClassicState
from kcore.group.consumer.states import GroupState as ConsumerState
from kcore.group.group import GroupType
from kcore.group.share.states import GroupState as ShareState
from kcore.group.streams.states import GroupState as StreamsState
from kcore.node.arguments import GROUP_STATES, GROUP_TYPES, TRANSACTION_STATES, filters
from kcore.node.types import to_ms
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.transaction.states import NAMES

CHOICES: dict[str, tuple[Callable[[kcore.Node], Any], str]] = {
    "types of groups": (lambda node: node.groups.list(types=["Consume"]), "'classic', 'consumer', 'share', 'streams'"),
    "states of groups": (lambda node: node.groups.list(states=["Sable"]), "'Reconciling', 'Stable', 'NotReady'"),
    "states of transactions": (lambda node: node.transactions.list(states=["Open"]), "'Empty', 'Ongoing'"),
    "protocol": (lambda node: node.group("g").join("t", protocol="Consumer"), "'consumer', 'classic'"),  # type: ignore[arg-type]
    "protocol of a consumer": (lambda node: node.group("g").consume("t", protocol="x"), "'consumer', 'classic'"),  # type: ignore[arg-type]
    "reset": (lambda node: node.group("g").consume("t", reset="begin"), "'earliest', 'latest', 'none'"),  # type: ignore[arg-type]
    "isolation": (lambda node: node.group("g").consume("t", isolation="committed"), "'read_committed', "),  # type: ignore[arg-type]
    "isolation of a read": (lambda node: node.topics["t"].read(0, 0, isolation="x"), "'read_committed', "),  # type: ignore[arg-type]
    "isolation of an end": (lambda node: node.topics["t"].end_offsets("x"), "'read_committed', "),  # type: ignore[arg-type]
    "isolation of ends": (lambda node: node.topics.end_offsets([("t", 0)], "x"), "'read_committed', "),  # type: ignore[arg-type]
    "acks": (lambda node: node.producer(acks="1"), "'all', 1"),  # type: ignore[arg-type]
    "compression": (lambda node: node.producer(compression="snapy"), "'none', 'gzip', 'snappy', 'lz4', 'zstd'"),
    "compression of a batch": (lambda node: node.topics["t"].append_many(["v"], compression="lz5"), "'gzip', "),
    "compression of a transaction": (lambda node: node.transaction("x", compression="gz"), "'gzip', "),
    "mechanisms": (lambda node: node.users.set_password("u", "p", mechanisms=["SHA"]), "'SCRAM-SHA-256', "),
}
"""Name of an argument -> a call with a value that is not allowed, and the allowed values that the error must list."""

TIMES: dict[str, Callable[[kcore.Node, float], Any]] = {
    "linger": lambda node, time: node.producer(linger=time),
    "timeout": lambda node, time: node.producer(timeout=time),
    "timeout of a transaction": lambda node, time: node.transaction("x", timeout=time),
    "session_timeout": lambda node, time: node.group("g").join("t", protocol="classic", session_timeout=time),
    "heartbeat_interval": lambda node, time: node.group("g").join(
        "t", protocol="classic", session_timeout=1800.0, heartbeat_interval=time
    ),
    "rebalance_timeout": lambda node, time: node.group("g").join("t", rebalance_timeout=time),
    "metadata_max_age": lambda node, time: node.group("g").consume("t", metadata_max_age=time),
    "auto_commit": lambda node, time: node.group("g").consume("t", auto_commit=time),
}
MILLISECONDS = {
    "linger": 5,
    "timeout": 120_000,
    "timeout of a transaction": 60_000,
    "session_timeout": 45_000,
    "heartbeat_interval": 1_000,
    "rebalance_timeout": 300_000,
    "metadata_max_age": 300_000,
    "auto_commit": 5_000,
}
"""Argument -> Kafka's default in milliseconds.

The value of `heartbeat_interval` differs from the default, because it must be smaller than the session timeout in
`TIMES`.
"""


@pytest.fixture(scope="module")
def embedded() -> Any:
    with kcore.open() as node:
        node.topics.create("t", 1)
        yield node


@pytest.mark.parametrize("case", CHOICES)
def test_a_name_that_does_not_exist_is_an_error_with_the_valid_names(embedded: kcore.EmbeddedNode, case: str) -> None:
    call, valid = CHOICES[case]
    with pytest.raises(ConfigError, match=f"valid: .*{valid}") as raised:
        call(embedded)
    assert isinstance(raised.value, ValueError)


def test_names_of_a_filter_may_be_one_text_in_any_case(embedded: kcore.EmbeddedNode) -> None:
    embedded.group("named").commit({("t", 0): 0})
    assert [row.group_id for row in embedded.groups.list(types="Classic", states="empty")] == ["named"]
    assert embedded.groups.list(types="share") == []
    embedded.group("named").delete()


def test_the_names_of_filters_are_those_of_the_coordinators() -> None:
    states = [state.value for kind in (ClassicState, ConsumerState, ShareState) for state in kind]
    assert {state.lower() for state in states} <= {text.lower() for text in GROUP_STATES.values()}
    assert {state.kafka_name: state.filter_name for state in StreamsState}.items() <= {
        name: text.lower() for name, text in GROUP_STATES.items()
    }.items()
    assert set(GROUP_STATES) == {*states, *(state.kafka_name for state in StreamsState)}
    assert set(GROUP_TYPES) == {kind.value for kind in GroupType}
    assert set(TRANSACTION_STATES) >= set(NAMES.values())
    assert filters("states", ["NOTREADY", "Dead"], GROUP_STATES) == ["not_ready", "Dead"]


@pytest.mark.parametrize("argument", TIMES)
def test_milliseconds_in_place_of_seconds_give_a_warning_at_the_call(
    embedded: kcore.EmbeddedNode, argument: str
) -> None:
    time = MILLISECONDS[argument]
    with pytest.warns(ImplausibleTimeWarning) as raised:
        TIMES[argument](embedded, time)
    (warning,) = raised
    name = argument.split(maxsplit=1)[0]
    assert str(warning.message).startswith(f"{name}={time:g} is in seconds: ")
    assert str(warning.message).endswith(f"; for {time:g} milliseconds, pass {time / 1000:g}")
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TIMES[argument](embedded, time / 1000)


@pytest.mark.parametrize("argument", TIMES)
@pytest.mark.parametrize("time", [-1, math.nan, math.inf, 1e10])
def test_a_time_that_no_request_can_express_is_an_error(
    embedded: kcore.EmbeddedNode, argument: str, time: float
) -> None:
    with pytest.raises(ConfigError, match=f"{argument.split(maxsplit=1)[0]}={time!r}; valid: "):
        TIMES[argument](embedded, time)


def test_the_times_of_a_connection_are_checked_before_it_is_made() -> None:
    for times in ({"timeout": 30_000}, {"call_timeout": 60_000}):
        with (
            pytest.warns(ImplausibleTimeWarning, match="is in seconds") as raised,
            pytest.raises(kcore.errors.ConnectionClosedError),
        ):
            kcore.connect("127.0.0.1:1", **times)
        assert [warning.filename for warning in raised] == [__file__]


def test_a_long_wait_of_one_call_gives_a_warning(embedded: kcore.EmbeddedNode) -> None:
    embedded.topics["t"].append("v")
    with (
        embedded.group("waits").consume("t") as consumer,
        pytest.warns(ImplausibleTimeWarning, match=r"timeout=5000 is in seconds: 1\.39 h; .*, pass 5"),
    ):
        assert len(consumer.poll(5000)) == 1
    with pytest.warns(ImplausibleTimeWarning, match="wait=1000"):
        assert len(embedded.topics["t"].read(0, 0, wait=1000)) == 1
    with embedded.producer() as producer, pytest.warns(ImplausibleTimeWarning, match="timeout=1000"):
        producer.append("t", "v").result(1000)
    with pytest.warns(ImplausibleTimeWarning, match="longer_than=600000"):
        assert embedded.transactions.list(longer_than=600_000) == []


async def test_a_warning_names_the_line_that_awaits_the_call() -> None:
    async with kcore.open_async() as node:
        await (await node.topics.create("t", 1)).append("v")
        async with node.group("g").consume("t") as consumer:
            with pytest.warns(ImplausibleTimeWarning) as raised:
                await consumer.poll(10_000)
    assert [warning.filename for warning in raised] == [__file__]


def test_a_timestamp_in_milliseconds_is_an_error(embedded: kcore.EmbeddedNode) -> None:
    for call in (
        lambda: embedded.topics["t"].append("v", timestamp=1_700_000_000_000),
        lambda: embedded.topics["t"].offsets_at(1_700_000_000_000),
    ):
        with pytest.raises(ValueError, match=r"seconds since 1970, not milliseconds"):
            call()
    assert to_ms(1_700_000_000) == 1_700_000_000_000


def in_transaction(node: Any, action: Callable[[Any], Any]) -> None:
    """Runs an action in a transaction."""
    with node.transaction("wrong") as transaction:
        action(transaction)


def poll(node: Any, max_records: int) -> None:
    """Polls a new consumer once."""
    with node.group("polls").consume("t") as consumer:
        consumer.poll(0, max_records)


WRONG_TYPES: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "user of a quota": (lambda node: node.quotas.set({"producer_byte_rate": 1}, user=5), TypeError, "user: 5 is"),
    "client id": (lambda node: node.quotas.describe(client_id=b"c"), TypeError, "client_id: b'c' is not a string"),
    "name of a quota": (lambda node: node.quotas.set({7: 1}, user="u"), TypeError, "a key of limits: 7 is not"),
    "quotas": (lambda node: node.quotas.set("rate", user="u"), TypeError, "limits: 'rate' is not a mapping"),
    "text as a quota": (
        lambda node: node.quotas.set({"producer_byte_rate": "much"}, user="u"),
        ValueError,
        "limits: the quota 'producer_byte_rate' is 'much'; valid: a number, or None to remove it",
    ),
    "list as a quota": (
        lambda node: node.quotas.set({"producer_byte_rate": [1]}, user="u"),
        TypeError,
        r"limits: the quota 'producer_byte_rate' is \[1\]; valid: a number",
    ),
    "name of a topic": (lambda node: node.topics[None], TypeError, "the name of a topic: None is not a string"),
    "name of a new topic": (lambda node: node.topics.create(b"t", 1), TypeError, "the name of a topic: b't' is not"),
    "names of topics": (lambda node: node.topics.describe([5]), TypeError, "names: 5 is not a string"),
    "number of partitions": (lambda node: node.topics.create("u", "4"), TypeError, "partitions='4'; valid: a whole"),
    "large number of partitions": (lambda node: node.topics.create("u", 2**40), ValueError, "partitions=1099511627776"),
    "more partitions": (lambda node: node.topics["t"].grow(None), TypeError, "partitions=None; valid: a whole number"),
    "settings of a new topic": (
        lambda node: node.topics.create("u", 1, config=["a"]),
        TypeError,
        r"config: \['a'\] is not a mapping",
    ),
    "partition of a record": (
        lambda node: node.topics["t"].append("v", partition="0"),
        TypeError,
        "the partition is '0'; valid: a number",
    ),
    "negative partition": (
        lambda node: node.topics["t"].append("v", partition=-1),
        ValueError,
        "the partition is -1; valid: 0 to 2147483647",
    ),
    "partition of records": (
        lambda node: node.topics["t"].append_many(["v"], partition=0.0),
        TypeError,
        "the partition is 0.0; valid: a number",
    ),
    "text as records": (lambda node: node.topics["t"].append_many("abc"), TypeError, "records: str; valid: a list of"),
    "mapping as records": (lambda node: node.topics["t"].append_many({"k": "v"}), TypeError, "records: dict; valid"),
    "record with three parts": (
        lambda node: node.topics["t"].append_many([("k", "v", "h")]),
        ValueError,
        r"a record is a tuple of 3; valid: a value, or a pair \(key, value\)",
    ),
    "time of a record": (
        lambda node: node.topics["t"].append("v", timestamp="now"),
        TypeError,
        "the time is 'now'; valid: a datetime, or seconds since 1970",
    ),
    "infinite time": (
        lambda node: node.topics["t"].append("v", timestamp=-math.inf),
        ValueError,
        "the time -inf is not valid",
    ),
    "time without a value": (
        lambda node: node.topics["t"].append("v", timestamp=math.nan),
        ValueError,
        "the time nan is not valid",
    ),
    "partition of a read": (lambda node: node.topics["t"].read("0", 0), TypeError, "the partition is '0'; valid"),
    "offset of a read": (lambda node: node.topics["t"].read(0, None), TypeError, "offset=None; valid: a whole number"),
    "large offset of a read": (
        lambda node: node.topics["t"].read(0, 2**70),
        ValueError,
        "offset=1180591620717411303424",
    ),
    "records of a read": (
        lambda node: node.topics["t"].read(0, 0, None),
        TypeError,
        "max_records=None; valid: a whole",
    ),
    "no interceptors": (
        lambda node: node.producer(interceptors=None),
        TypeError,
        "interceptors=None; valid: a list of",
    ),
    "class of interceptors": (
        lambda node: node.transaction("x", interceptors=[kcore.ProducerInterceptor]),
        TypeError,
        ".*valid: a list of objects with the method on_send",
    ),
    "interceptor of a producer": (
        lambda node: node.group("g").consume("t", interceptors=[kcore.ProducerInterceptor()]),
        TypeError,
        ".*valid: a list of objects with the method on_consume",
    ),
    "no records": (lambda node: node.topics["t"].append_many(None), TypeError, "records: NoneType; valid: a list of"),
    "no headers": (
        lambda node: node.topics["t"].append("v", headers=None),
        TypeError,
        "headers: None; valid: a list of",
    ),
    "topic of a producer": (lambda node: node.producer().append(5, "v"), TypeError, "the name of a topic: 5 is not a"),
    "partition of a producer": (
        lambda node: node.producer().append("t", "v", partition="0"),
        TypeError,
        "the partition is '0'; valid: a number",
    ),
    "large partition of a producer": (
        lambda node: node.producer().append("t", "v", partition=2**40),
        ValueError,
        "the partition is 1099511627776; valid: 0 to",
    ),
    "no wait": (
        lambda node: node.topics["t"].read(0, 0, wait=None),
        TypeError,
        "wait=None; valid: a number of seconds",
    ),
    "no idle time": (lambda node: node.transactions.hanging([], idle=None), TypeError, "idle=None; valid: a number"),
    "no producer": (lambda node: node.transactions.abort(None), TypeError, "producer: None; valid: an element of"),
    "long transactional id": (
        lambda node: node.transaction("é" * 16_384),
        ValueError,
        "transactional_id has 32768 bytes .* valid: at most 32767 bytes",
    ),
    "long group id": (lambda node: node.group("g" * 32_768), ValueError, "the id of a group has 32768 bytes"),
    "long topic": (
        lambda node: node.topics.end_offsets([("t" * 32_768, 0)]),
        ValueError,
        "the name of a topic has 32768 bytes",
    ),
    "long topic of a member": (lambda node: node.group("g").join("t" * 32_768), ValueError, "topics has 32768 bytes"),
    "wait without a value": (
        lambda node: node.topics["t"].read(0, 0, wait=math.nan),
        ConfigError,
        "wait=nan; valid: seconds, up to",
    ),
    "id of a group": (lambda node: node.group(None), TypeError, "the id of a group: None is not a string"),
    "ids of groups": (lambda node: node.groups.describe(5), TypeError, "group_ids: 5; valid: one string, or several"),
    "ids of members": (
        lambda node: node.group("g").remove_members(member_ids=[None]),
        TypeError,
        "member_ids: None is not a string",
    ),
    "no offsets": (lambda node: node.group("g").commit(None), TypeError, "offsets: None is not a mapping"),
    "list of offsets": (
        lambda node: node.group("g").commit([("t", 0)]),
        TypeError,
        r"offsets: \[\('t', 0\)\] is not a",
    ),
    "topic of an offset": (lambda node: node.group("g").commit({(5, 0): 1}), TypeError, r"\(5, 0\) is not a partition"),
    "negative partition of an offset": (
        lambda node: node.group("g").commit({("t", -1): 1}),
        ValueError,
        "the partition is -1; valid: 0 to",
    ),
    "large offset": (
        lambda node: node.group("g").commit({("t", 0): 2**63}),
        ValueError,
        "the offset to commit is 9223372036854775808; valid: ",
    ),
    "metadata of an offset": (
        lambda node: node.group("g").commit({("t", 0): kcore.OffsetAndMetadata(1, 5)}),  # type: ignore[arg-type]
        TypeError,
        "the offset to commit has the metadata 5; valid: a string",
    ),
    "offset as metadata": (
        lambda node: node.group("g").commit({("t", 0): kcore.OffsetAndMetadata("1")}),  # type: ignore[arg-type]
        TypeError,
        "the offset to commit is ",
    ),
    "offsets of a transaction": (
        lambda node: in_transaction(node, lambda txn: txn.commit_offsets("g", None)),
        TypeError,
        "offsets: None is not a mapping",
    ),
    "topic of a transaction": (
        lambda node: in_transaction(node, lambda txn: txn.append(None, "v")),
        TypeError,
        "the name of a topic: None is not a string",
    ),
    "partition of a transaction": (
        lambda node: in_transaction(node, lambda txn: txn.append("t", "v", partition="0")),
        TypeError,
        "the partition is '0'; valid",
    ),
    "transactional id": (lambda node: node.transaction(None), TypeError, "transactional_id: None is not a string"),
    "empty transactional id": (lambda node: node.transaction(""), ConfigError, "transactional_id is empty"),
    "size of a batch": (
        lambda node: node.producer(batch_bytes=0),
        ConfigError,
        "batch_bytes=0; valid: 1 to 2147483647",
    ),
    "size of a buffer": (lambda node: node.producer(buffer_bytes="1"), TypeError, "buffer_bytes='1'; valid: a whole"),
    "topics of a member": (lambda node: node.group("g").join([5]), TypeError, "topics: 5 is not a string"),
    "bytes as topics": (lambda node: node.group("g").join(b"t"), TypeError, "topics: b't'; valid: one string, or sev"),
    "instance id": (lambda node: node.group("g").join("t", instance_id=5), TypeError, "instance_id: 5 is not a string"),
    "rack": (lambda node: node.group("g").consume("t", rack=5), TypeError, "rack: 5 is not a string"),
    "pattern": (lambda node: node.group("g").join(pattern=5), TypeError, "pattern: 5 is not a string"),
    "pattern of a classic member": (
        lambda node: node.group("g").join(pattern="(", protocol="classic"),
        ConfigError,
        r"pattern='\(' is not a regular expression: missing \)",
    ),
    "no time for a rebalance": (
        lambda node: node.group("g").join("t", rebalance_timeout=0),
        ConfigError,
        "rebalance_timeout=0; valid: seconds, above 0",
    ),
    "records of a consumer": (
        lambda node: node.group("g").consume("t", max_records="5"),
        TypeError,
        "max_records='5'; valid: a whole number, 1 or more",
    ),
    "records of a poll": (
        lambda node: poll(node, 0),
        ConfigError,
        "max_records=0; valid: 1 to",
    ),
    "topics of a queue": (lambda node: node.queue([None], group="g"), TypeError, "topics: None is not a string"),
    "group of a queue": (lambda node: node.queue("t", group=""), ConfigError, "group is empty; valid: a name"),
    "jobs of a queue": (
        lambda node: node.queue("t", group="g", max_jobs=1.5),
        TypeError,
        "max_jobs=1.5; valid: a whole",
    ),
    "password": (lambda node: node.users.set_password("u", None), TypeError, "password: None is not a string"),
    "pattern of transactions": (
        lambda node: node.transactions.list(pattern=["a"]),
        TypeError,
        r"pattern: \['a'\] is not a string",
    ),
    "producer ids": (
        lambda node: node.transactions.list(producer_ids=["1"]),
        TypeError,
        "a number of producer_ids='1'; valid: a whole number",
    ),
    "text as producer ids": (
        lambda node: node.transactions.list(producer_ids="12"),
        TypeError,
        "producer_ids: '12'; valid: a list of whole numbers",
    ),
    "large producer id": (
        lambda node: node.transactions.list(producer_ids=[2**63]),
        ValueError,
        "a number of producer_ids=9223372036854775808; valid: at most",
    ),
    "reason of a removal": (
        lambda node: node.group("g").remove_members(member_ids=["m"], reason=5),
        TypeError,
        "reason: 5 is not a string",
    ),
    "principal of an entry": (
        lambda node: node.acls.describe(principal=5),
        TypeError,
        "principal: 5 is not a string",
    ),
    "large offset of a deletion": (
        lambda node: node.topics["t"].delete_records({0: 2**63}),
        ValueError,
        r"the offset of t-0 is 9223372036854775808; valid: 0 or more",
    ),
    "leader epoch of an offset": (
        lambda node: node.group("g").commit({("t", 0): kcore.OffsetAndMetadata(1, "", "2")}),  # type: ignore[arg-type]
        TypeError,
        "the leader epoch of an offset='2'; valid: a whole number",
    ),
    "large leader epoch of an offset": (
        lambda node: node.group("g").commit({("t", 0): kcore.OffsetAndMetadata(1, "", 2**31)}),
        ValueError,
        "the leader epoch of an offset=2147483648; valid: at most 2147483647",
    ),
    "request": (lambda node: node.send("x"), TypeError, "expected a request message, got str"),
    "empty path": (lambda _: kcore.open(""), ConfigError, "path is empty; valid: a folder, or None"),
    "path in bytes": (lambda _: kcore.open(b"data"), TypeError, "path: b'data'; valid: a str, a pathlib.Path, or None"),  # type: ignore[call-overload]
    "clock": (lambda _: kcore.open(clock=kcore.ManualClock), TypeError, "clock: <class .* is not a clock; valid: a "),  # type: ignore[call-overload]
    "configuration": (lambda _: kcore.open(config="x"), TypeError, "config: 'x' is not a mapping"),  # type: ignore[call-overload]
    "no address": (lambda _: kcore.connect([]), ConfigError, "bootstrap has no address; valid: HOST:PORT"),
    "address of another type": (lambda _: kcore.connect(9092), TypeError, "bootstrap: 9092; valid: HOST:PORT"),  # type: ignore[arg-type]
    "port": (
        lambda _: kcore.connect("h:99999"),
        ConfigError,
        "'h:99999' is not HOST:PORT, with a port from 1 to 65535",
    ),
    "client id of a connection": (
        lambda _: kcore.connect("127.0.0.1:1", client_id=5),  # type: ignore[arg-type]
        TypeError,
        "client_id: 5 is not a string",
    ),
    "security": (
        lambda _: kcore.connect("127.0.0.1:1", security=["x"]),
        TypeError,
        r"security: \['x'\] is not a mapping",
    ),  # type: ignore[arg-type]
    "setting of a topic": (lambda node: node.topics["t"].set_config({1: 1}), TypeError, "a key of config: 1 is not"),
    "setting of a group": (lambda node: node.group("g").set_config({None: 1}), TypeError, "a key of config: None is"),
    "settings": (lambda node: node.topics["t"].set_config([("a", 1)]), TypeError, r"config: \[\('a', 1\)\] is not"),
    "partition of a deletion": (
        lambda node: node.topics["t"].delete_records({"0": None}),
        TypeError,
        "the partition is '0'; valid: a number",
    ),
    "timeout of a member": (lambda node: node.group("g").join("t").start(timeout="1"), TypeError, "timeout='1'; valid"),
    "linger": (lambda node: node.producer(linger=None), TypeError, "linger=None; valid: a number of seconds"),
    "wait of a connection": (
        lambda _: kcore.connect("127.0.0.1:1", wait=None),
        TypeError,
        "wait=None; valid: a number",
    ),
}
"""Name of an argument -> a call with a value that is not valid, the expected error, and the start of its text."""


@pytest.mark.parametrize("case", WRONG_TYPES)
def test_an_argument_of_a_wrong_type_is_an_error_that_names_it(embedded: kcore.EmbeddedNode, case: str) -> None:
    """An argument of a wrong type raises an error that names the argument, before a request is sent."""
    call, kind, text = WRONG_TYPES[case]
    with pytest.raises(kind, match=f"^{text}"):
        call(embedded)


@pytest.mark.parametrize("collection", ["topics", "groups", "brokers"])
def test_a_collection_of_a_node_is_not_iterable(embedded: kcore.EmbeddedNode, collection: str) -> None:
    """Without `__iter__`, Python would call `__getitem__` with 0, 1, 2, … and never stop."""
    with pytest.raises(TypeError, match="not iterable"):
        iter(getattr(embedded, collection))
    if collection != "topics":
        with pytest.raises(TypeError, match="not iterable"):
            assert "x" in getattr(embedded, collection)


async def test_a_collection_of_a_node_on_an_event_loop_has_no_in() -> None:
    """Without `__iter__`, `"jobs" in node.topics` would block the event loop without end."""
    async with kcore.open_async() as node:
        with pytest.raises(TypeError, match="not iterable"):
            assert "jobs" in node.topics  # type: ignore[operator]


def test_names_may_be_one_text(embedded: kcore.EmbeddedNode) -> None:
    embedded.group("workers").commit({("t", 0): 1})
    assert [topic.name for topic in embedded.topics.describe("t")] == ["t"]
    assert list(embedded.groups.describe("workers")) == ["workers"]
    assert list(embedded.groups.committed("workers")) == ["workers"]
    assert list(embedded.transactions.describe("orders-1")) == ["orders-1"]
    embedded.group("workers").join("t", protocol="classic", assignors="roundrobin")
    with pytest.raises(kcore.errors.UnknownMemberIdError, match="member 'worker-1'"):
        embedded.group("workers").remove_members(member_ids="worker-1")


def test_a_negative_time_limit_of_a_call_is_zero(embedded: kcore.EmbeddedNode) -> None:
    """A program that passes `deadline - time.monotonic()` need not check the sign."""
    topic = embedded.topics["t"]
    assert topic.read(0, topic.end_offsets()[0], wait=-1) == []
    assert embedded.queue("t", group="q").get(-1) is None


@pytest.mark.parametrize(
    ("offset", "kind", "text"),
    [
        ("abc", TypeError, "the offset of the position is 'abc'; valid: an int, an OffsetAndMetadata or a datetime"),
        (None, TypeError, "the offset of the position is None; valid: "),
        (-1, ValueError, "the offset of the position is -1; valid: the offset of the next record, 0 or more"),
    ],
)
def test_a_position_that_is_no_offset_is_an_error(
    embedded: kcore.EmbeddedNode, offset: Any, kind: type[Exception], text: str
) -> None:
    with embedded.group("seeks").consume("t", auto_commit=None) as consumer:
        while not consumer.assignment:
            consumer.poll(0.1)
        position = consumer.position(("t", 0))
        with pytest.raises(kind, match=f"^{text}"):
            consumer.seek(("t", 0), offset)
        assert consumer.position(("t", 0)) == position


def test_the_arguments_of_embedded_nodes_are_checked(embedded: kcore.EmbeddedNode) -> None:
    async def watch(event: Any) -> None: ...

    calls: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: embedded.watch_group(None, print), TypeError, "group_id: None is not a string"),  # type: ignore[arg-type]
        (lambda: embedded.watch_group("", print), ConfigError, "group_id is empty; valid: a name"),
        (lambda: embedded.watch_group("g", None), TypeError, "watcher: None; valid: a function"),  # type: ignore[arg-type]
        (lambda: embedded.watch_group("g", watch), TypeError, "valid: a function that is not a coroutine function"),  # type: ignore[arg-type]
        (lambda: embedded.listen(None), TypeError, "address: None; valid: HOST:PORT"),  # type: ignore[arg-type]
        (lambda: embedded.listen("x"), ConfigError, "'x' is not an address"),
    ]
    driver = embedded._engine._driver
    for call, kind, text in calls:
        with pytest.raises(kind, match=text):
            call()
    assert embedded._engine._driver is driver, "the engine has not moved to another thread"


async def test_the_address_of_an_asynchronous_listener_is_checked() -> None:
    async with kcore.open_async() as node:
        with pytest.raises(TypeError, match="address: None; valid: HOST:PORT"):
            await node.listen(None)  # type: ignore[arg-type]


def test_the_longest_transactional_id_is_accepted(embedded: kcore.EmbeddedNode) -> None:
    """A typed request with a longer id is refused. Before, it was an internal error of the server."""
    with embedded.transaction("x" * 32_767):
        pass
    for size, code in ((32_767, 0), (32_768, ErrorCode.INVALID_REQUEST)):
        request = InitProducerIdRequest(transactional_id="x" * size, transaction_timeout_ms=1_000)
        assert embedded.send(request).error_code == code
