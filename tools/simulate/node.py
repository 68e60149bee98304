"""The simulated node: a real engine, driven in virtual time, and its side of the connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kcore.config.node import Config
from kcore.engine import Engine
from kcore.errors import KcoreError
from kcore.log.faults import SimulatedCrashError
from kcore.protocol.uuids import version_4
from kcore.runtime import RequestContext
from kcore.runtime.commit import BackgroundCommit
from kcore.security.principal import ANONYMOUS
from kcore.server.dispatch import Dispatch
from kcore.server.frames import FrameError
from kcore_ext.server.request_queue import RequestQueue, ResponseSlot
from tools.simulate.checkers.failure import SimulationFailure
from tools.simulate.interrupts import interrupted, uninterrupted
from tools.simulate.kernel import Kernel
from tools.simulate.network import Network, Wire
from tools.simulate.stores import Store

LISTENER = "SIMULATED"
WALL_START_MS = 1_700_000_000_000


class NodeClock:
    """The node's two clocks, which follow the virtual time. The wall clock can be stepped.

    Attributes:
        step_ms: the sum of the steps of the wall clock.
        latest_ms: the latest wall time that was read.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.step_ms = 0
        self.latest_ms = 0

    def monotonic_ms(self) -> int:
        """Returns the virtual time in ms."""
        return self._kernel.now_ms

    def wall_ms(self) -> int:
        """Returns the wall time of the node, in ms since the epoch."""
        wall_ms = WALL_START_MS + self._kernel.now_ms + self.step_ms
        self.latest_ms = max(self.latest_ms, wall_ms)
        return wall_ms


def _has_crashed(error: BaseException | None) -> bool:
    """Returns True if `error` or an exception in its chain of contexts is a simulated crash."""
    while error is not None and not isinstance(error, SimulatedCrashError):
        error = error.__context__
    return error is not None


class _Gate:
    """The `Gate` that the engine and a background commit share.

    If the engine waits for the commit, the gate performs the write at once. If the write crashes the process, raises
    the crash.
    """

    def __init__(self) -> None:
        self.commit: BackgroundCommit | None = None
        self._closed = False

    def acquire(self) -> bool:
        """Implements `Gate.acquire`."""
        self._closed = True
        return True

    def release(self) -> None:
        """Implements `Gate.release`."""
        self._closed = False

    def __enter__(self) -> bool:
        commit, self.commit = self.commit, None
        if commit is not None:
            with uninterrupted():  # another thread writes
                commit.write()
            if isinstance(commit.error, SimulatedCrashError):
                raise commit.error
        if self._closed:
            raise SimulationFailure("responses", "the engine waits for a background commit that nothing writes")
        return True

    def __exit__(self, *raised: object) -> None:
        return


