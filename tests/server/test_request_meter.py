"""The quota `request_percentage`: the time of requests is charged to their clients, and the connections of clients
above the quota are muted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kcore.broker.data.client_quotas import REQUEST_PERCENTAGE, ClientQuotas
from kcore.broker.metadata.topics import Topics
from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey, response_class
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.runtime import Api, Pending, RequestContext
from kcore.runtime.sliced import SLICE_COST_US, SlicedPending
from kcore.server import request_meter
from kcore.server.dispatch import Dispatch, Served
from kcore.server.request_meter import RequestMeter
from tests.server.live import LiveServer

CONTEXT = RequestContext(4, "c", connection_id=7)
REQUEST = HeartbeatRequest(group_id="g", member_id="m")
MS = 1_000_000


class Beat(Api[HeartbeatRequest, HeartbeatResponse]):
    """An API that returns `result`, or raises it, after `cost_ms` on the meter's clock."""

    key = ApiKey.HEARTBEAT
    request_type = HeartbeatRequest
    response_type = HeartbeatResponse
    versions = (0, 4)

    __slots__ = ("cost_ms", "result", "time_ns")

    def __init__(self) -> None:
        self.result: Any = HeartbeatResponse()
        self.cost_ms = 0
        self.time_ns = 0

    def handle(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        self.time_ns += self.cost_ms * MS
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def error(
        self, context: RequestContext, request: HeartbeatRequest, code: ErrorCode, message: str | None = None
    ) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=code)


