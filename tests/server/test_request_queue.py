"""The compiled request queue equals its reference implementation at every step: same responses, calls and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.errors import CloseConnectionError, KafkaError
from kcore.protocol import EncodeError, MessageTooLargeError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kcore.runtime import Api, Pending, RequestContext
from kcore.server.dispatch import RefusedError, Served
from kcore.server.errors import MAX_MESSAGE, error_counter
from kcore.server.frames import FrameError
from kcore_ext.codec.frames import encode_request
from kcore_ext.server.request_queue import (
    MAX_WAITING_BYTES,
    WAITING_OVERHEAD_BYTES,
    RequestQueue,
    ResponseSlot,
)
from tests.reference.request_queue import ReferenceRequestQueue, ReferenceResponseSlot

MAX_FRAME = 2_000
BUFFER = 120
LIMIT, ROOM = 20_000, 18_000

SHARED = [HeartbeatResponse(error_code=code) for code in (0, 25, 27)]
"""Responses of an API that returns the same object repeatedly, as a group does for its heartbeats."""


class Beat(Api[HeartbeatRequest, HeartbeatResponse]):
    """An API that shares one response for each generation. It refuses, fails or parks the requests of some groups."""

    key = ApiKey.HEARTBEAT
    request_type = HeartbeatRequest
    response_type = HeartbeatResponse
    versions = (1, 4)
    caches_requests = True
    caches_responses = True
    small_responses = True

    __slots__ = ("owner",)

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def handle(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        self.owner.calls.append((context, request))
        match request.group_id:
            case "refused":
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            case "broken":
                raise RuntimeError("a bug")
            case "silent":
                return None
            case "new":
                return HeartbeatResponse(error_code=request.generation_id % 3)
            case "parked" | "later" as how:
                pending = Pending(self, context, request, parked=how == "parked")
                self.owner.pendings.append(pending)
                return pending
            case "done":
                pending = Pending(self, context, request)
                pending.complete(SHARED[0])
                return pending
        return SHARED[request.generation_id % 3]

    def error(
        self, context: RequestContext, request: HeartbeatRequest, code: ErrorCode, message: str | None = None
    ) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=code)


class Find(Api[FindCoordinatorRequest, FindCoordinatorResponse]):
    """A FindCoordinator API for tests. The number in the request's key is the length of the response's error message,
    which may be too long to encode. With a negative number, the response is pending.
    """

    key = ApiKey.FIND_COORDINATOR
    request_type = FindCoordinatorRequest
    response_type = FindCoordinatorResponse
    versions = (0, 2)

    __slots__ = ("owner",)

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def handle(self, context: RequestContext, request: FindCoordinatorRequest) -> Any:
        if request.key.startswith("-"):
            pending = Pending(self, context, request)
            self.owner.pendings.append(pending)
            return pending
        return FindCoordinatorResponse(error_message="x" * int(request.key or 0), host="h" * int(request.key == "1"))

    def error(self, *arguments: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse()


class Delete(Api[OffsetDeleteRequest, OffsetDeleteResponse]):
    """An API that returns a response that cannot be encoded."""

    key = ApiKey.OFFSET_DELETE
    request_type = OffsetDeleteRequest
    response_type = OffsetDeleteResponse
    versions = (0, 0)

    def handle(self, context: RequestContext, request: OffsetDeleteRequest) -> Any:
        return OffsetDeleteResponse(throttle_time_ms="never")  # type: ignore[arg-type]

    def error(self, *arguments: Any) -> OffsetDeleteResponse:
        return OffsetDeleteResponse()


class Owner:
    """A connection as the queue uses it. Records all calls."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.calls: list[Any] = []
        self.pendings: list[Pending] = []
        served = [Served(Beat(self)), Served(Find(self), LIMIT, self.reserve_memory), Served(Delete())]
        routes: list[Any] = [None] * 48
        for route in served:
            route.count_errors = error_counter(route.api.response_type)
            routes[route.key] = route
        self.late = {route.key: route for route in served[1:]}  # not requested yet
        for key in self.late:
            routes[key] = None
        self.routes = routes
        self.served = served
        self.queue = make(
            self,
            routes,
            frame_error=FrameError,
            max_frame_bytes=MAX_FRAME,
            buffer_bytes=BUFFER,
        )

    def make_context(self, version: int, client_id: str) -> RequestContext:
        return RequestContext(version, client_id)

    def route(self, api_key: int) -> Any:
        self.calls.append(("route", api_key))
        route = self.late.pop(api_key, None)
        if route is not None:
            self.routes[api_key] = route
        return route

    def unsupported(self, api_key: int, version: int) -> Any:
        if api_key == ApiKey.HEARTBEAT:
            return HeartbeatResponse(error_code=35), self.served[0], 1
        raise RefusedError(f"{api_key} {version}")

    def failed(self, route: Any, context: Any, request: Any, error: Exception) -> Any:
        self.calls.append((type(error), str(error)))
        return route.api.error(context, request, error.code if isinstance(error, KafkaError) else ErrorCode(-1))

    def reserve_memory(self, size_bytes: int) -> None:
        self.calls.append(("reserve_memory", size_bytes))
        if size_bytes > ROOM:
            raise MessageTooLargeError("room", ROOM)

    def too_large(self, route: Any, api: Any, context: Any, request: Any, version: int, error: Exception) -> Any:
        self.calls.append(("too large", route.key, api.key, context, request, version, str(error)))
        if version == 2:
            raise CloseConnectionError("there is no error")
        return FindCoordinatorResponse(error_code=ErrorCode.POLICY_VIOLATION)

    def schedule_flush(self) -> None:
        self.calls.append("schedule_flush")

    def response_failed(self, failed: Any, error: Exception) -> None:
        self.calls.append(("cannot respond", type(error)))
        self.queue.remove_from(failed)

    def gate(self, frame: bytes) -> None:
        self.calls.append(("gate", frame))
        if len(frame) % 2:
            self.queue.request(frame)

    def observable_state(self) -> dict[str, Any]:
        """Returns the state that both implementations must share: the calls of the owner, and the public state of the
        queue.
        """
        queue = self.queue
        return {
            "calls": self.calls,
            "pendings": len(self.pendings),
            "parked": queue.parked,
            "stopped": queue.stopped,
            "held": queue.held_bytes,
            "waiting": queue.waiting,
            "left": len(queue),
            "claim": queue.claim_bytes,
            "counts": [(route.requests, route.errors) for route in self.served],
        }


