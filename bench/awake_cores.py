"""Keeps the processor cores of a virtual machine awake while response times are measured.

A hypervisor suspends an idle virtual core. When a request or an interrupt of the disk arrives, the core needs 50 to 700
µs to resume, and its caches are then empty. At 1,000 requests per second the cores are idle most of the time, so these
delays are larger than the differences between servers.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Iterator


def _spin(core: int) -> None:
    """Uses all time of a core that no other program needs."""
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        pass


@contextlib.contextmanager
def awake_cores() -> Iterator[None]:
    """Runs a program of the lowest priority (`SCHED_IDLE`) on each core until the end of the `with` block.

    Any other program interrupts it immediately.

    Raises:
        OSError: the system is not Linux.
    """
    if sys.platform != "linux":
        raise OSError("cores can be kept awake only on Linux, which has the scheduling class SCHED_IDLE")
    spawn = multiprocessing.get_context("spawn")  # a fork would copy the state of a benchmark
    spinners = [spawn.Process(target=_spin, args=(core,), daemon=True) for core in sorted(os.sched_getaffinity(0))]
    try:
        for spinner in spinners:
            spinner.start()
        yield
    finally:
        for spinner in spinners:
            if spinner.pid is not None:
                spinner.kill()
                spinner.join()
