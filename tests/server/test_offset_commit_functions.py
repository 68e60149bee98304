"""docs/architecture.md lists the functions that a server calls for an OffsetCommit. The tests compare this table with a
real request.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from kcore.clock import ManualClock
from kcore.drivers.offload import CommitOffloadPolicy
from kcore.log.lmdb_engine import LmdbLogEngine
from tests.kit import commit, create
from tests.server.live import LiveServer

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {
    "Alarm.set",
    "CommitOffloadPolicy.wrote",
    "DataFileLock.descriptor",
    "Engine.next_deadline_ms",
    "LmdbEnvironment.flushes",
    "ManualClock.monotonic_ms",
    "ManualClock.wall_ms",
    "ResponseMemory.end_round",
    "Server._after_flush",
    "Slices.__len__",
    "StagedLogEngine._require_open",
    "Topics.by_name",
    "WriteSet.__init__",
    "WriteSet.empty",
}
"""Functions that the test ignores, because the table in docs/architecture.md does not list them.

They are constructors, single lines, limits, timers, statistics, and the clock of this test.
"""


def functions_of_the_table() -> list[tuple[str, str]]:
    """Returns the files of the table and their functions, in order."""
    text = (ROOT / "docs" / "architecture.md").read_text().partition("### The functions of an OffsetCommit\n")[2]
    rows = re.findall(r"^\| [^|]*\| `([^`]+)` \| (.+) \|$", text.partition("\n## ")[0], re.MULTILINE)
    return [(file, name) for file, names in rows for name in re.findall(r"`([\w.]+)`", names)]


def definitions(path: Path) -> set[str]:
    """Returns the names of the functions in a Python or Cython file. The name of a method begins with its class."""
    found, owner = set(), ""
    for line in path.read_text().splitlines():
        if match := re.match(r"(?:cdef )?class (\w+)", line):
            owner = match[1] + "."
        elif match := re.match(r"( *)(?:def|cdef|cpdef) [^(=]*?(\w+)\(", line):
            found.add(owner + match[2] if match[1] else match[2])
    return found


@pytest.mark.parametrize("file", sorted({file for file, _ in functions_of_the_table()}))
def test_each_function_of_the_table_is_in_its_file(file: str) -> None:
    named = {name for path_of_row, name in functions_of_the_table() if path_of_row == file}
    assert named - definitions(ROOT / file) == set()


def test_an_offset_commit_passes_the_functions_of_the_table(tmp_path: Path) -> None:
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and Path(code.co_filename).is_relative_to(ROOT / "kcore"):
            called.append(code.co_qualname)

    request = commit("g", {("t", 0): 5})
    with LiveServer(log=LmdbLogEngine(tmp_path / "data"), clock=ManualClock()) as live, live.raw() as raw:
        for earlier, version in [(create("t"), 7), (request, 9), (request, 9)]:
            raw.send(raw.request(earlier, version))
            raw.receive(earlier, version)
        live.driver._offload_policy = CommitOffloadPolicy(math.inf)  # the commit is inline
        live.call(lambda: sys.setprofile(note))
        raw.send(raw.request(request, 9))
        _, response = raw.receive(request, 9)
        live.call(lambda: sys.setprofile(None))
    assert [part.error_code for topic in response.topics for part in topic.partitions] == [0]
    in_python = [name for file, name in functions_of_the_table() if file.endswith(".py")]
    assert [name for name in dict.fromkeys(called) if name not in LEFT_OUT] == in_python