def beat(group: str, generation: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id="m")
    return encode_request(request, version, correlation_id, client_id)


groups = st.sampled_from(["g", "g", "g", "new", "refused", "broken", "silent", "parked", "later", "done"])
requests = st.one_of(
    st.builds(
        beat, groups, st.integers(0, 2), st.integers(1, 4), st.integers(-(2**31), 2**31 - 1),
        st.sampled_from(["a", "b", "", None, "y" * 300]),
    ),
    st.builds(
        lambda size, version: encode_request(FindCoordinatorRequest(key=str(size)), version, 7, "a"),
        st.sampled_from([0, 1, MAX_MESSAGE, 17_000, 19_000, 21_000, 40_000, -1]), st.integers(1, 2),
    ),
    st.just(encode_request(OffsetDeleteRequest(group_id="g"), 0, 9, "a")),
    st.binary(max_size=30).map(lambda frame: len(frame).to_bytes(4, "big") + frame),
    st.sampled_from([(-1).to_bytes(4, "big", signed=True), (MAX_FRAME + 1).to_bytes(4, "big")]),
    st.just(beat("g", 0, 4, 5, "a").replace(b"\0\x0c\0\x04", b"\0\x0c\0\x09", 1)),  # a future version
)  # fmt: skip
steps = st.lists(
    st.one_of(
        st.lists(requests, min_size=1, max_size=8).map(lambda frames: ("feed", b"".join(frames))),
        st.integers(1, 60).map(lambda size: ("pieces", size)),
        st.tuples(st.just("complete"), st.integers(0, 5)),
        st.sampled_from(
            [("take", 0), ("clear_cache", 0), ("gate", 0), ("open", 0), ("set_max_frame_bytes", 60), ("close", 0)]
        ),
    ),
    max_size=14,
)