class ServerConnection:
    """The node's end of a connection: feeds received bytes to a request queue, and sends the responses at the end of a
    round.
    """

    def __init__(self, node: Node, wire: Wire, connection_id: int) -> None:
        self._node = node
        self.wire = wire
        self.connection_id = connection_id
        self.open = True
        self.queue = RequestQueue(
            self,
            node.dispatch.routes,
            frame_error=FrameError,
            max_frame_bytes=node.engine.config.socket_request_max_bytes,
            buffer_bytes=1 << 16,
        )

    # ---- the wire

    def received(self, data: bytes) -> None:
        """Serves the complete requests of the received bytes."""
        if self.open:
            self.queue.feed(data)
            self._node.to_flush[self] = None
            self._node.inside(self._serve, self)

    def writable(self) -> None:
        """Continues to send responses after the client has read bytes."""
        if self.open:
            self._node.inside(self.flush)

    def lost(self) -> None:
        """Closes the request queue and ends the client's sessions after the connection has ended."""
        if self.open:
            self.open = False
            self.queue.close()
            self._node.inside(self._node.connection_lost, self)

    def _serve(self, connection: ServerConnection) -> None:
        if not self.open:
            return
        try:
            self.queue.serve()
        except (KcoreError, ValueError) as error:
            self._node.trace(f"refused {self.wire.name} {type(error).__name__}")
            self._node.refuse(self)

    def flush(self) -> None:
        """Sends the completed responses, then serves the requests after them."""
        while self.open and self.wire.writable:
            data = self.queue.take()
            if data is None:
                return
            self.wire.send_to_client(data)
            self._serve(self)

    # ---- the request queue's calls

    def make_context(self, version: int, client_id: str) -> RequestContext:
        """Implements `Owner.make_context`."""
        return RequestContext(version, client_id, "/127.0.0.1", LISTENER, ANONYMOUS, self.connection_id)

    def route(self, api_key: int) -> Any:
        """Implements `Owner.route`."""
        return self._node.dispatch.route(api_key)

    def unsupported(self, api_key: int, version: int) -> Any:
        """Implements `Owner.unsupported`."""
        return self._node.dispatch.unsupported(api_key, version)

    def failed(self, route: Any, context: Any, request: Any, error: Exception) -> Any:
        """Implements `Owner.failed`."""
        self._node.trace(f"error {type(request).__name__} {type(error).__name__}: {error}")
        return self._node.engine.failed(route.api, context, request, error)

    def too_large(self, route: Any, api: Any, context: Any, request: Any, version: int, error: Exception) -> Any:
        """Implements `Owner.too_large`."""
        return self._node.dispatch.too_large(api, context, request, version)

    def write_later(
        self, slot: ResponseSlot, route: Any, api: Any, context: Any, request: Any, response: Any, version: int,
        correlation_id: int,
    ) -> None:  # fmt: skip
        """Implements `Owner.write_later`; the simulation encodes long responses at once."""
        slot.complete(route.whole_frame(response, version, correlation_id))

    def schedule_flush(self) -> None:
        """Implements `Owner.schedule_flush`."""
        self._node.to_flush[self] = None
        self._node.open_round()

    def response_failed(self, failed: ResponseSlot, error: Exception) -> None:
        """Implements `Owner.response_failed`."""
        self._node.trace(f"unencodable {type(error).__name__}")
        self.queue.remove_from(failed)
        self._node.refuse(self)


