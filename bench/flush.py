"""Measures how long the device takes to flush a small write: `python -m bench.flush [FOLDER] [--rate 200]`.

With `--commits` it also measures commits of one offset by an embedded node with `fsync`, and prints the difference of
the medians. Blocks of commits and of bare flushes alternate.

A write has the size of a journal entry of one batch (300 bytes by default). It goes into a file of a fixed size and is
flushed, back to back or at a fixed rate. A device that was idle may take longer, so compare a latency with the row of
the same rate. The times are those of `pwrite` and `fdatasync` together, in µs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import NamedTuple

import kcore
from kcore.log.journal_file import FILL_BYTES
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

FILE_BYTES = 2 << 20


class FlushTimes(NamedTuple):
    """Percentiles of the time of a write and its flush, in µs, and the number of flushes."""

    p50: float
    p99: float
    p99_9: float
    longest: float
    count: int


def measure_flush(folder: str, seconds: float, rate: float = 0.0, size_bytes: int = 300) -> FlushTimes:
    """Measures flushes on the device of a folder.

    Args:
        folder: a folder on the device.
        seconds: the duration of the measurement.
        rate: flushes per second; 0 for flushes back to back.
        size_bytes: the size of each write.
    """
    data = os.urandom(size_bytes)
    times_us: list[float] = []
    fd, path = tempfile.mkstemp(prefix="flush-", dir=folder)
    try:
        for at in range(0, FILE_BYTES, FILL_BYTES):  # as kcore does: a short write into a large folio takes longer
            os.pwrite(fd, bytes(FILL_BYTES), at)
        os.fsync(fd)
        at = 0
        begin_s = due_s = time.perf_counter()
        while due_s < begin_s + seconds:
            if rate:
                due_s += 1 / rate
                time.sleep(max(0.0, due_s - time.perf_counter()))
            start_s = time.perf_counter()
            os.pwrite(fd, data, at)
            os.fdatasync(fd)
            end_s = time.perf_counter()
            times_us.append((end_s - start_s) * 1e6)
            due_s = due_s if rate else end_s
            at = (at + size_bytes) % (FILE_BYTES - size_bytes)
    finally:
        os.close(fd)
        os.unlink(path)
    times_us.sort()

    def at_share(share: float) -> float:
        return times_us[min(len(times_us) - 1, int(share * len(times_us)))]

    return FlushTimes(at_share(0.5), at_share(0.99), at_share(0.999), times_us[-1], len(times_us))


def measure_commits(folder: str, blocks: int = 10, block: int = 300) -> tuple[float, float]:
    """Measures `blocks` blocks of `block` commits each, with bare flushes between them.

    Returns the median times of a flush and of a commit, in µs.
    """
    flushes: list[float] = []
    commits: list[float] = []
    with tempfile.TemporaryDirectory(dir=folder) as data, kcore.open(f"{data}/data") as node:
        node.topics.create("t", partitions=1)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)
        for _ in range(blocks):
            flushes.append(measure_flush(folder, block / 2_000).p50)
            times_us = []
            for _ in range(block):
                start_s = time.perf_counter()
                response = node.send(request, 9)
                times_us.append((time.perf_counter() - start_s) * 1e6)
                assert response.topics[0].partitions[0].error_code == 0, response
            commits.append(statistics.median(times_us))
    return statistics.median(flushes), statistics.median(commits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("folder", nargs="?", default=tempfile.gettempdir(), help="a folder on the device")
    parser.add_argument("--seconds", type=float, default=3.0, help="the time of each row")
    parser.add_argument("--rate", type=float, default=200.0, help="flushes per second of the second row")
    parser.add_argument("--commits", action="store_true", help="measure commits of an embedded node, too")
    options = parser.parse_args()
    if not os.path.isdir(options.folder):
        parser.error(f"there is no folder {options.folder}; create it on the device that you want to measure")
    for name, rate in (("back to back", 0.0), (f"at {options.rate:.0f}/s", options.rate)):
        times = measure_flush(options.folder, options.seconds, rate)
        print(
            f"flush {name}: p50 {times.p50:.0f}, p99 {times.p99:.0f}, p99.9 {times.p99_9:.0f}, "
            f"longest {times.longest:.0f} us of {times.count}"
        )
    if options.commits:
        flush_us, commit_us = measure_commits(options.folder)
        print(f"commit of an embedded node: p50 {commit_us:.0f}, {commit_us - flush_us:.0f} us more than a flush")


if __name__ == "__main__":
    main()
