"""Threads that work on the log for a driver: to write commits, to free space, and to empty areas of the journal."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from kcore.drivers.offload import call_on_thread
from kcore.errors import LogError
from kcore.process_logging import log_failure, next_step

if TYPE_CHECKING:
    from kcore.drivers.event_loop import AsyncDriver
    from kcore.log import LogEngine
    from kcore.runtime.commit import BackgroundCommit

logger = logging.getLogger(__name__)

MEMORY_WAIT_S = 0.1  # pause before the writing thread tries again to notify the loop, after a MemoryError


class Writer:
    """A thread that writes to the log, one function at a time. It is used instead of an executor, whose futures would
    take more time than a round.

    Args:
        name: the name of the thread.

    Raises:
        RuntimeError: the system refuses to start a thread.
    """

    def __init__(self, name: str = "kcore-log") -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon thread: a process that ends without closing its engine must not wait for it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None]) -> None:
        """Queues `work`, which must not raise, after all earlier work."""
        self._work.put(work)

    def stop(self) -> None:
        """Waits until all queued work is done, and ends the thread."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


class JournalMover:
    """The thread that moves batches from full areas of a log's journal to the log; it starts with the first move.

    Args:
        log: the log whose journal is emptied.
    """

    def __init__(self, log: LogEngine) -> None:
        self._log = log
        self._thread: Writer | None = None
        if log.durability == "fsync":
            log.move_beside(self._start)

    def _start(self, move: Callable[[], None]) -> bool:
        """Queues a move; called by the thread that writes a commit.

        Returns False if the thread for moves cannot be started.
        """
        thread = self._thread
        if thread is None:
            try:
                thread = self._thread = Writer("kcore-journal")
            except RuntimeError as error:
                logger.warning(
                    "driver: cannot start the thread that moves journal entries to the log %s: %s; from now on, a "
                    "commit that finds the journal full moves the entries itself, and takes longer; check the "
                    "process's limit of threads (ulimit -u), and restart kcore",
                    self._log.name,
                    error,
                )
                self._log.move_beside(None)
                return False
        thread.do(move)
        return True

    def stop(self) -> None:
        """Waits for a queued move, and ends the thread. No commit may be written during the call. Can be repeated."""
        self._log.move_beside(None)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()


class WriteTask:
    """A background commit that the writing thread writes and the loop finishes."""

    __slots__ = ("_driver", "_finish", "background_commit", "began_s", "since_s")

    def __init__(self, driver: AsyncDriver, began_s: float) -> None:
        self._driver = driver
        self._finish = partial(driver.background_ended, self)
        self.began_s = began_s
        self.background_commit: BackgroundCommit | None = None
        self.since_s: float | None = None  # None: the round is not measured

    def write(self) -> None:
        """Writes the round.

        If there is not enough memory for the call, this method tries again until it succeeds, because all later rounds
        wait for this round.
        """
        assert self.background_commit is not None, "only a started background commit is written"
        while True:
            try:
                self.background_commit.write()
                return
            except MemoryError:  # raised before the write began: a failed write is noted in the commit
                time.sleep(MEMORY_WAIT_S)

    def write_in_background(self) -> None:
        """Writes the round on the writing thread, then schedules its end on the loop."""
        self.write()
        while True:
            try:
                self._driver.loop.call_soon_threadsafe(self._finish)
                return
            except MemoryError:
                time.sleep(MEMORY_WAIT_S)  # only this call notifies the loop, and every later round waits for it
            except RuntimeError:
                # the engine's `close` finishes the commit
                logger.debug(
                    "driver: the event loop was closed during a background commit; `Engine.close` finishes this commit"
                )
                return


def reclaim_on(writer: Writer, log_name: str, reclaim: Callable[[], bool]) -> None:
    """Runs `reclaim` on the writing thread until it returns False. The thread may write commits between two calls.

    Args:
        writer: the writing thread.
        log_name: the name of the log, for log lines.
        reclaim: frees some of the space of deleted batches; returns True if more space remains to be freed.
    """

    def run() -> None:
        try:
            if reclaim():
                writer.do(run)
        except LogError as error:  # for example, another node has become the controller
            logger.warning(
                "driver: cannot free the space of deleted batches in the log %s now: %s; kcore tries again when it "
                "deletes more batches; if this repeats, check the disk or the database of the log",
                log_name,
                error,
            )
        except Exception as error:
            log_failure(
                logger,
                error,
                "driver: cannot free the space of deleted batches in the log %s; kcore tries again when it deletes "
                "more batches%s",
                log_name,
                next_step(error),
            )

    writer.do(run)


class LogThreads:
    """The threads of an event loop's driver: one writes commits and frees space, another one empties the journal.

    Args:
        log: the log that the threads write.
        shared: True if other code uses the event loop, too.

    Attributes:
        usable: True if a thread may write commits. False if commits do not wait for the device, if no thread can be
            started, or if the driver is ending.
        write_every_round: True if a thread writes every round, because it is usable and the loop is shared. A round
            that forbids background commits then needs a pause.
    """

    def __init__(self, log: LogEngine, shared: bool) -> None:
        self.usable = log.durability == "fsync"
        self.write_every_round = self.usable and shared
        self._log_name = log.name
        self._writer: Writer | None = None
        self._mover = JournalMover(log)

    def started_writer(self) -> Writer | None:
        """Returns the writing thread, and starts it if necessary; None if the thread is not usable."""
        if self._writer is None and self.usable:
            try:
                self._writer = Writer()
            except RuntimeError as error:
                logger.warning(
                    "driver: cannot start the thread for background commits to the log %s: %s; from now on, every "
                    "commit blocks the event loop; check the process's limit of threads (ulimit -u), and restart kcore",
                    self._log_name,
                    error,
                )
                self.usable = self.write_every_round = False
        return self._writer

    def write(self, task: WriteTask) -> Exception | None:
        """Passes a started commit to the writing thread. If that fails, writes the commit itself.

        Returns:
            None if the thread calls `AsyncDriver.background_ended` later. Otherwise, the commit is written, and the
            caller finishes it, and then passes the returned error to `log_inline_write`.
        """
        try:
            assert self._writer is not None, "`started_writer` comes first"
            self._writer.do(task.write_in_background)
        except Exception as error:
            task.write()
            return error
        return None

    def log_inline_write(self, error: Exception) -> None:
        """Logs that `write` could not use the thread. Called last, because there may be no memory for the line."""
        log_failure(
            logger,
            error,
            "driver: cannot pass the commit to the thread for background commits; the event loop's thread has written "
            "the commit, which delayed other requests%s",
            next_step(error),
        )

    def reclaim_beside(self, reclaim: Callable[[], bool]) -> bool:
        """Runs `reclaim` on the writing thread until it returns False. The thread may write commits between two calls.

        Returns:
            False if there is no such thread.
        """
        writer = self.started_writer()
        if writer is None:
            return False
        reclaim_on(writer, self._log_name, reclaim)
        return True

    def stop(self) -> None:
        """Waits until the threads have done their work, and ends them."""
        if self._writer is not None:
            self._writer.stop()
        self._mover.stop()

    async def stop_beside(self) -> None:
        """Ends the threads without blocking the event loop. No thread writes commits from now on."""
        writer, self._writer = self._writer, None
        self.usable = self.write_every_round = False
        if writer is not None:
            await call_on_thread(writer.stop)
        await call_on_thread(self._mover.stop)