class Node:
    """A node that starts, serves, crashes and starts again.

    A round ends some time after it was opened, and commits the requests that arrived meanwhile. Some rounds are written
    in the background. Timers may fire late, and long work runs in slices between the rounds.

    Args:
        kernel: the simulation's event queue and clock.
        network: the connections between clients and this node.
        store: the storage that keeps the node's log across crashes.
        settings: the node's settings.
        choice: the random number generator of the uuids and the schedule.
        trace: receives a line for each event.

    Attributes:
        engine: the engine that the node runs.
        running: True from a start to the next crash.
        paused_until_ms: the time until which the process is stopped.
        slow_until_ms: the time until which each piece of work starts up to `slow_ms` late.
        slow_ms: the largest delay of a slow node.
        flush_until_ms: the time until which each write takes up to `flush_ms`.
        flush_ms: the longest duration of a slow write.
        round_ms: the longest time for which a round collects requests.
        background: the probability that a round is written in the background.
        interrupt: the exception to raise in the next commit, and the number of events before it; None for no exception.
        uncertain_ms: the last time at which the log did not know if a failed write is durable; -1 if this never
            happened.
        starts: the number of times that the node has started.
        on_start: called after each start.
    """

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        store: Store,
        settings: dict[str, str],
        choice: random.Random,
        trace: Callable[[str], None],
    ) -> None:
        self.kernel = kernel
        self.network = network
        self.store = store
        self.choice = choice
        self.trace = trace
        self.clock = NodeClock(kernel)
        self._config = Config.of(settings)
        self.engine: Engine
        self.dispatch: Dispatch
        self.running = False
        self.paused_until_ms = self.slow_until_ms = self.flush_until_ms = 0
        self.slow_ms = self.flush_ms = 0
        self.round_ms = 1
        self.background = 0.0
        self.uncertain_ms = -1
        self.interrupt: tuple[type[BaseException], int] | None = None
        self.starts = self.crashes = self.rounds = 0
        self.on_start: list[Callable[[], None]] = []
        self.connections: dict[int, ServerConnection] = {}
        self.to_flush: dict[ServerConnection, None] = {}
        self._life = 0  # the number of starts: events of an earlier process are ignored
        self._round = self._slicing = self._ending = self._flushing = False
        self._alarm_ms = -1
        self._background: BackgroundCommit | None = None
        self._written: BackgroundCommit | None = None
        self._next_connection = 0

    def new_uuid(self) -> bytes:
        """Returns a random uuid of the simulation."""
        return version_4(self.choice.randbytes(16))

    # ---- life and death

    def start(self) -> None:
        """Starts the process."""
        self._life += 1
        self.starts += 1
        self.trace(f"start {self.starts}")
        try:
            log = self.store.open()
            self.engine = Engine(log, self._config, self.clock, self.new_uuid, wait=False)
        except SimulatedCrashError:
            self._died(power=False)
            return
        except KcoreError as error:
            if not self.store.disturbed:
                raise
            self.trace(f"start failed {type(error).__name__}")
            self._died(power=False)
            return
        engine = self.engine
        engine.slices.requests.enabled = True
        engine.cluster.advertise(LISTENER, "node", 9092)
        engine.consumer_groups.background = self._compute
        engine.pipeline.when_dirty(self.open_round)
        log.move_beside(self._move_journal)
        self.dispatch = Dispatch(engine)
        self.running = True
        self.network.accept = self._accept
        self.open_round()
        for callback in self.on_start:
            callback()

    def _compute(self, compute: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Runs a computation as a separate thread would: the result arrives after a random time."""
        life = self._life
        result = compute()

        def finish() -> None:
            if life == self._life and self.running:
                self.inside(done, result)

        self.kernel.after(self.choice.randrange(20), finish)

    def _move_journal(self, move: Callable[[], None]) -> bool:
        """Moves a full area of the journal after a random time, as the thread for these moves does."""
        self._later(self.kernel.now_ms + self.choice.randrange(100), self.inside, move)
        return True

    def crash(self, power: bool = False) -> None:
        """Ends the process between two events. With `power`, the machine loses its power."""
        if self.running:
            self.trace(f"crash {'power' if power else 'kill'}")
            self._died(power)

    def _died(self, power: bool) -> None:
        self.running = False
        self.crashes += 1
        self._life += 1
        self.network.accept = None
        for connection in self.connections.values():
            connection.open = False
        self.connections.clear()
        self.to_flush.clear()
        self.network.cut_all()
        self._background = self._written = None
        self._round = self._slicing = self._ending = self._flushing = False
        self._alarm_ms = -1
        self.interrupt = None
        self.store.crash(power)
        self.kernel.after(self.choice.choice([1, 50, 2_000]), self._restart)

    def _restart(self) -> None:
        if not self.running:
            self.start()

    # ---- the driver

    def inside(self, call: Callable[..., object], *arguments: Any) -> None:
        """Runs a call in the engine, with a delay if the process is slow. An interrupt ends the process."""
        if self.running:
            if self.kernel.now_ms < self.slow_until_ms:
                delay_ms = self.choice.randrange(self.slow_ms + 1)
                self._later(self.kernel.now_ms + delay_ms, self._run, call, *arguments)
            else:
                self._run(call, *arguments)

    def _run(self, call: Callable[..., object], *arguments: Any) -> None:
        if not self.running:
            return
        if self.kernel.now_ms < self.paused_until_ms:
            self._later(self.paused_until_ms, self._run, call, *arguments)
            return
        engine = self.engine
        try:
            engine.now.update()
            self.open_round()
            call(*arguments)
            if engine.pipeline.uncertain:
                self.uncertain_ms = self.kernel.now_ms
            if not engine.pipeline.interrupted:
                return
            self.trace("interrupted commit")
        except SimulatedCrashError:
            self.trace("crash in a write")
        except Exception as error:
            if _has_crashed(error):
                self.trace("crash in a write")
                self._died(power=False)
                return
            if not engine.pipeline.interrupted:
                # As in the drivers, an exception of a commit whose round has ended ends only its round.
                if self.interrupt is None or type(error) is not MemoryError:
                    raise
                self.interrupt = None
                self._ending = False
                self.open_round()
                return
            self.trace(f"broken {type(error).__name__}")
        except BaseException as error:
            if type(error) is not KeyboardInterrupt or self.interrupt is None:
                raise
            self.trace("interrupted")
        self._died(power=False)

    def _later(self, when_ms: int, callback: Callable[..., object], *arguments: Any) -> None:
        life = self._life

        def call() -> None:
            if life == self._life and self.running:
                callback(*arguments)

        self.kernel.at(when_ms, call)

    def open_round(self) -> None:
        """Schedules the end of the round."""
        if not self._round and not self._ending:
            self._round = True
            delay_ms = self.choice.randrange(self.round_ms + 1) if self.round_ms else 0
            self._later(self.kernel.now_ms + delay_ms, self.inside, self._end_round)

    def _end_round(self) -> None:
        engine = self.engine
        pipeline = engine.pipeline
        if self.kernel.now_ms < self.flush_until_ms and not self._flushing and pipeline.dirty and not self.background:
            self._flushing = True  # a write in place stops the process
            self.paused_until_ms = self.kernel.now_ms + self.choice.randrange(self.flush_ms)
            self._later(self.paused_until_ms, self.inside, self._end_round)
            return
        self._flushing = False
        self._round = False
        self._ending = True
        try:
            if self._written is not None:  # as in the drivers: an exception has interrupted `_finish`
                pipeline.finish_background(self._written)
                self._written = None
            if pipeline.dirty:
                self._write_round()
            while self.to_flush:
                connections, self.to_flush = self.to_flush, {}
                for connection in connections:
                    connection.flush()
        finally:
            self._ending = False
        if pipeline.dirty and not pipeline.committing:
            self.open_round()
        if engine.slices and not self._slicing:
            self._slicing = True
            self._later(self.kernel.now_ms + self.choice.randrange(2), self.inside, self._slice)
        self._set_alarm()

    def _write_round(self) -> None:
        pipeline = self.engine.pipeline
        if pipeline.committing and pipeline.allows_background_commit:
            return
        self.rounds += 1
        if self.background and self.choice.random() < self.background:
            gate = _Gate()
            background = self._interruptible(pipeline.start_background, gate)
            if background is not None:
                gate.commit = background
                self._background = background
                slow = self.kernel.now_ms < self.flush_until_ms
                delay_ms = self.choice.randrange(1, max(self.flush_ms, 10) if slow else 10)
                self._later(self.kernel.now_ms + delay_ms, self.inside, self._write, gate)
                return
        self._interruptible(self.engine.commit)

    def _interruptible(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Runs a part of a commit, which an injected exception may interrupt."""
        if self.interrupt is None:
            return call(*arguments)
        error, events = self.interrupt
        with interrupted(events, error, self.trace) as interrupt:
            try:
                result = call(*arguments)
            finally:
                if interrupt.raised:
                    self.uncertain_ms = self.kernel.now_ms  # the round may be durable although its requests failed
        if interrupt.raised:  # the commit has handled it
            self.interrupt = None
        else:
            self.interrupt = error, interrupt.left
        return result

    def _write(self, gate: _Gate) -> None:
        """Writes the background commit, as its thread does. The engine gets the result later."""
        with gate:
            pass
        self._later(self.kernel.now_ms + self.choice.randrange(3), self.inside, self._finish)

    def _finish(self) -> None:
        self._written, self._background = self._background, None
        if self._written is not None:
            self._interruptible(self.engine.pipeline.finish_background, self._written)
            self._written = None

    def _slice(self) -> None:
        self._slicing = False
        if self.engine.slices.step() and not self._slicing:
            self._slicing = True
            self._later(self.kernel.now_ms + self.choice.randrange(2), self.inside, self._slice)

    def _set_alarm(self) -> None:
        deadline_ms = self.engine.next_deadline_ms()
        if deadline_ms < 0 or (self.kernel.now_ms < self._alarm_ms <= deadline_ms):
            return
        self._alarm_ms = deadline_ms
        self._later(deadline_ms, self._ring, deadline_ms)

    def _ring(self, deadline_ms: int) -> None:
        if self._alarm_ms == deadline_ms:
            self._alarm_ms = -1
            self.inside(self.engine.fire_timers)

    # ---- connections

    def _accept(self, wire: Wire) -> ServerConnection:
        self._next_connection += 1
        connection = ServerConnection(self, wire, self._next_connection)
        self.connections[self._next_connection] = connection
        return connection

    def connection_lost(self, connection: ServerConnection) -> None:
        """Ends the sessions of a connection."""
        self.connections.pop(connection.connection_id, None)
        self.engine.connection_closed(connection.connection_id)

    def refuse(self, connection: ServerConnection) -> None:
        """Closes a connection whose client violated the protocol."""
        if connection.open:
            connection.open = False
            connection.queue.close()
            self.connection_lost(connection)
            connection.wire.cut()

    def stop(self) -> None:
        """Ends the process permanently, as a clean shutdown does."""
        if self.running:
            self.running = False
            self._life += 1
            self.network.accept = None
            with suppress(SimulatedCrashError):
                self.engine.close()
            self.store.log = None