def play(make: Callable[..., Any], script: list[tuple[str, Any]]) -> list[Any]:
    """Runs a script. Returns the observations after every step."""
    owner = Owner(make)
    queue = owner.queue
    seen: list[Any] = []
    pieces = 0

    def serve() -> None:
        try:
            seen.append(queue.serve())
        except (FrameError, RefusedError, EncodeError, CloseConnectionError) as error:
            seen.append((type(error), str(error)))
            queue.clear()
            queue.stopped = True
        except ValueError as error:  # an unreadable request
            seen.append((type(error), str(error)))
            queue.clear()

    for what, argument in script:
        if what == "feed":
            for at in range(0, len(argument), pieces or len(argument)):
                queue.feed(argument[at : at + (pieces or len(argument))])
                serve()
        elif what == "pieces":
            pieces = argument
        elif what == "complete":
            waiting = [pending for pending in owner.pendings if not pending.done]
            if argument < len(waiting):
                response: Any = SHARED[argument % 3] if argument < 4 else HeartbeatResponse(error_code="no")  # type: ignore[arg-type]
                if waiting[argument].api.key == ApiKey.FIND_COORDINATOR and argument < 4:
                    response = FindCoordinatorResponse(error_message="x" * (17_000 + argument * 2_000))
                waiting[argument].complete(response)
                serve()
        elif what == "take":
            seen.append(queue.take())
            serve()
        elif what == "gate":
            queue.gate = owner.gate
        elif what == "open":
            queue.gate = None
        elif what == "set_max_frame_bytes":
            queue.set_max_frame_bytes(argument)
        else:
            getattr(queue, what)()
        seen.append(owner.observable_state() | {"calls": list(owner.calls)})
    seen.append(queue.take())
    return seen


@settings(max_examples=100, deadline=None)
@given(steps)
def test_both_queues_behave_alike(script: list[tuple[str, Any]]) -> None:
    assert play(RequestQueue, script) == play(ReferenceRequestQueue, script)


@pytest.mark.parametrize(
    ("make", "response_type"), [(RequestQueue, ResponseSlot), (ReferenceRequestQueue, ReferenceResponseSlot)]
)
def test_a_response_slot_holds_back_the_slots_behind_it(make: Any, response_type: Any) -> None:
    owner = Owner(make)
    response = response_type(owner.queue, owner.served[0], 4, 3)
    owner.queue.defer(response, parked=True)
    owner.queue.defer(response)
    owner.queue.feed(beat("g", 0, 1, 4, "a"))
    assert (owner.queue.serve(), owner.calls, owner.queue.waiting) == (False, [], True)
    response.complete(b"whole")
    owner.queue.serve()
    assert owner.queue.take() == b"whole" + b"\0\0\0\x0a\0\0\0\x04\0\0\0\0\0\0"
    assert (owner.queue.waiting, owner.queue.parked, owner.queue.held_bytes) == (False, False, 0)


def test_a_repeated_request_is_not_decoded_again_and_its_context_is_made_once() -> None:
    """A request that is repeated byte for byte gets the cached request object and context. After `clear_cache`, which a
    change of the principal calls, both are created again.
    """
    owner = Owner(RequestQueue)
    for correlation_id in range(3):
        owner.queue.feed(beat("g", 1, 4, correlation_id, "a"))
        owner.queue.serve()
    (first, *others) = owner.calls
    assert all(context is first[0] and request is first[1] for context, request in others)
    assert owner.queue.take() == b"".join(
        b"\0\0\0\x0c" + correlation_id.to_bytes(4, "big") + b"\0\0\0\0\0\0\x19\0" for correlation_id in range(3)
    )
    owner.queue.clear_cache()
    owner.queue.feed(beat("g", 1, 4, 3, "a"))
    owner.queue.serve()
    assert owner.calls[-1] == first
    assert owner.calls[-1][0] is not first[0]


