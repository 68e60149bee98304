"""Reference counts, garbage collection and memory: the codec leaks nothing and retains no large buffer."""

import gc
import sys
import tracemalloc
import weakref

import pytest

from kcore.protocol import DecodeError, EncodeError
from kcore.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.schema import Message, NullableString, Struct


def _large() -> FetchResponse:
    partition = PartitionData(
        partition_index=1000, high_watermark=2**40, records=b"r" * 5000, current_leader=LeaderIdAndEpoch(leader_id=1000)
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic="topic-name", partitions=[partition] * 3)])


def _grown(action: object, times: int = 300) -> int:
    """Returns the bytes that are still allocated after `times` calls."""
    for _ in range(50):
        action()  # type: ignore[operator]
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            action()  # type: ignore[operator]
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_reading_writing_and_failing_leave_no_memory_behind() -> None:
    message = _large()
    data = message.encode(12)
    unfit = HeartbeatRequest(group_id="x" * 40, generation_id=2**40)

    def everything() -> None:
        read = FetchResponse.decode(data, 12)
        assert read == message
        assert read.encode(12) == data
        repr(read)
        for size in (5, 20, 60, 5100, 9000):
            with pytest.raises(DecodeError):
                FetchResponse.decode(data[:size], 12)
        with pytest.raises(EncodeError):
            unfit.encode(4)
        with pytest.raises(TypeError):
            HeartbeatRequest(group_id="g", nothing=object())  # type: ignore[call-arg]

    assert _grown(everything, 100) < 5000, "one leaked object in each call would be more than 100 times 40 bytes"


def test_values_are_referenced_once_by_their_slot() -> None:
    name = "a name that nobody else has"
    count = sys.getrefcount(name)
    request = HeartbeatRequest(group_id=name)
    assert sys.getrefcount(name) == count + 1
    request.encode(4)
    repr(request)
    assert request == HeartbeatRequest(group_id="a name that nobody else has")
    assert sys.getrefcount(name) == count + 1
    request.__init__(group_id="b")  # type: ignore[misc]
    assert sys.getrefcount(name) == count
    del request


def test_decoded_objects_hold_the_only_reference_to_their_values() -> None:
    read = OffsetCommitRequest.decode(
        OffsetCommitRequest(
            group_id="group" * 20,
            topics=[OffsetCommitRequestTopic(name="n" * 99, partitions=[OffsetCommitRequestPartition()])],
        ).encode(9),
        9,
    )
    alone = ([],)
    expected = sys.getrefcount(alone[0])
    topics = read.topics
    found = [sys.getrefcount(topics[0]), sys.getrefcount(topics[0].partitions), sys.getrefcount(topics[0].name)]
    assert found == [expected] * 3


def test_defaults_keep_their_references() -> None:
    defaults = [spec.default for spec in HeartbeatRequest.FIELDS]
    before = [sys.getrefcount(default) for default in defaults]
    data = HeartbeatRequest().encode(0)
    for _ in range(2000):
        HeartbeatRequest.decode(data, 0).encode(2)
        HeartbeatRequest()
    after = [sys.getrefcount(default) for default in defaults]
    assert all(abs(a - b) < 500 for a, b in zip(after, before, strict=True))


def test_cycles_through_messages_are_collected() -> None:
    class Holder:
        message: object = None

    holder = Holder()
    gone = weakref.ref(holder)
    read = OffsetCommitRequest.decode(OffsetCommitRequest(topics=[OffsetCommitRequestTopic()]).encode(9), 9)
    holder.message = read
    read.topics[0].partitions = (holder,)  # type: ignore[assignment]
    assert gc.is_tracked(read)
    del holder, read
    gc.collect()
    assert gone() is None


def test_message_classes_themselves_are_collected() -> None:
    """A message class and the codec's data about it form reference cycles. The garbage collector frees the class when
    it is no longer used.
    """

    def define() -> weakref.ref[type]:
        class Part(Struct):
            name: NullableString = None

        class Temporary(Message, versions="0"):
            name: NullableString = None

        assert Temporary.decode(Temporary(name="x").encode(0), 0) == Temporary(name="x")
        assert Part(name="x") != Part()
        return weakref.ref(Temporary)

    references = [define() for _ in range(20)]
    gc.collect()
    assert [ref() for ref in references] == [None] * 20
    assert HeartbeatRequest(group_id="g").encode(0)[:3] == b"\x00\x01g"


