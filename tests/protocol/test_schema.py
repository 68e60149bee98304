"""The declared messages agree with Kafka's field tables, and their classes behave correctly."""

import copy
import pickle
from typing import Any, get_args

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnPartitionResult
from kcore.protocol.messages.fetch import FetchResponse, PartitionData
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    field,
    parse_span,
)
from tests.golden import kwire
from tests.protocol.oracles import kwire_name
from tests.protocol.strategies import KIND_NAMES, all_messages, within

NAMED = [cls for cls in all_messages() if kwire_name(cls)]


@pytest.mark.parametrize("cls", NAMED, ids=lambda cls: cls.__name__)
def test_declarations_agree_with_the_field_tables_of_kafka(cls: type[Message]) -> None:
    """Compares each declared message with Kafka's field table in every version: order, types, nullability, tags and
    defaults of the fields.
    """
    table = kwire.SCHEMAS[cls.__name__]
    assert table["valid"] == [cls.MIN_VERSION, cls.MAX_VERSION]
    if not cls.__name__.endswith("Key"):
        flexible = table["flexible"] or [32768, 32767]
        assert flexible[0] == cls.FLEXIBLE_SINCE
    if table["kind"] != "coordinator-value" and "api_key" in table:
        assert table["api_key"] == cls.API_KEY
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        assert _described(cls, version) == _expected(table["fields"], version)


def _described(cls: type[Struct], version: int) -> list[Any]:
    rows = []
    for spec in cls.FIELDS:
        if not within(spec.versions, version):
            continue
        kind = KIND_NAMES[spec.kind]
        default = {} if spec.fresh else list(spec.default) if isinstance(spec.default, tuple) else spec.default
        rows.append(
            (
                spec.name,
                KIND_NAMES[spec.item] if kind == "array" else kind,
                kind == "array",
                within(spec.nullable, version),
                spec.tag if within(spec.tagged, version) else None,
                default.hex() if kind == "uuid" else default,
                _described(spec.struct, version) if spec.struct else [],
            )
        )
    return rows


def _expected(fields: list[dict[str, Any]], version: int) -> list[Any]:
    rows = []
    for f in fields:
        if not kwire._in(f["versions"], version):
            continue
        default = kwire.default_of(f, version)
        rows.append(
            (
                f["name"],
                f["type"],
                bool(f.get("array")),
                kwire._in(f.get("nullable"), version),
                f["tag"] if kwire._in(f.get("tagged"), version) else None,
                default,
                _expected(f.get("fields", []), version),
            )
        )
    return rows


def test_every_public_message_of_the_field_tables_is_declared() -> None:
    """Every message in Kafka's field tables is declared. Exempt are messages between brokers and controllers, and those
    of KRaft snapshots.
    """
    declared = {cls.__name__ for cls in NAMED}
    between_nodes = [
        "AssignReplicasToDirs",
        "BeginQuorumEpoch",
        "BrokerRegistration",
        "ControllerRegistration",
        "EndQuorumEpoch",
        "FetchSnapshot",
        "UpdateRaftVoter",
        "Vote",
    ]
    left_out = {name + suffix for name in between_nodes for suffix in ("Request", "Response")}
    left_out |= {
        "KRaftVersionRecord",
        "LeaderChangeMessage",
        "SnapshotFooterRecord",
        "SnapshotHeaderRecord",
        "VotersRecord",
    }
    assert set(kwire.SCHEMAS) - declared == left_out


def test_objects_have_slots_and_no_dictionary() -> None:
    request = HeartbeatRequest(group_id="g")
    assert not hasattr(request, "__dict__")
    with pytest.raises(AttributeError):
        request.group = "h"  # type: ignore[attr-defined]
    request.group_id = "h"
    assert request == HeartbeatRequest(group_id="h")


def test_constructors_take_keywords_of_declared_fields_only() -> None:
    with pytest.raises(TypeError, match="has no field 'group'"):
        HeartbeatRequest(group="g")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="keyword arguments only"):
        HeartbeatRequest("g")  # type: ignore[misc]
    name = "".join(["group", "_id"])  # not the interned string
    assert HeartbeatRequest(**{name: "g"}) == HeartbeatRequest(group_id="g")  # type: ignore[arg-type]
    assert type.__call__(HeartbeatRequest, group_id="g") == HeartbeatRequest(group_id="g")


def test_equality_is_by_value_and_lists_equal_tuples() -> None:
    one = OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="t", partitions=[])])
    other = OffsetCommitRequest(topics=(OffsetCommitRequestTopic(name="t", partitions=()),))
    assert one == other
    assert (one != other) is False
    assert one != OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="u")])
    assert one != OffsetCommitRequest(topics=[])
    assert one != "OffsetCommitRequest"
    assert HeartbeatRequest(group_id="g") != HeartbeatRequest(group_id="h")
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    with pytest.raises(TypeError, match="not supported"):
        one < other  # type: ignore[operator]  # noqa: B015


