"""`kcore serve --processes`: several processes serve one data folder, as the nodes of one cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.broker.cluster.folder_epochs import raise_leader_epochs
from kcore.broker.metadata.cluster_id import stored_cluster_id
from kcore.cli.serve_process import ALL_END
from kcore.cli.stop_signals import stop_at_signals
from kcore.clock import Now, SystemClock
from kcore.cluster.local.deadlines import Deadline
from kcore.cluster.local.prepare import folder_is_prepared, prepare
from kcore.cluster.local.store import monotonic_ms
from kcore.cluster.local.wake import notify
from kcore.engine import random_uuid
from kcore.errors import ConfigError
from kcore.log import LmdbLogEngine
from kcore.log.data_folder import DataFolder
from kcore.log.errors import DataFolderError
from kcore.log.node_journals import CLUSTER_FOLDER
from kcore.log.reserve import explained, make_reserve
from kcore.server.unused_settings import warn_of_unused_settings

if TYPE_CHECKING:
    from kcore.config.node import Config

logger = logging.getLogger("kcore.serve")

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
STABLE_S: Final = 30.0
"""Running time in seconds after which a process counts as stable.

If it then ends, the supervisor restarts it without a pause.
"""
CHECK_S: Final = 0.25
"""Time in seconds between two searches for processes that hang."""
HANGING_MS: Final = 2_000
"""Time in ms for which a process may hang after the end of its lease, before the supervisor kills it."""
END_S: Final = 25.0
"""Time in seconds within which all processes must end at a stop. The supervisor then kills the remaining processes."""


class Start(NamedTuple):
    """The settings of one process.

    Attributes:
        node_id: the id of the process's node.
        file: the properties file, or None.
        settings: the settings of the command line, NAME=VALUE.
        options: further settings, which differ between the processes.
        log_level: the lowest level of its log.
        log_format: the format of its log: `text` or `json`.
    """

    node_id: int
    file: str | None
    settings: list[str]
    options: dict[str, str]
    log_level: str
    log_format: str


def plan(config: Config, processes: int, start: Start) -> list[Start]:
    """Returns the settings of each process. Node ids and ports increase by one from process to process.

    Args:
        config: the settings of the command.
        processes: the number of processes.
        start: the options that all processes have in common.

    Raises:
        ConfigError: the number is not positive, a port is 0, or the ports of two processes overlap.
    """
    if processes < 1:
        raise ConfigError(f"--processes {processes}: must be at least 1")
    if not config.kcore_data_dir or config.kcore_durability == "memory":
        raise ConfigError("--processes needs a data folder (--data DIR), which the processes share")
    owners: dict[str, int] = {}
    plans = []
    for index in range(processes):
        listeners = [_shifted(address, index) for address in config.listeners]
        options = {**start.options, "node.id": str(config.node_id + index), "listeners": ",".join(listeners)}
        if config.advertised_listeners:
            options["advertised.listeners"] = ",".join(_shifted(one, index) for one in config.advertised_listeners)
        if config.kcore_http_listen:
            options["kcore.http.listen"] = _shifted(config.kcore_http_listen, index)
        for address in (*listeners, *filter(None, [options.get("kcore.http.listen")])):
            host_port = address.rpartition("//")[2]
            if owners.setdefault(host_port, index) != index:
                raise ConfigError(
                    f"two processes would listen on {host_port}: each listener needs {processes} ports in a row "
                    "that no other listener uses"
                )
        plans.append(start._replace(node_id=config.node_id + index, options=options))
    return plans


def _shifted(address: str, by: int) -> str:
    """Returns an address with a higher port."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) == 0:
        raise ConfigError(f"{address}: --processes needs a fixed port; the processes use this port and the next ones")
    if int(port) + by > 65_535:
        raise ConfigError(f"{address}: too few ports above this one for the processes of --processes")
    return f"{host}:{int(port) + by}"