def test_no_large_buffer_outlives_its_message() -> None:
    """A response of 64 MB is encoded and deleted. The encoder keeps none of the memory."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        records = b"r" * 64_000_000
        message = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])
        data = message.encode(12)
        assert len(data) > 64_000_000
        assert sys.getsizeof(data) < len(data) + 1000
        del message, data, records
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


def test_a_buffer_is_released_after_reading() -> None:
    data = bytearray(HeartbeatRequest(group_id="g").encode(4))
    view = memoryview(data)
    assert HeartbeatRequest.decode(view, 4).group_id == "g"
    with pytest.raises(DecodeError):
        HeartbeatRequest.decode(view[:4], 4)
    view.release()
    data.extend(b"more")


def test_a_message_may_be_written_during_another_one() -> None:
    """A field's own Python code encodes other messages while the codec encodes the field. The bytes of the messages are
    not mixed up.
    """
    inner = HeartbeatRequest(group_id="i" * 100)
    seen: list[bytes] = []

    class Sneaky(list[JoinGroupResponseMember]):
        pass

    class Members:
        def __iter__(self) -> object:
            seen.append(inner.encode(4))
            seen.append(_large().encode(12))
            return iter([JoinGroupResponseMember(member_id="m", metadata=b"x" * 100_000)])

        def __len__(self) -> int:
            return 1

    outer = JoinGroupResponse(members=Members(), protocol_name="p")  # type: ignore[arg-type]
    plain = JoinGroupResponse(
        members=[JoinGroupResponseMember(member_id="m", metadata=b"x" * 100_000)], protocol_name="p"
    )
    assert outer.encode(5) == plain.encode(5)
    assert seen == [inner.encode(4), _large().encode(12)]
    assert JoinGroupResponse(members=Sneaky(plain.members), protocol_name="p").encode(5) == plain.encode(5)


def test_a_list_that_changes_while_it_is_written_is_refused() -> None:
    """Python code of an element may change the list during the encoding. The encoder must not read freed memory."""
    from kcore.protocol import EncodeError

    members: list[JoinGroupResponseMember] = []

    class Shrinking(bytearray):
        pass

    class Clears:
        def __iter__(self) -> object:
            members.clear()
            return iter(())

    members += [JoinGroupResponseMember(metadata=Clears()), JoinGroupResponseMember()]  # type: ignore[arg-type]
    with pytest.raises(EncodeError):
        JoinGroupResponse(members=members, protocol_name="p").encode(5)


def test_deeply_nested_structs_are_freed_without_recursion() -> None:
    """A program links 300,000 structs into a chain, deeper than any decoded message. Freeing the chain must not
    overflow the stack.
    """
    from kcore.protocol.messages.streams_group_heartbeat import Endpoint

    before = sys.getallocatedblocks()
    chain = Endpoint()
    for _ in range(300_000):
        chain = Endpoint(host=chain)  # type: ignore[arg-type]
    del chain
    gc.collect()
    pairs = Endpoint()
    for _ in range(100_000):
        pairs = Endpoint(host=(pairs,))  # type: ignore[arg-type]
    del pairs
    gc.collect()
    assert sys.getallocatedblocks() - before < 10_000, "most of the half a million objects are freed"


def test_classes_without_fields_have_instances_too() -> None:
    class Nothing(Message, versions="0", flexible="0+"):
        pass

    for _ in range(1000):
        assert Nothing.decode(Nothing().encode(0), 0) == Nothing()
    assert Nothing().encode(0) == b"\x00"


@pytest.mark.parametrize("slot", ["__dict__", "__weakref__", "extra"])
def test_message_classes_accept_only_fields(slot: str) -> None:
    """A subclass of a message may not define other slots, a dictionary, weak references or `__del__`. The compiled code
    would ignore them when it creates and frees objects.
    """
    with pytest.raises(TypeError, match="fields and nothing else"):
        type(HeartbeatRequest)("Odd", (HeartbeatRequest,), {"__slots__": (slot,)})
    with pytest.raises(TypeError, match="fields and nothing else"):
        type(HeartbeatRequest)("Odd", (HeartbeatRequest,), {"__del__": lambda self: None})


def test_a_freed_object_leaves_no_state_to_the_next_one_of_its_size() -> None:
    for _ in range(600):
        HeartbeatRequest(group_id="secret", member_id="m")
    fresh = HeartbeatRequest.__new__(HeartbeatRequest)
    with pytest.raises(AttributeError):
        _ = fresh.group_id
    assert fresh == HeartbeatRequest(), "an empty slot counts as its default"
    assert HeartbeatRequest().encode(4) == fresh.encode(4)