def test_repr_leaves_defaults_out() -> None:
    assert repr(HeartbeatRequest()) == "HeartbeatRequest()"
    assert repr(HeartbeatRequest(generation_id=0, member_id="m")) == "HeartbeatRequest(member_id='m')"


@pytest.mark.parametrize("code", [42, ErrorCode.INVALID_REQUEST])
def test_repr_names_error_codes(code: int) -> None:
    assert repr(HeartbeatResponse(error_code=code)) == "HeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)"
    result = AddPartitionsToTxnPartitionResult(partition_index=1, partition_error_code=code)
    assert repr(result).endswith("(partition_index=1, partition_error_code=ErrorCode.INVALID_REQUEST)")
    assert repr(HeartbeatResponse(error_code=9_999)) == "HeartbeatResponse(error_code=9999)"
    assert repr(HeartbeatResponse(error_code=-1)) == "HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)"


def test_default_structs_are_not_shared() -> None:
    """Each object, whether constructed or decoded, has its own default struct."""
    first, second = PartitionData(), PartitionData()
    first.current_leader.leader_id = 7
    assert second.current_leader.leader_id == -1
    assert first.current_leader.leader_id == 7
    data = FetchResponse(responses=()).encode(12)
    assert FetchResponse.decode(data, 12) == FetchResponse()
    first.current_leader = second.current_leader
    assert first == second


def test_lazy_slots_check_their_objects() -> None:
    with pytest.raises(TypeError, match="is not a PartitionData"):
        vars(PartitionData)["current_leader"].__get__(HeartbeatRequest(), HeartbeatRequest)
    with pytest.raises(TypeError, match="is not a PartitionData"):
        vars(PartitionData)["current_leader"].__set__(HeartbeatRequest(), None)


def test_copies_and_pickles_are_equal() -> None:
    message = OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="t", topic_id=bytes(range(16)))])
    assert pickle.loads(pickle.dumps(message)) == message
    deep = copy.deepcopy(message)
    assert deep == message
    assert deep.topics[0] is not message.topics[0]


def test_subclasses_add_behaviour_but_no_fields() -> None:
    class Named(HeartbeatRequest):
        __slots__ = ()

        @property
        def name(self) -> str:
            return self.group_id.upper()

    assert Named(group_id="g").name == "G"
    assert Named.decode(HeartbeatRequest(group_id="g").encode(4), 4).name == "G"
    assert Named(group_id="g").encode(4) == HeartbeatRequest(group_id="g").encode(4)
    with pytest.raises(TypeError, match="cannot be extended"):

        class Longer(HeartbeatRequest):
            more: String = ""


@pytest.mark.parametrize(("text", "span"), [("0+", (0, 32767)), ("3-7", (3, 7)), ("2", (2, 2)), ("none", (32768, -1))])
def test_version_ranges_are_parsed(text: str, span: tuple[int, int]) -> None:
    assert parse_span(text) == span


@pytest.mark.parametrize("text", ["", "a", "5-3", "1-", "-1", "1+2"])
def test_bad_version_ranges_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"version range|ends before"):
        parse_span(text)


def test_bad_declarations_are_refused() -> None:
    with pytest.raises(TypeError, match="has no default"):

        class NoDefault(Struct):
            name: String

    with pytest.raises(TypeError, match="may be null"):

        class HiddenNull(Struct):
            name: String = field(default=None)

    with pytest.raises(TypeError, match="not a wire type"):

        class Unknown(Struct):
            name: dict[str, str] = field(default=None)

    class Inner(Struct):
        number: Int32 = 0

    with pytest.raises(TypeError, match="own class"):

        class WrongFactory(Struct):
            inner: Inner = field(default_factory=dict)


def test_a_declaration_is_enough_for_a_new_message() -> None:
    class Part(Struct):
        """A struct that another struct contains."""

        name: NullableString = None
        numbers: Array[Int32] = ()

    class Whole(Message, versions="0-1", flexible="1+"):
        """A message that contains `Part`."""

        part: Part = field(default_factory=Part)
        parts: Array[Part] | None = field("1+", default=None)

    whole = Whole(part=Part(name="a", numbers=[1]), parts=[Part()])
    assert whole.encode(1) == b"\x02a\x02\x00\x00\x00\x01\x00\x02\x00\x01\x00\x00"
    assert Whole.decode(whole.encode(1), 1) == whole
    assert Whole().encode(0) == b"\xff\xff\x00\x00\x00\x00"
    assert bytes(16) == ZERO_UUID
    assert get_args(Whole.__annotations__["parts"])[1] is type(None)
