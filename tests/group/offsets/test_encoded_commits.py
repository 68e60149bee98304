"""OffsetCommit requests that a server's request queue serves without decoding them.

The responses, the log and the state are the same as those of the generic path, which decodes every request.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kcore.clock import ManualClock
from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.protocol import DecodeError, EncodeError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kcore.runtime import RequestContext
from kcore.server.dispatch import Served
from kcore.server.frames import FrameError
from kcore_ext.codec.frames import encode_request
from kcore_ext.codec.plan import TooManyElementsError
from kcore_ext.runtime.lease import LocalLease
from kcore_ext.server.request_queue import RequestQueue
from tests.group.offsets import test_commit_fast_path as scripts
from tests.group.offsets.test_commit_fast_path import DENIES, GenericCommitApi, World, one, play, topic_id

CLIENT = "client"
HEAD_BYTES = 4 + 4 + 4 + 2 + len(CLIENT) + 1  # length, key and version, correlation id, client id, tags


class EncodedWorld(World):
    """A shard whose commits arrive as frames in the request queue of a connection.

    Args:
        kind: the class of the API.
        authorizer: checks permissions; None allows all.
        more: further arguments of the API's entry in the queue.
    """

    def __init__(self, kind: type[OffsetCommitApi], authorizer: Any = None, **more: Any) -> None:
        super().__init__(kind, authorizer)
        self.entry = Served(self.commits, **more)
        self.failures: list[tuple[Any, str]] = []
        routes: list[Any] = [None] * 48
        routes[self.entry.key] = self.entry
        self.queue = RequestQueue(self, routes, frame_error=FrameError, max_frame_bytes=1 << 20, buffer_bytes=1 << 20)

    # ---- the owner of the queue

    def make_context(self, version: int, client_id: str) -> RequestContext:
        return RequestContext(version, client_id)

    def failed(self, entry: Any, context: Any, request: Any, error: Exception) -> Any:
        self.failures.append((request, str(error)))
        return entry.api.error(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)

    def schedule_flush(self) -> None:
        """The world takes the responses when it makes its observations."""

    # ---- requests

    def send_commit(self, version: int, request: OffsetCommitRequest) -> None:
        try:
            frame = encode_request(request, version, len(self.responses), CLIENT)
        except EncodeError as error:  # the version lacks a field of the request
            self.responses.append(str(error))
        else:
            self.send_frame(frame)

    def send_frame(self, frame: bytes) -> None:
        """Sends a frame. An error that would close the connection is recorded in place of a response."""
        self.now.update()
        self.queue.feed(frame)
        try:
            self.queue.serve()
        except DecodeError as error:
            self.responses.append((type(error), str(error)))
        else:
            self.responses.append("served")

    def observations(self) -> dict[str, Any]:
        observed = super().observations()
        return observed | {"frames": self.queue.take(), "failures": self.failures, "errors": self.entry.errors}


@settings(max_examples=60, deadline=None)
@given(st.lists(scripts.steps, max_size=12), st.sampled_from([None, DENIES]))
def test_encoded_requests_have_the_effects_of_the_generic_path(script: list[Any], authorizer: Any) -> None:
    encoded = play(EncodedWorld(OffsetCommitApi, authorizer), script)
    assert encoded == play(EncodedWorld(GenericCommitApi, authorizer), script)


def mutated(frame: bytes, at: int, what: str, value: int) -> bytes:
    """Returns a frame whose body differs at one position, with the right length."""
    body = bytearray(frame[HEAD_BYTES:])
    at %= len(body) + 1
    match what:
        case "cut":
            del body[at:]
        case "insert":
            body.insert(at, value)
        case "drop":
            del body[at : at + 1]
        case _:
            body[at : at + 1] = bytes([value])
    frame = frame[4:HEAD_BYTES] + bytes(body)
    return len(frame).to_bytes(4, "big") + frame


known = OffsetCommitRequest(
    group_id="g",
    topics=[
        OffsetCommitRequestTopic(
            name="t",
            topic_id=topic_id("t"),
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata=metadata)
                for index, metadata in enumerate(("", None, "m"))
            ],
        ),
        OffsetCommitRequestTopic(
            name="u", topic_id=topic_id("u"), partitions=[OffsetCommitRequestPartition(partition_index=0)]
        ),
    ],
)
changes = st.tuples(
    st.integers(0, 200),
    st.sampled_from(["cut", "insert", "drop", "replace", "replace"]),
    st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]) | st.integers(0, 255),
)


@settings(max_examples=100, deadline=None)
@given(st.integers(8, 10), st.lists(changes, min_size=1, max_size=20))
@example(9, [(at, "replace", value) for at in range(90) for value in (0, 0x80, 0xFF)])
@example(10, [(at, "cut", 0) for at in range(90)] + [(at, "insert", 1) for at in range(90)])
def test_a_malformed_or_unusual_request_has_the_effects_of_the_generic_path(
    version: int, changed: list[tuple[int, str, int]]
) -> None:
    def observe(kind: type[OffsetCommitApi]) -> dict[str, Any]:
        world = EncodedWorld(kind)
        for _ in range(2):
            world.send_commit(version, known)
        frame = encode_request(known, version, 3, CLIENT)
        for change in changed:
            world.send_frame(mutated(frame, *change))
        return world.observations()

    assert observe(OffsetCommitApi) == observe(GenericCommitApi)


def served(world: EncodedWorld) -> tuple[int, int]:
    """Returns the numbers of requests that the fast path has served, and that it has served without decoding them."""
    return world.commits.fast_path.served, world.commits.fast_path.served_encoded


@pytest.mark.parametrize(("version", "encoded"), [(2, 0), (7, 0), (8, 1), (9, 1), (10, 1)])
def test_only_the_first_request_for_a_combination_of_partitions_is_decoded(version: int, encoded: int) -> None:
    world = EncodedWorld(OffsetCommitApi)
    for _ in range(2):
        world.send_commit(version, known)
    assert served(world) == (2, encoded)


def longest(metadata: str = "") -> OffsetCommitRequest:
    """Returns a commit of 126 partitions."""
    partitions = [OffsetCommitRequestPartition(partition_index=p, committed_metadata=metadata) for p in range(126)]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="long", partitions=partitions)])


@pytest.mark.parametrize(
    ("request_", "more"),
    [
        (OffsetCommitRequest(group_id="g" * 127, topics=known.topics), {}),
        (OffsetCommitRequest(group_id="g", topics=known.topics, group_instance_id="i" * 127), {}),
        (OffsetCommitRequest(group_id="g", topics=[]), {}),
        (OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t")]), {}),
        (OffsetCommitRequest(group_id="g", topics=[one("t", 0, committed_metadata="é" * 64)]), {}),
        (OffsetCommitRequest(group_id="g", topics=[one("t", 0, committed_metadata="m" * 9)]), {}),
    ],
    ids=["long group id", "long instance id", "no topics", "no partitions", "long metadata", "refused metadata"],
)
def test_an_unusual_request_is_decoded(request_: OffsetCommitRequest, more: dict[str, Any]) -> None:
    world, generic = EncodedWorld(OffsetCommitApi), EncodedWorld(GenericCommitApi)
    for each in (world, generic):
        for _ in range(2):
            each.send_commit(9, request_)
    assert served(world)[1] == 0
    assert world.observations() == generic.observations()


def test_a_large_request_is_served_up_to_the_largest_key() -> None:
    world, generic = EncodedWorld(OffsetCommitApi), EncodedWorld(GenericCommitApi)
    for each in (world, generic):
        for metadata in ("", "m" * scripts.MAX_METADATA, "ü"):
            each.send_commit(9, longest(metadata))
    assert served(world) == (3, 2)
    assert world.observations() == generic.observations()


def test_elements_beyond_the_limit_of_the_server_are_refused() -> None:
    world = EncodedWorld(OffsetCommitApi, max_request_elements=5)
    assert world.commits.fast(RequestContext(9, CLIENT), known) is not None, "caches the combination of partitions"
    world.send_commit(9, known)
    assert world.responses == [(TooManyElementsError, "at byte 88: the message has more array elements than allowed")]
    assert served(world) == (1, 0)


def test_a_failed_commit_reports_the_error_for_each_partition_of_the_request() -> None:
    world = EncodedWorld(OffsetCommitApi)
    for _ in range(2):
        world.send_commit(9, known)
    world.fail_next_commit()
    world.commit()
    assert served(world) == (2, 1)
    frames = world.queue.take()
    half = len(frames) // 2
    response = OffsetCommitResponse.decode(frames[half:], 9, 9)
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in response.topics] == [
        ("t", [(index, ErrorCode.NOT_COORDINATOR) for index in range(3)]),
        ("u", [(0, ErrorCode.NOT_COORDINATOR)]),
    ]


def test_an_exception_is_reported_with_the_decoded_request() -> None:
    class Fails:
        """An authorizer that raises after its first two calls."""

        calls = 0

        def allowed(self, *_: Any) -> bool:
            self.calls += 1
            if self.calls > 4:
                raise RuntimeError("no decision")
            return True

    world = EncodedWorld(OffsetCommitApi, Fails())
    request = OffsetCommitRequest(group_id="g", topics=[one("t", 0)])
    for _ in range(3):
        world.send_commit(9, request)
    assert world.failures == [(request, "no decision")]


@pytest.mark.parametrize("valid", [True, False])
def test_an_encoded_request_needs_a_valid_lease(valid: bool) -> None:
    world = EncodedWorld(OffsetCommitApi)
    for _ in range(2):
        world.send_commit(9, known)
    clock = ManualClock(0, 0)
    world.entry.lease = LocalLease(clock, 1_000)
    if not valid:
        clock.advance(1_000)
    world.send_commit(9, known)
    assert served(world) == ((3, 2) if valid else (2, 1))


def observing(entry: Served) -> None:
    entry.fast = None


def measuring(entry: Served) -> None:
    entry.meter = lambda entry, context, request: entry.decide(context, request)


def replacing(entry: Served) -> None:
    fast = entry.api.fast
    entry.fast = partial(fast)


@pytest.mark.parametrize("intercept", [observing, measuring, replacing])
def test_a_function_that_intercepts_requests_receives_them_decoded(intercept: Callable[[Served], None]) -> None:
    world = EncodedWorld(OffsetCommitApi)
    world.send_commit(9, known)
    intercept(world.entry)
    world.send_commit(9, known)
    assert served(world)[1] == 0
    world.entry.meter, world.entry.fast = None, world.commits.fast
    world.send_commit(9, known)
    assert served(world)[1] == 1


class Counting:
    """An authorizer that counts its calls. It refuses the topic `denied`, and calls `hook` at the first refusal."""

    def __init__(self, denied: str = "", hook: Callable[[], object] = bool) -> None:
        self.calls = 0
        self.denied = denied
        self._hook = hook

    def allowed(self, context: Any, operation: Any, resource_type: Any, name: str) -> bool:
        self.calls += 1
        if name != self.denied:
            return True
        hook, self._hook = self._hook, bool
        hook()
        return False


def test_a_declined_request_is_not_checked_more_often_than_a_decoded_one() -> None:
    def calls(intercept: Callable[[Served], None]) -> int:
        authorizer = Counting()
        world = EncodedWorld(OffsetCommitApi, authorizer)
        intercept(world.entry)
        for _ in range(2):
            world.send_commit(9, known)
        authorizer.denied, authorizer.calls = "u", 0
        world.send_commit(9, known)
        return authorizer.calls

    assert calls(lambda entry: None) == calls(replacing)


def test_bytes_that_arrive_while_a_request_is_decided_do_not_change_it() -> None:
    """A function that the decision calls may feed the queue, whose buffer grows then."""

    def observe(kind: type[OffsetCommitApi]) -> dict[str, Any]:
        authorizer = Counting(hook=lambda: world.queue.feed(frames[-1][20:]))
        world = EncodedWorld(kind, authorizer)
        requests = [OffsetCommitRequest(group_id=f"g{i}", topics=[one("t", 0, committed_offset=i)]) for i in range(4)]
        world.send_commit(9, requests[0])
        authorizer.denied = "t"
        frames = [encode_request(request, 9, 100 + i, CLIENT) for i, request in enumerate(requests)]
        world.queue.feed(frames[1][:10])
        world.queue.feed(frames[1][10:] + frames[2] + frames[3][:20])
        world.queue.serve()
        return world.observations()

    assert observe(OffsetCommitApi) == observe(GenericCommitApi)


def test_an_api_that_wraps_its_fast_path_gets_every_request() -> None:
    requests: list[Any] = []

    class Wrapping(OffsetCommitApi):
        """OffsetCommitApi with a fast path that records its requests."""

        __slots__ = ()

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            fast = self.fast

            def record(context: Any, request: Any) -> Any:
                requests.append(request)
                return fast(context, request)

            self.fast = record

    world = EncodedWorld(Wrapping)
    for _ in range(3):
        world.send_commit(9, known)
    assert len(requests) == 3


def test_an_interrupted_request_is_counted_like_a_decoded_one() -> None:
    def count(kind: type[OffsetCommitApi]) -> int:
        def interrupt() -> None:
            raise KeyboardInterrupt

        authorizer = Counting(hook=interrupt)
        world = EncodedWorld(kind, authorizer)
        world.send_commit(9, known)
        authorizer.denied = "u"
        with pytest.raises(KeyboardInterrupt):
            world.send_commit(9, known)
        return world.entry.requests

    assert count(OffsetCommitApi) == count(GenericCommitApi) == 2


def test_each_request_is_decided_in_the_context_of_its_own_header() -> None:
    """Requests with the same header share a context, and the queue does not read the header again."""

    class Records:
        """An authorizer that records the contexts of its calls."""

        def __init__(self) -> None:
            self.contexts: list[RequestContext] = []

        def allowed(self, context: RequestContext, *_: Any) -> bool:
            self.contexts.append(context)
            return True

    def contexts(kind: type[OffsetCommitApi]) -> list[tuple[int, str]]:
        authorizer = Records()
        world = EncodedWorld(kind, authorizer)
        request = OffsetCommitRequest(group_id="g", topics=[one("t", 0)])
        headers = [(9, "a"), (9, "a"), (9, "b"), (9, "a"), (8, "a"), (9, "ab"), (9, ""), (9, "c" * 300), (9, "c" * 300)]
        for version, client_id in headers:
            world.send_frame(encode_request(request, version, 7, client_id))
        found = [(context.api_version, context.client_id) for context in authorizer.contexts]
        assert list(dict.fromkeys(found)) == list(dict.fromkeys(headers))
        assert found[::2] == found[1::2] == headers  # permissions for the group and for the topic
        return found

    assert contexts(OffsetCommitApi) == contexts(GenericCommitApi)


def test_a_cleared_cache_forgets_the_context_of_the_last_header() -> None:
    made: list[str] = []

    class Renewed(EncodedWorld):
        def make_context(self, version: int, client_id: str) -> RequestContext:
            made.append(client_id)
            return super().make_context(version, client_id)

    world = Renewed(OffsetCommitApi)
    for _ in range(3):
        world.send_commit(9, known)
    assert made == [CLIENT]
    world.queue.clear_cache()
    world.send_commit(9, known)
    assert made == [CLIENT, CLIENT]
    assert served(world) == (4, 3)


def test_failed_commits_of_one_read_report_their_own_partitions() -> None:
    world = EncodedWorld(OffsetCommitApi)
    requests = [OffsetCommitRequest(group_id="g", topics=[one("t", index)]) for index in range(3)]
    for request in requests:
        world.send_commit(9, request)
    world.commit()
    assert world.queue.take()
    world.send_frame(b"".join(encode_request(request, 9, at, CLIENT) for at, request in enumerate(requests)))
    world.fail_next_commit()
    world.commit()
    assert served(world) == (6, 3)
    frames = world.queue.take()
    size = len(frames) // 3
    for at in range(3):
        (topic,) = OffsetCommitResponse.decode(frames[at * size : (at + 1) * size], 9, 9).topics
        assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(at, ErrorCode.NOT_COORDINATOR)]


def test_a_waiting_commit_does_not_keep_a_large_read_in_memory() -> None:
    """A read of the socket has up to 256 KiB. A commit needs only its own bytes, until its response is complete."""
    world = EncodedWorld(OffsetCommitApi)
    for _ in range(2):
        world.send_commit(9, known)
    world.commit()
    assert world.queue.take()
    received = encode_request(known, 9, 7, CLIENT) + (500_000).to_bytes(4, "big") + b"\0\x08" + bytes(200_000)
    references = sys.getrefcount(received)
    world.send_frame(received)
    world.send_frame(bytes(100_000))  # the queue copies the incomplete request to another buffer
    assert served(world) == (3, 2)
    assert sys.getrefcount(received) == references
    world.fail_next_commit()
    world.commit()
    topics = OffsetCommitResponse.decode(world.queue.take(), 9, 9).topics
    assert [topic.name for topic in topics] == ["t", "u"]
    assert {p.error_code for topic in topics for p in topic.partitions} == {ErrorCode.NOT_COORDINATOR}