class Metered:
    """A meter of request times, in virtual time. The quota allows client "c" ten percent of the time, with bursts of up
    to one second.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = Beat()
        self.entry = Served(self.api)
        topics, clock = Topics(), ManualClock()
        topics.image.put_quota((("client-id", "c"),), REQUEST_PERCENTAGE, 10.0)
        self.quotas = ClientQuotas(topics, Now(clock), Config.of())
        self.muted: list[tuple[int, int]] = []
        self.quotas.mute = lambda connection_id, duration_ms: self.muted.append((connection_id, duration_ms))
        self.meter = RequestMeter(self.quotas, self.failed)
        monkeypatch.setattr(request_meter.time, "perf_counter_ns", lambda: self.api.time_ns)

    def failed(self, api: Any, context: RequestContext, request: Any, error: Exception) -> Any:
        assert isinstance(error, KafkaError)
        return api.error(context, request, error.code)

    def serve(self, cost_ms: int) -> Any:
        self.api.cost_ms = cost_ms
        return self.meter(self.entry, CONTEXT, REQUEST)


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> Metered:
    return Metered(monkeypatch)


def test_a_client_above_its_percentage_is_throttled(metered: Metered) -> None:
    """A client exceeds its quota, so its response has a throttle time of at most one second. The meter sets it in a
    copy of the response, because the API may return the same object again.
    """
    assert metered.serve(1_000) is metered.api.result
    assert metered.serve(50) == HeartbeatResponse(throttle_time_ms=500)
    assert metered.serve(9_000) == HeartbeatResponse(throttle_time_ms=1_000)
    assert metered.api.result == HeartbeatResponse()
    assert metered.muted == [(7, 500), (7, 1_000)]


def test_a_larger_throttle_time_of_the_api_stays(metered: Metered) -> None:
    metered.api.result = HeartbeatResponse(throttle_time_ms=700)
    assert metered.serve(1_050) == HeartbeatResponse(throttle_time_ms=700)
    assert metered.serve(50) == HeartbeatResponse(throttle_time_ms=1_000)


def test_refused_requests_count(metered: Metered) -> None:
    metered.api.result = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = HeartbeatResponse(throttle_time_ms=500, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert metered.serve(1_050) == refused


def test_a_response_that_comes_later_is_charged_when_it_comes(metered: Metered) -> None:
    pending = Pending(metered.api, CONTEXT, REQUEST, parked=True)
    metered.api.result = pending
    waiting = metered.serve(1_050)
    assert (waiting.done, waiting.parked, metered.muted) == (False, True, [])
    pending.complete(HeartbeatResponse())
    assert (waiting.response, metered.muted) == (HeartbeatResponse(throttle_time_ms=500), [(7, 500)])
    done = Pending(metered.api, CONTEXT, REQUEST)
    done.complete(HeartbeatResponse())
    metered.api.result = done
    assert metered.serve(10) == HeartbeatResponse(throttle_time_ms=600)


def test_the_slices_of_a_long_request_count(metered: Metered) -> None:
    """The time of each slice of a long request counts towards the client's quota. It is the cost that the slice itself
    yields.
    """

    def work() -> Iterator[int]:
        for _ in range(105):
            yield SLICE_COST_US
        return HeartbeatResponse()  # type: ignore[return-value]

    sliced = SlicedPending(metered.api, CONTEXT, REQUEST, work(), None)  # type: ignore[arg-type]
    metered.api.result = sliced
    waiting = metered.serve(0)
    while not sliced.run_slice():
        pass
    assert waiting.response == HeartbeatResponse(throttle_time_ms=600), "106 slices of 10 ms"


def test_a_client_that_disconnects_is_charged(metered: Metered) -> None:
    pending = Pending(metered.api, CONTEXT, REQUEST)
    metered.api.result = pending
    metered.serve(1_050).abandon()
    pending.complete(HeartbeatResponse())
    assert metered.muted == [(7, 500)], "once"


def test_a_client_that_disconnects_is_charged_for_the_slices_that_have_run(metered: Metered) -> None:
    """Otherwise a client could begin long requests one after the other, and close each connection before the
    response.
    """

    def work() -> Iterator[int]:
        while True:
            yield SLICE_COST_US

    sliced = SlicedPending(metered.api, CONTEXT, REQUEST, work(), None)  # type: ignore[arg-type]
    metered.api.result = sliced
    waiting = metered.serve(0)
    for _ in range(106):
        assert not sliced.run_slice()
    waiting.abandon()
    assert sliced.run_slice()
    assert metered.muted == [(7, 600)], "once"


def test_requests_without_a_response_are_exempt(metered: Metered) -> None:
    metered.api.result = None
    assert metered.serve(5_000) is None
    metered.api.result = HeartbeatResponse()
    assert metered.serve(1_000) is metered.api.result


def throttled_messages() -> Iterator[Any]:
    for key in ApiKey:
        with contextlib.suppress(KeyError):
            kind = response_class(key)
            if hasattr(kind, "throttle_time_ms"):
                yield kind


def test_every_response_can_be_encoded_with_a_throttle_time() -> None:
    """Versions without the field leave out the throttle time, so a quota breaks no old client."""
    kinds = list(throttled_messages())
    assert len(kinds) > 50
    for kind in kinds:
        response = kind()
        response.throttle_time_ms = 500
        for version in range(kind.MIN_VERSION, kind.MAX_VERSION + 1):
            decoded = kind.decode(response.encode(version), version)
            assert decoded.throttle_time_ms in {0, 500}


def set_percentage(live: LiveServer, client_id: str, percentage: float | None) -> None:
    op = OpData(key=REQUEST_PERCENTAGE, value=percentage or 0.0, remove=percentage is None)
    entity = [EntityData(entity_type="client-id", entity_name=client_id)]
    with live.connect(client_id="admin") as admin:
        response = admin.send(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])]), 1)
    assert [entry.error_code for entry in response.entries] == [0]


def meters(dispatch: Dispatch) -> set[int]:
    return {served.key for served in dispatch if served.meter is not None}


def test_requests_are_measured_only_while_a_client_has_the_quota(live: LiveServer) -> None:
    """While a client has the quota, the server measures every API except the exempt ones. This includes APIs whose
    first request comes later.
    """
    used = {int(ApiKey.ALTER_CLIENT_QUOTAS)}
    set_percentage(live, "c", 1.0)
    dispatch = live.server.dispatch
    assert live.call(lambda: meters(dispatch)) == used
    live.call(lambda: (dispatch.route(ApiKey.HEARTBEAT), dispatch.route(ApiKey.WRITE_TXN_MARKERS)))
    assert live.call(lambda: meters(dispatch)) == used | {int(ApiKey.HEARTBEAT)}
    set_percentage(live, "c", None)
    assert live.call(lambda: meters(dispatch)) == set()


def test_a_muted_connection_waits_and_others_do_not(live: LiveServer) -> None:
    """A client with a tiny quota sends two requests at once. The first response mutes its connection for one second,
    and then the second request is served. Other clients are not delayed.
    """
    set_percentage(live, "greedy", 1e-9)
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    with live.raw() as greedy, live.connect(client_id="other") as other:
        began_s = time.monotonic()
        greedy.send(greedy.request(request, 3, "greedy") + greedy.request(request, 3, "greedy"))
        assert greedy.receive(request, 3)[1].throttle_time_ms == 1_000
        served = other.send(request, 3)
        assert served.throttle_time_ms == 0
        assert greedy.receive(request, 3)[0] == 2
        assert time.monotonic() - began_s >= 0.99


def test_a_shorter_throttle_does_not_end_a_longer_one(serve: Callable[..., LiveServer]) -> None:
    live = serve()
    with live.connect() as client:
        client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        (connection,) = live.call(lambda: list(live.server.connections))

        def mute() -> list[float]:
            ends = []
            for duration_ms in (60_000, 1, 90_000):
                connection.mute(duration_ms)
                assert connection._muted is not None
                ends.append(connection._muted.when())
            return ends

        first, second, third = live.call(mute)
    assert first == second < third
