"""Long requests, decided in slices between which other requests are served.

A request of a few hundred kilobytes can name 10,000 topics or need 100,000 look-ups. An API that loops over the names
in a request does so in a generator, which yields the cost of each step and returns the response. Short requests run to
their end at once. A long request is parked after its first slice, and continues whenever the driver steps `Slices`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.failed_requests import internal_error_response, request_name
from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.runtime.api import Api, RequestContext
    from kcore.runtime.slices import Slices

SLICE_COST_US = 10_000
"""The cost of a full slice, in units of about a microsecond."""
MAX_TOGETHER = 4
"""Maximum number of long requests that run in turns. It limits the memory of unfinished responses; other long requests
wait.
"""

SPENT_REMEMBERED = 10_000_000
"""Sum of all clients' costs, in microseconds, at which `WaitingRequests` halves each cost, so that recent work counts
most.
"""

Work = Generator[int, None, Any]
"""The work of a long request: a generator that yields the cost of each step in microseconds, and returns the response.
"""


class WaitingRequests:
    """The long requests that wait until fewer than `MAX_TOGETHER` long requests are running, in fair order.

    The next request comes from the client address whose recent requests cost the least. Among the connections of this
    address, the connection with the least recent cost comes first. So a client does not wait for all requests of
    another client, even if that client has many connections.
    """

    __slots__ = ("_by_host", "_spent_by_connection", "_spent_by_host", "_spent_in_all")

    def __init__(self) -> None:
        self._by_host: dict[str, dict[int, deque[SlicedPending]]] = {}
        self._spent_by_host: dict[str, int] = {}
        self._spent_by_connection: dict[int, int] = {}
        self._spent_in_all = 0

    def __bool__(self) -> bool:
        return bool(self._by_host)

    def add(self, pending: SlicedPending) -> None:
        """Appends a request to the waiting requests of its connection. Changes nothing if memory is exhausted."""
        host, connection_id = pending.context.client_host, pending.context.connection_id
        connections = self._by_host.get(host)
        waiting = None if connections is None else connections.get(connection_id)
        if waiting is not None:
            waiting.append(pending)
        elif connections is not None:
            connections[connection_id] = deque((pending,))
        else:
            self._by_host[host] = {connection_id: deque((pending,))}

    def pop(self) -> SlicedPending:
        """Removes and returns the next request; among clients of equal cost, the request that has waited longest.

        Removes nothing if memory is exhausted.
        """
        spent_by_host, spent_by_connection = self._spent_by_host, self._spent_by_connection
        host = min(self._by_host, key=lambda one: spent_by_host.get(one, 0))
        connections = self._by_host[host]
        connection_id = min(connections, key=lambda one: spent_by_connection.get(one, 0))
        waiting = connections[connection_id]
        pending = waiting.popleft()
        if not waiting:
            del connections[connection_id]
        if not connections:
            del self._by_host[host]
        return pending

    def charge(self, context: RequestContext, cost: int) -> None:
        """Adds the cost of a slice to the cost of its client."""
        host, connection_id = context.client_host, context.connection_id
        self._spent_by_host[host] = self._spent_by_host.get(host, 0) + cost
        self._spent_by_connection[connection_id] = self._spent_by_connection.get(connection_id, 0) + cost
        self._spent_in_all += cost
        if self._spent_in_all >= SPENT_REMEMBERED:
            self._spent_in_all //= 2
            # This removes clients with little cost, among them closed connections.
            self._spent_by_host = _halved(self._spent_by_host)
            self._spent_by_connection = _halved(self._spent_by_connection)


Key = TypeVar("Key")


def _halved(costs: dict[Key, int]) -> dict[Key, int]:
    return {key: cost // 2 for key, cost in costs.items() if cost > SLICE_COST_US}


class SlicedRequests:
    """The long requests of an engine.

    Args:
        slices: runs their slices.

    Attributes:
        enabled: True if requests may be parked between slices. The driver for event loops sets it; otherwise, callers
            get their responses at once.
    """

    __slots__ = ("_running", "_slices", "_waiting", "enabled")

    def __init__(self, slices: Slices) -> None:
        self.enabled = False
        self._slices = slices
        self._running = 0
        self._waiting = WaitingRequests()

    def run(
        self,
        api: Api[Any, Any],
        context: RequestContext,
        request: Any,
        work: Work,
        finish: Callable[[Any], Any] | None = None,
        *,
        eager: bool = False,
    ) -> Any:
        """Runs the work of a request: in one step if it is short, else in slices.

        Args:
            api: the API of the request.
            context: the client and the API version of the request.
            request: the decoded request.
            work: processes the request in steps. Its result is the response, or the argument of `finish`.
            finish: makes the response, or a `Pending` for it, from the result of `work`. If the request was parked,
                `finish` runs in a separate slice.
            eager: True to run the first slice immediately, even if other long requests are running. It is for requests
                whose length is not known in advance.

        Returns:
            The response, or a parked `Pending` for it.

        Raises:
            KafkaError: the first slice refuses the request.
        """
        if eager or not self.enabled or not self._running:
            limit = SLICE_COST_US if self.enabled else -1
            done, result = step(work, limit)
            if done:
                return result if finish is None else finish(result)
        pending = SlicedPending(api, context, request, work, finish)
        if self._running < MAX_TOGETHER:
            self._start(pending)
        else:
            self._waiting.add(pending)
        return pending

    def _start(self, pending: SlicedPending) -> None:
        self._running += 1
        try:
            self._slices.add(self._run(pending), pending)
        except BaseException:
            self._running -= 1
            raise

    def _run(self, pending: SlicedPending) -> Iterator[None]:
        """Runs a request, and then starts waiting requests. If there is no memory to start them, tries it again in
        later slices, because the end of no other request may follow.
        """
        failure: Exception | None = None
        try:
            while not pending.run_slice():
                self._waiting.charge(pending.context, SLICE_COST_US)
                yield
        except Exception as error:
            failure = error
            if not pending.done:
                pending.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        finally:
            self._running -= 1
        while not self._start_all():
            yield
        if failure is not None:
            raise failure

    def _start_all(self) -> bool:
        """Starts waiting requests until `MAX_TOGETHER` requests are running. Returns False if memory is exhausted."""
        try:
            while self._waiting and self._running < MAX_TOGETHER:
                self._start_waiting(self._waiting.pop())
        except MemoryError:
            return False
        return True

    def _start_waiting(self, pending: SlicedPending) -> None:
        """Starts a request that has waited. If there is no memory for it, the request fails, and others can start."""
        try:
            self._start(pending)
        except Exception:
            pending.fail(ErrorCode.UNKNOWN_SERVER_ERROR)


def step(work: Work, limit: int) -> tuple[bool, Any]:
    """Runs `work` until the sum of the costs of its steps reaches `limit`; -1: no limit.

    Returns:
        A pair: True if the work has ended, and the result of the work.
    """
    spent = 0
    try:
        while limit < 0 or spent < limit:
            spent += next(work)
    except StopIteration as stop:
        return True, stop.value
    return False, None


class SlicedPending(Pending):
    """The response of a long request.

    The response is made by the work and the function `finish` of `SlicedRequests.run`. If the client disconnects, work
    without `finish` ends, because it only reads. If the work has already returned a `Pending`, this `Pending` is
    abandoned. Work with `finish` continues, like any decided request.

    Attributes:
        cost: the cost of the slices that have run so far, in units of about a microsecond.
    """

    __slots__ = ("_awaited", "_ended", "_finish", "_gone", "_result", "_work", "cost")

    def __init__(
        self,
        api: Api[Any, Any],
        context: RequestContext,
        request: Any,
        work: Work,
        finish: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(api, context, request, parked=True)
        self._work = work
        self._finish = finish
        self._gone = False
        self._ended = False
        self._result: Any = None
        self._awaited: Pending | None = None
        self.cost = 0

    def __repr__(self) -> str:
        return request_name(self.api, self.context)

    def abandon(self) -> None:
        """Handles the disconnection of the client."""
        super().abandon()
        self._gone = self._finish is None
        awaited, self._awaited = self._awaited, None
        if awaited is not None and self._gone:
            awaited.abandon()

    def run_slice(self) -> bool:
        """Runs one slice: steps of the work, or `finish`. Returns True if the request has ended.

        `finish` runs in a separate slice, because its time grows with the number of the work's results.
        """
        if self._gone:
            self._work.close()
            return True
        try:
            self.cost += SLICE_COST_US
            if not self._ended:
                self._ended, self._result = step(self._work, SLICE_COST_US)
                if not self._ended or self._finish is not None:
                    return False
            response, self._result = self._result, None
            if self._finish is not None:
                response = self._finish(response)
        except KafkaError as error:
            response = self.api.error(self.context, self.request, error.code, error.message)
        except Exception as error:
            response = internal_error_response(self.api, self.context, self.request, error)
        if isinstance(response, Pending):
            self._awaited = response
            response.on_complete(self.complete)
        else:
            self.complete(response)
        return True
