"""Programs that end without closing their nodes, members and producers: the interpreter ends without waiting for
threads.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT_S = 150.0
"""Time limit of a program. Only a program that never ends reaches it."""

BEGIN = """
import kcore
from kcore.node._sync import member, queue

member.CLOSE_TIMEOUT_MS = 3_600_000
queue.CLOSE_TIMEOUT_S = 3_600.0
settings = {"group.initial.rebalance.delay.ms": 0}

def prepare(node):
    node.topics.create("jobs")
    node.topics["jobs"].append("a record")
    node.group("sharers").set_config({"share.auto.offset.reset": "earliest"})
    return node
"""

LOOPS = """
node = prepare(kcore.open(config=settings))
other = NODE
loops = [
    iter(other.group("readers").consume(["jobs"])),
    iter(other.group("workers").join(["jobs"]).events()),
    iter(other.queue("jobs", group="sharers")),
]
for each in loops:
    next(each)
"""

NESTED = """
def records():
    with kcore.open(config=settings) as node:
        prepare(node)
        LISTEN
        with node.group("readers").consume(["jobs"]) as consumer, node.producer() as producer:
            with node.transaction("copier") as txn:
                txn.append("jobs", "another record")
                yield from consumer

held = records()
next(held)
"""

PROGRAMS = {
    "loops of an embedded node": LOOPS.replace("NODE", "node"),
    "loops of a node that listens": LOOPS.replace("NODE", 'node.listen("127.0.0.1:0") and node'),
    "loops of a connected node": LOOPS.replace("NODE", 'kcore.connect(node.listen("127.0.0.1:0").bootstrap)'),
    "a generator with a node": NESTED.replace("LISTEN", ""),
    "a generator with a node that listens": NESTED.replace("LISTEN", 'node.listen("127.0.0.1:0")'),
}


@pytest.mark.parametrize("program", list(PROGRAMS))
def test_generators_that_were_never_closed_do_not_delay_the_end_of_the_interpreter(program: str) -> None:
    """When the interpreter ends, it runs the `finally` and `with` blocks of open generators after all background
    threads have ended. These blocks must not wait for such threads.
    """
    text = f"{BEGIN}{PROGRAMS[program]}\nprint('the program ends', flush=True)\n"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert ended.stdout == "the program ends\n"