def test_each_version_and_client_id_has_its_own_context_until_the_principal_changes() -> None:
    """Requests of two versions and two client ids alternate. After `clear_cache`, each context is made again."""
    owner = Owner(RequestQueue)
    versions_and_ids = [(4, "a"), (3, "a"), (3, "b"), (4, "b")]

    def contexts(first_generation: int) -> list[Any]:
        made = []
        for generation_id in range(first_generation, first_generation + 2):
            for version, client_id in versions_and_ids:
                owner.queue.feed(beat("g", generation_id, version, 0, client_id))
                owner.queue.serve()
                assert owner.queue.take()
                made.append(owner.calls[-1][0])
        return made

    made = contexts(1)
    assert [(context.api_version, context.client_id) for context in made] == versions_and_ids * 2
    assert all(again is context for again, context in zip(made[4:], made[:4], strict=True))
    owner.queue.clear_cache()
    later = contexts(3)
    assert later == made
    assert not any(new is old for new in later for old in made)


@pytest.mark.parametrize("make", [RequestQueue, ReferenceRequestQueue])
def test_requests_after_a_possibly_large_response_that_waits_for_a_commit_are_not_read(make: Any) -> None:
    """A response that may be large waits for a commit. The queue reads no further request until then, because one read
    could otherwise add thousands of large responses to a commit.
    """
    owner = Owner(make)
    large = encode_request(FindCoordinatorRequest(key="-1"), 1, 7, "a")
    owner.queue.feed(beat("later", 0, 4, 1, "a") * 3 + large * 3)
    owner.queue.serve()
    assert (len(owner.pendings), owner.queue.parked, len(owner.queue)) == (4, True, 2 * len(large))
    for pending in owner.pendings[:3]:
        pending.complete(SHARED[0])
    owner.queue.serve()
    assert (len(owner.pendings), owner.queue.parked) == (4, True)
    owner.pendings[3].complete(FindCoordinatorResponse())
    owner.queue.serve()
    assert (len(owner.pendings), owner.queue.parked, len(owner.queue)) == (5, True, len(large))


def test_an_exception_in_place_of_a_response_closes_the_connection() -> None:
    """`Pending.complete` delivers an exception if there is no memory for an error response."""
    owner = Owner(RequestQueue)
    owner.queue.feed(beat("later", 0, 4, 1, "a"))
    owner.queue.serve()
    (pending,) = owner.pendings
    pending.complete(MemoryError("a step failed"))
    assert [call for call in owner.calls if call[0] == "cannot respond"] == [("cannot respond", AttributeError)]
    assert owner.queue.take() is None


@pytest.mark.parametrize("how", ["arrive", "cut", "close"])
def test_a_long_row_of_responses_is_freed_on_a_small_stack(how: str) -> None:
    """Each slot references the next one, so freeing a long queue must not recurse."""
    owner = Owner(lambda *arguments, **named: RequestQueue(*arguments, **{**named, "buffer_bytes": 1 << 30}))
    count = 50_000
    owner.queue.feed(beat("later", 0, 4, 1, "a") + beat("g", 0, 1, 2, "a") * count)

    def run() -> None:
        owner.queue.serve()
        if how == "close":
            owner.queue.close()
        else:
            owner.pendings[0].complete(SHARED[0] if how == "arrive" else HeartbeatResponse(error_code="no"))  # type: ignore[arg-type]

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    responses = owner.queue.take() or b""
    assert (owner.queue.waiting, owner.queue.parked) == (False, False)
    assert len(responses) == (16 + 14 * count if how == "arrive" else 0)