class Child:
    """One process of the server, which the supervisor starts again whenever it ends.

    Args:
        start: the settings of the process.
        locks: the descriptors of the folder's locks, which the process inherits.

    Attributes:
        has_served: True once any of its runs has begun to serve.
        is_serving: True once the current run has begun to serve.
    """

    def __init__(self, start: Start, locks: tuple[int, ...]) -> None:
        self.start = start
        self.has_served = False
        self.is_serving = False
        self._locks = locks
        self._process: asyncio.subprocess.Process | None = None
        self._pause_s = 0.0

    async def run(self, served: Callable[[], None]) -> int:
        """Runs the process once; returns its exit status.

        Args:
            served: called when the process has begun to serve.
        """
        reading, writing = os.pipe()
        began_s = time.monotonic()
        self.is_serving = False
        loop = asyncio.get_running_loop()
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kcore.cli.serve_process"),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(writing, *self._locks),
                process_group=0,  # an interrupt from the terminal reaches the supervisor only
            )
            loop.add_reader(reading, self._read, reading, served)
            self.send(json.dumps({**self.start._asdict(), "ready": writing}).encode() + b"\n")
            return await process.wait()
        finally:
            loop.remove_reader(reading)
            os.close(reading)
            os.close(writing)
            self._process = None
            self.is_serving = False
            if time.monotonic() - began_s > STABLE_S:
                self._pause_s = 0.0

    def _read(self, reading: int, served: Callable[[], None]) -> None:
        os.read(reading, 100)
        self.is_serving = self.has_served = True
        served()

    def next_pause_s(self) -> float:
        """Returns the seconds to wait before the next start. The time grows while the process ends early."""
        pause_s, self._pause_s = self._pause_s, min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
        return pause_s

    def send(self, line: bytes) -> None:
        """Writes a line to the standard input of the running process."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.write(line)

    def kill(self) -> None:
        """Kills the running process."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


class Supervisor:
    """The parent that keeps the processes running until SIGTERM, SIGINT or SIGHUP.

    Args:
        path: the data folder, which `make_ready` has prepared.
        folder: the folder's lock.
        starts: the settings of the processes.
    """

    def __init__(self, path: str, folder: DataFolder, starts: list[Start]) -> None:
        self._path = path
        self._children = [Child(start, folder.lock_descriptors()) for start in starts]
        self._stop = asyncio.Event()
        self._status = 0

    async def run(self) -> int:
        """Runs the processes; returns the exit status, which is 1 if a process cannot start."""
        loop = asyncio.get_running_loop()
        stop_at_signals(loop, self._stop.set)
        keeping = [asyncio.ensure_future(self._keep(child)) for child in self._children]
        watching = asyncio.ensure_future(self._watch())
        await self._stop.wait()
        watching.cancel()
        for child in self._children:
            child.send(ALL_END)
        _, late = await asyncio.wait(keeping, timeout=END_S)
        if late:
            nodes = [child.start.node_id for child, task in zip(self._children, keeping, strict=True) if task in late]
            logger.error(
                "cluster: the processes of nodes %s have not ended after %d s, and kcore kills them; the next start "
                "recovers their logs",
                ", ".join(map(str, nodes)),
                int(END_S),
            )
            for child in self._children:
                child.kill()
            await asyncio.wait(late)
        for done in keeping:
            done.result()
        if not self._status:
            logger.info("cluster: all processes have ended")
        return self._status

    async def _keep(self, child: Child) -> None:
        """Runs a process, and starts it again whenever it ends."""
        node_id = child.start.node_id
        try:
            while not self._stop.is_set():
                status = await child.run(self._served)
                if self._stop.is_set():
                    return
                if not folder_is_prepared(self._path):
                    message = f"the folder {self._path} or its part {CLUSTER_FOLDER} was removed; all processes end"
                    print(f"kcore: {message}", file=sys.stderr)
                    self._status = 1
                    self._stop.set()
                    return
                if not child.has_served and status >= 0:  # a killed process starts again
                    print(f"kcore: the process of node {node_id} cannot start (status {status})", file=sys.stderr)
                    self._status = 1
                    self._stop.set()
                    return
                notify(self._path)  # the other nodes check at once, and find the locks of this process free
                pause_s = child.next_pause_s()
                _log_end(node_id, status, pause_s)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause_s)
        except BaseException:
            self._status = 1
            self._stop.set()
            raise

    def _served(self) -> None:
        if all(child.has_served for child in self._children) and not self._stop.is_set():
            count = len(self._children)
            print(f"kcore: {count} {'process serves' if count == 1 else 'processes serve'} {self._path}", flush=True)

    async def _watch(self) -> None:
        """Kills processes that hang, because a stopped process may hold a lock that other processes need."""
        checked_ms = monotonic_ms()
        patient_until_ms = 0
        while True:
            await asyncio.sleep(CHECK_S)
            now_ms = monotonic_ms()
            if now_ms - checked_ms > HANGING_MS // 2:  # this process was stopped, too
                patient_until_ms = now_ms + 2 * HANGING_MS
            checked_ms = now_ms
            for child in self._children:
                node_id = child.start.node_id
                if child.is_serving and now_ms > max(self._deadline_ms(node_id) + HANGING_MS, patient_until_ms):
                    logger.error(
                        "cluster: the process of node %d does not renew its lease; kcore kills it and starts it again; "
                        "if this repeats, check the load of the machine and its disk",
                        node_id,
                    )
                    child.kill()

    def _deadline_ms(self, node_id: int) -> int:
        return Deadline.of_node(self._path, node_id).read_ms()


