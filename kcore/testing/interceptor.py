"""Applies faults to the requests of a server, and observes requests about groups.

Each API has an entry with its functions `fast` and `handle` in the server's table. The first fault of an API replaces
these functions, and the end of its last fault restores them. So a fault does not slow down other APIs.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.broker.share.sessions import SessionKey
from kcore.errors import KcoreError
from kcore.process_logging import log_failure
from kcore.protocol.api_keys import ApiKey, api_name
from kcore.runtime import Pending, RequestContext
from kcore.server.dispatch import Dispatch, Served
from kcore.testing.faults import ActiveFault, Fault, RandomFaults
from kcore.testing.recorder import OBSERVED, ObservedEngine, observing
from kcore.testing.requests import groups_of, topics_of

if TYPE_CHECKING:
    from kcore.server.connection import Connection
    from kcore.server.server import Server

logger = logging.getLogger(__name__)

Handle = Callable[[Any, Any], Any]

MAX_FAILURES = 100  # errors of the test's functions that are kept
MIN_CONNECTIONS = 100  # connections whose client ids are kept, before those of closed connections are dropped


class InterceptedDispatch(Dispatch):
    """The API table of a server. It reports each new table entry to the interceptor.

    Args:
        server: the server whose table this object replaces.
        created: called with each new entry.
    """

    __slots__ = ("_created",)

    def __init__(self, server: Server, created: Callable[[Served], None]) -> None:
        super().__init__(server.engine, None if server.responses is None else server.responses.reserve)
        self._created = created

    def route(self, api_key: int) -> Served | None:
        """Returns the entry of an API key; see `Dispatch.route`."""
        is_new = api_key not in self._served
        served = super().route(api_key)
        if served is not None and is_new:
            self._created(served)
        return served


class HeldRequest:
    """A request that waits for `Broker.release`.

    Args:
        context: the context of the request.
        request: the typed request.
        go: continues the request, on the engine's thread.

    Attributes:
        context: the context of the request: its client, connection and version.
        request: the typed request.
    """

    def __init__(self, context: RequestContext, request: Any, go: Callable[[], None]) -> None:
        self.context = context
        self.request = request
        self._go = go


class Interceptor:
    """The faults of one broker, which survive a restart of the broker.

    All methods run on the thread of the broker's engine.

    Attributes:
        held: the requests and responses that wait for `release`, in order.
        failures: errors of functions that the test has passed to a fault, such as `where`. If the function of a fault
            raises an error, the fault does not apply to the request.
    """

    def __init__(self) -> None:
        self._faults: list[ActiveFault] = []
        self._script: list[ActiveFault] = []
        self._random: RandomFaults | None = None
        self.held: list[HeldRequest] = []
        self.failures: list[KcoreError] = []
        self._client_ids: dict[int, set[str]] = {}  # by connection
        self._clients: set[str] = set()  # the client ids of all requests
        self._server: Server
        self._engine: ObservedEngine
        self._dispatch: InterceptedDispatch

    def attach(self, server: Server) -> None:
        """Intercepts the requests of a server that has not started yet."""
        assert isinstance(server.engine, ObservedEngine), server.engine
        self._server = server
        self._engine = server.engine
        self._dispatch = server.dispatch = InterceptedDispatch(server, self._install)
        self.held = []
        self._client_ids = {}

    # ---- the set of faults

    def add(self, faults: Iterable[Fault]) -> list[ActiveFault]:
        """Injects faults that are all active from now on."""
        added = [ActiveFault(fault) for fault in faults]
        self._faults += added
        self._install_all()
        return added

    def script(self, faults: Iterable[Fault]) -> list[ActiveFault]:
        """Injects faults one after another.

        Each fault becomes active when the previous one has applied to all its requests.
        """
        added = [ActiveFault(fault) for fault in faults]
        self._script += added
        self._install_all()
        return added

    def random(self, faults: RandomFaults | None) -> None:
        """Injects faults at random from now on; None: ends the random faults."""
        self._random = faults
        self._install_all()

    def clear(self, fault: ActiveFault | None = None) -> None:
        """Removes a fault; None: all faults. Held requests stay held."""
        if fault is None:
            self._faults, self._script, self._random = [], [], None
        else:
            self._faults = [each for each in self._faults if each is not fault]
            self._script = [each for each in self._script if each is not fault]
        self._install_all()

    @property
    def active(self) -> list[ActiveFault]:
        """The faults that still apply to requests."""
        return [fault for fault in (*self._faults, *self._script) if not fault.exhausted]

    # ---- the server's table

    def _install_all(self) -> None:
        self._faults = [fault for fault in self._faults if not fault.exhausted]
        self._script = [fault for fault in self._script if not fault.exhausted]
        for served in list(self._dispatch):
            self._install(served)

    def _install(self, served: Served) -> None:
        """Sets the functions of an entry: its own functions, or functions that observe requests or apply faults."""
        api, key = served.api, served.key
        served.fast, served.handle = api.fast, api.handle
        if key in OBSERVED:
            served.fast, served.handle = None, observing(self._engine, _decision(api))
        elif key == ApiKey.API_VERSIONS:  # every connection sends it first
            served.fast, served.handle = None, partial(self._record_client_id, _decision(api))
        if self._concerns(key):
            decide = _decision(api) if served.fast is not None else served.handle
            served.fast, served.handle = None, partial(self._intercept, served, decide)

    def _record_client_id(self, decide: Handle, context: RequestContext, request: Any) -> Any:
        """Records the client id of the request's connection, and passes the request to the API."""
        self._client_ids.setdefault(context.connection_id, set()).add(context.client_id)
        self._clients.add(context.client_id)
        if len(self._client_ids) > max(MIN_CONNECTIONS, 2 * len(self._server.connections)):
            present = {connection.connection_id for connection in self._server.connections}
            self._client_ids = {key: names for key, names in self._client_ids.items() if key in present}
        return decide(context, request)

    def _concerns(self, key: int) -> bool:
        if self._random is not None and key in self._random.keys:
            return True
        return any(active.fault.concerns(key) for active in (*self._faults, *self._script))

    # ---- requests

    def _topic_name(self, topic_id: bytes) -> str | None:
        topic = self._engine.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def _topics(self, request: Any) -> set[str | None]:
        """Returns the topics of a request; an incremental fetch is about all partitions of its session."""
        topics: set[str | None] = set(topics_of(request, self._topic_name))
        if request.API_KEY == ApiKey.FETCH and request.session_epoch > 0:
            session = self._engine.fetch_sessions.get(request.session_id)
            topics.update(() if session is None else (each.topic for each in session.partitions.values()))
        elif request.API_KEY == ApiKey.SHARE_FETCH and request.share_session_epoch > 0:
            key = SessionKey(request.group_id or "", request.member_id or "")
            shared = self._engine.share_partitions.sessions.get(key)
            topics.update(() if shared is None else (self._topic_name(each.topic_id) for each in shared.partitions))
        return topics

    def _fault_for(self, key: int, context: RequestContext, request: Any) -> Fault | None:
        # Of the script's remaining faults, only the first may apply.
        for active in [*self._faults, *self._script[:1]]:
            if not active.fault.concerns(key):
                continue
            try:
                taken = active.takes(context, request, self._topics)
            except Exception as error:
                self._function_failed(active.fault.describe(), "where", error)
                continue
            if taken:
                if active.exhausted:
                    self._install_all()
                return active.fault
        if self._random is not None and key in self._random.keys:
            try:
                return self._random.draw(key, lambda which: which.matches(context, request, self._topics))
            except Exception as error:
                self._function_failed("random faults", "where", error)
        return None

    def _function_failed(self, fault: str, name: str, error: Exception) -> None:
        """Stores and logs the error of a test's function. The client's response does not contain this error."""
        failure = KcoreError(f"the function {name!r} of a fault ({fault}) failed: {error!r}")
        failure.__cause__ = error
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(failure)
        log_failure(
            logger,
            error,
            "testing: the function in the argument `%s` of a fault (%s) raised an error; the test broker serves the "
            "request without this fault; correct the function",
            name,
            fault,
        )

    def _intercept(self, served: Served, decide: Handle, context: RequestContext, request: Any) -> Any:
        """Applies the first matching fault to a request. The API processes the request unless the fault prevents it."""
        fault = self._fault_for(served.key, context, request)
        if fault is None:
            return decide(context, request)
        code = None
        if fault.action == "fail":
            try:
                code = fault.error_for(request)
            except Exception as error:
                self._function_failed(fault.describe(), "error", error)
            if code is None:
                return decide(context, request)
        for group_id in groups_of(request):
            self._engine.recorder.add(
                group_id, "fault", client_id=context.client_id, detail=api_name(served.key), cause=fault.describe()
            )
        if code is not None:
            return served.api.error(context, request, code, fault.message)
        later = Pending(served.api, context, request, parked=True)
        if fault.after:
            self._then(decide(context, request), partial(self._with_response, fault, served, later))
        elif fault.action == "disconnect":
            self._close(context)
        else:
            go = partial(self._carry_on, decide, later)
            self._wait(fault, context, request, go)
        return later

    def _carry_on(self, decide: Handle, later: Pending) -> None:
        """Passes a delayed or held request to the API."""
        self._server.driver.begin_round()
        try:
            response = decide(later.context, later.request)
        except Exception as error:
            response = self._engine.failed(later.api, later.context, later.request, error)
        self._then(response, later.complete)

    def _with_response(self, fault: Fault, served: Served, later: Pending, response: Any) -> None:
        """Applies a fault to a response that the API has completed."""
        if fault.action == "disconnect":
            self._close(later.context)
        elif fault.action == "throttle":
            later.complete(_throttled(response, fault.seconds))
        elif fault.action == "corrupt" and served.key == ApiKey.FETCH:
            later.complete(_with_damaged_records(response))
        elif fault.action == "corrupt":
            self._truncate_next(later.context)
            later.complete(response)
        else:
            self._wait(fault, later.context, later.request, partial(self._complete, later, response))

    def _complete(self, later: Pending, response: Any) -> None:
        self._server.driver.begin_round()
        later.complete(response)

    def _wait(self, fault: Fault, context: RequestContext, request: Any, go: Callable[[], None]) -> None:
        if fault.action == "delay":
            self._engine.wheel.add(self._engine.now.now_ms + round(fault.seconds * 1000), go)
            self._server.driver.schedule_round_end()
        else:
            self.held.append(HeldRequest(context, request, go))

    @staticmethod
    def _then(response: Any, then: Callable[[Any], None]) -> None:
        """Calls `then` with the response, when it is complete."""
        if isinstance(response, Pending) and not response.done:
            response.on_complete(then)
        else:
            then(response.response if isinstance(response, Pending) else response)

    def release(self, chosen: Callable[[HeldRequest], bool]) -> int:
        """Continues held requests and sends held responses. Returns their number.

        Args:
            chosen: returns True for each request or response to release.
        """
        released = [held for held in self.held if chosen(held)]
        taken = set(map(id, released))
        self.held = [held for held in self.held if id(held) not in taken]
        for held in released:
            held._go()
        return len(released)

    # ---- connections

    def require_client(self, client_id: str | None) -> None:
        """Raises LookupError if no request had this client id; None: any client."""
        if client_id is not None and client_id not in self._clients:
            raise LookupError(f"the broker has had no request of client {client_id!r}, only of {sorted(self._clients)}")

    def connections(self, client_id: str | None = None) -> list[Connection]:
        """Returns the open connections; with `client_id`, only the connections of that client."""
        return [
            connection
            for connection in self._server.connections
            if client_id is None or client_id in self._client_ids.get(connection.connection_id, ())
        ]

    def _connection(self, context: RequestContext) -> Connection | None:
        return next((c for c in self._server.connections if c.connection_id == context.connection_id), None)

    def _close(self, context: RequestContext) -> None:
        connection = self._connection(context)
        if connection is not None:
            self._server.loop.call_soon(connection.abort)

    def _truncate_next(self, context: RequestContext) -> None:
        """Sends only the first half of the connection's next bytes, and closes it."""
        connection = self._connection(context)
        write = None if connection is None else connection._write
        if connection is None or write is None:
            return

        def write_half(data: bytes) -> None:
            write(data[: len(data) // 2])
            connection.close()

        connection._write = write_half


def _decision(api: Any) -> Handle:
    """Returns a function that runs a request in an API as the server does: by the fast path, or else by `handle`."""
    fast, handle = api.fast, api.handle
    if fast is None:
        return handle  # type: ignore[no-any-return]

    def decide(context: Any, request: Any) -> Any:
        response = fast(context, request)
        return handle(context, request) if response is None else response

    return decide


def _throttled(response: Any, seconds: float) -> Any:
    """Returns a copy of a response with a throttle time, if the API has one."""
    if response is None or not hasattr(response, "throttle_time_ms"):
        return response
    changed = copy.copy(response)
    changed.throttle_time_ms = round(seconds * 1000)
    return changed


def _with_damaged_records(response: Any) -> Any:
    """Returns a copy of a Fetch response with the last byte of each partition's records changed."""
    changed = copy.deepcopy(response)
    for topic in changed.responses:
        for partition in topic.partitions:
            if partition.records:
                records = bytes(partition.records)
                partition.records = records[:-1] + bytes([records[-1] ^ 0xFF])
    return changed