@pytest.mark.parametrize("make", [RequestQueue, ReferenceRequestQueue])
def test_a_large_frame_in_small_pieces_is_one_frame(make: Any) -> None:
    owner = Owner(make)
    frame = beat("g" * 1_500, 0, 1, 4, "a")
    for at in range(0, len(frame), 7):
        assert owner.queue.claim_bytes == (0 if at == 0 else len(frame))
        owner.queue.feed(frame[at : at + 7])
        owner.queue.serve()
    assert [request.group_id for _, request in owner.calls] == ["g" * 1_500]


def test_the_cache_of_a_queue_is_bounded() -> None:
    owner = Owner(RequestQueue)
    for number in range(500):
        owner.queue.feed(beat(f"g{number}", 0, 4, number, f"client-{number}"))
        owner.queue.serve()
        owner.queue.take()
        assert owner.queue.cache_size <= 32 + 64


@pytest.mark.parametrize("make", [RequestQueue, ReferenceRequestQueue])
def test_requests_beyond_the_time_of_a_turn_wait_for_the_next_one(make: Any) -> None:
    """A turn serves requests for 10 ms, and the next turn continues. The queue reads the clock before each request
    except the first of the turn.
    """
    now_ns = iter(range(0, 10**12, 4_000_000))
    limits = {"turn_ns": 10_000_000, "clock_ns": lambda: next(now_ns), "buffer_bytes": 1 << 30}
    owner = Owner(lambda *arguments, **named: make(*arguments, **{**named, **limits}))
    owner.queue.feed(beat("g", 0, 1, 2, "a") * 10)
    served = []
    while True:
        assert owner.queue.serve() is False
        served.append(len(owner.calls))
        if not owner.queue.late:
            break
    assert served == [4, 8, 10]
    assert len(owner.queue) == 0
    assert len(owner.queue.take() or b"") == 14 * 10


@pytest.mark.parametrize("make", [RequestQueue, ReferenceRequestQueue])
def test_a_turn_has_no_time_limit_by_default(make: Any) -> None:
    owner = Owner(lambda *arguments, **named: make(*arguments, **{**named, "buffer_bytes": 1 << 30}))
    owner.queue.feed(beat("g", 0, 1, 2, "a") * 1_000)
    assert owner.queue.serve() is False
    assert (len(owner.calls), owner.queue.late) == (1_000, False)


@pytest.mark.parametrize("make", [RequestQueue, ReferenceRequestQueue])
def test_a_queue_serves_no_more_requests_while_too_many_bytes_of_them_wait(make: Any) -> None:
    """During a slow commit, a client could otherwise fill the memory of the server with its requests."""
    limits = {"max_frame_bytes": 1 << 20, "buffer_bytes": 1 << 30}
    owner = Owner(lambda *arguments, **named: make(*arguments, **{**named, **limits}))
    frame = beat("later", 0, 1, 2, "a" * 30_000)
    counted = len(frame) - 4 + WAITING_OVERHEAD_BYTES  # without the length of the frame
    most = MAX_WAITING_BYTES // counted + 1
    owner.queue.feed(frame * (2 * most + 1))

    def complete(count: int) -> None:
        for pending in owner.pendings[:count]:
            pending.complete(SHARED[0])
        del owner.pendings[:count]

    for rounds in (1, 2):
        owner.queue.serve()
        requests = [call for call in owner.calls if call != "schedule_flush"]
        assert (len(requests), len(owner.pendings), owner.queue.parked) == (rounds * most, most, True)
        complete(most - 1)
        assert owner.queue.parked, "one request still waits"
        complete(1)
        assert not owner.queue.parked
    owner.queue.serve()
    assert (len(owner.pendings), owner.queue.parked) == (1, False)
    complete(1)
    assert len(owner.queue.take() or b"") == 14 * (2 * most + 1)