def _log_end(node_id: int, status: int, pause_s: float) -> None:
    """Logs that the process of a node has ended and starts again.

    The status is 0 after SIGTERM, SIGINT or SIGHUP, such as in a rolling restart. It is negative if a signal killed
    the process.
    """
    if not status:
        logger.info(
            "cluster: the process of node %d has ended in an orderly way (status 0), as after SIGTERM; kcore starts it "
            "again in %.1f s",
            *(node_id, pause_s),
        )
    elif status < 0:
        logger.error(
            "cluster: the process of node %d was killed by %s; kcore starts it again in %.1f s; unless an operator "
            "killed the process, look in the system's log for the cause, such as a lack of memory",
            *(node_id, _signal_name(-status), pause_s),
        )
    else:
        logger.error(
            "cluster: the process of node %d has ended with status %d; kcore starts it again in %.1f s; the earlier "
            "log lines of the process have the cause",
            *(node_id, status, pause_s),
        )


def _signal_name(number: int) -> str:
    """Returns the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def make_ready(config: Config) -> DataFolder:
    """Prepares the data folder for several processes; creates it if it is missing.

    Returns:
        The folder's lock. The caller releases it after the last process has ended.

    Raises:
        DataFolderError: the folder is damaged, locked, of an unknown version, or not a kcore folder.
        LogError: the folder cannot be read or written.
    """
    path = os.path.abspath(config.kcore_data_dir)
    log = LmdbLogEngine(path, config.kcore_durability, map_size_bytes=config.kcore_map_size)
    try:
        stored_cluster_id(log, config, random_uuid)
        leaders = raise_leader_epochs(log, Now(SystemClock()))
        log.commit()
        epoch = log.node_epoch
    finally:
        log.close()
    folder = DataFolder(path, create=False)
    try:
        prepare(path, leaders, epoch)
    except BaseException:
        folder.release()
        raise
    return folder


def serve_processes(config: Config, processes: int, start: Start) -> int:
    """Serves a data folder with several processes until SIGTERM, SIGINT or SIGHUP.

    Args:
        config: the settings of the command.
        processes: the number of processes.
        start: the settings that all processes have in common.

    Returns:
        The exit status: 1 if a process cannot start.

    Raises:
        ConfigError: the settings do not suit several processes.
        LogError: the data folder cannot be used.
    """
    starts = plan(config, processes, start)
    warn_of_unused_settings(config, in_cluster=True)
    try:
        folder = make_ready(config)
    except DataFolderError as error:
        raise explained(error) from error
    try:
        make_reserve(folder.path, config.kcore_reserve_bytes)
        status = asyncio.run(_supervise(folder, starts))
        folder.remove_holder()
    finally:
        folder.release()
    # One process may serve the folder again: this moves what the processes have left in their journals.
    LmdbLogEngine(folder.path, config.kcore_durability, create=False).close()
    return status


async def _supervise(folder: DataFolder, starts: list[Start]) -> int:
    return await Supervisor(folder.path, folder, starts).run()
