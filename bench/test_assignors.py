"""Assignors at the sizes of `bench/peers/java` (Kafka's own classes): CPU milliseconds per assignment.

    pytest bench/test_assignors.py --benchmark-timer=time.process_time       every cell, with pytest-benchmark
    python bench/test_assignors.py                                           a table of all cells
    bench/peers/java/run.sh assign > kafka.jsonl; python bench/test_assignors.py kafka.jsonl     beside Kafka's Java

Each cell has four figures:

- *arrays*: numpy arrays as input and output (`kcore.assignors.arrays`). The group is made beforehand, like Kafka's
  GroupSpec.
- *typed*: Member objects as input and a GroupAssignment as output. The time includes the conversion to arrays.
- *rows*: as *typed*, but the time also includes `values()`. This builds an immutable dict topic -> tuple of partitions
  for each member, as Kafka's classes return it.
- *dict*: as *typed*, but the time also includes `to_dict()`, a new dict of all members.

A pure-Python baseline runs the core of each algorithm in dictionaries and lists. It lacks the tie-breaks that identical
results would require.

As in Kafka's suite, the previous assignment exists as objects before the clock starts, and topics are made once.

In cells with "incremental", one member joins a group that has the full assignment. In cells with "unequal", there are
five kinds of subscription, each with a fifth of the topics. Members have no racks.
"""

import gc
import heapq
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from kcore.assignors import GroupAssignment, Member, Topics, arrays, get
from kcore.assignors.streams_sticky import StickyTaskAssignor, StreamsAssignment, StreamsMember, Subtopology

SERVER = [(100, 10, 10), (1000, 10, 50), (1000, 100, 50), (10000, 50, 100), (10000, 50, 1000)]
CLIENT = [(100, 10, 10), (500, 20, 25), (1000, 10, 50), (1000, 100, 50), (2000, 10, 100)]
STREAMS = [(100, 10, 10), (1000, 10, 50), (1000, 100, 50)]
KINDS = 5
# name -> (bench of the Java suite, sizes, group type, name of the assignor, True if it uses the previous assignment)
ASSIGNORS: dict[str, tuple[str, list[tuple[int, int, int]], str, str, bool]] = {
    "uniform": ("assign.server.uniform", SERVER, "consumer", "uniform", True),
    "range (server)": ("assign.server.range", SERVER, "consumer", "range", True),
    "simple": ("assign.share.simple", SERVER, "share", "simple", True),
    "range": ("assign.client.range", CLIENT, "classic", "range", False),
    "roundrobin": ("assign.client.roundrobin", CLIENT, "classic", "roundrobin", False),
    "sticky": ("assign.client.sticky", CLIENT, "classic", "sticky", True),
    "cooperative-sticky": ("assign.client.cooperative", CLIENT, "classic", "cooperative-sticky", True),
    "kcore.balanced": ("", SERVER, "consumer", "kcore.balanced", True),
}
Cell = tuple[str, tuple[int, int, int], bool, bool]


def cells() -> list[Cell]:
    """Lists (assignor, size, equal subscriptions, from scratch), in the order of the Java suite."""
    return [
        (name, size, equal, full)
        for name, (_, sizes, _, _, stateful) in ASSIGNORS.items()
        for size in sizes
        for equal in (True, False)
        for full in (True, False)
        if full or stateful
    ]


def kind_of(member: int, members: int, equal: bool) -> int:
    per_kind = (members + KINDS - 1) // KINDS
    return 0 if equal else min(member // per_kind, KINDS - 1)


def kinds(topics: int, equal: bool) -> list[list[int]]:
    """Returns the topic numbers of each kind of subscription."""
    per_kind = (topics + KINDS - 1) // KINDS
    return (
        [list(range(topics))]
        if equal
        else [list(range(k * per_kind, min((k + 1) * per_kind, topics))) for k in range(KINDS)]
    )


def array_call(name: str, size: tuple[int, int, int], equal: bool, full: bool) -> Callable[[], Any]:
    """Returns a call of the array API for one cell. The previous assignment is made before the clock starts."""
    members, topics, partitions = size

    def group(count: int) -> arrays.Group:
        return arrays.Group(
            np.full(topics, partitions, np.int32),
            kind_of=np.array([kind_of(m, members, equal) for m in range(count)], np.int32),
            kinds=kinds(topics, equal),
        )

    if name == "simple":
        if full:
            made = group(members)
            return lambda: arrays.share_simple(made)
        first, rows = arrays.share_simple(group(members - 1))
        before_rows = (np.append(first, first[-1]).astype(np.int32), rows)
        made = group(members)
        return lambda: arrays.share_simple(made, before_rows)
    plain: dict[str, Callable[[arrays.Group], Any]] = {
        "range (server)": arrays.server_range,
        "range": arrays.range_,
        "roundrobin": arrays.roundrobin,
    }
    made = group(members)
    if name in plain:
        return lambda: plain[name](made)
    face = {
        "uniform": arrays.uniform_,
        "sticky": arrays.sticky,
        "cooperative-sticky": arrays.cooperative_sticky,
        "kcore.balanced": arrays.balanced,
    }[name]
    if full:
        return lambda: face(made)
    owner = face(group(members - 1))
    before = owner[0] if isinstance(owner, tuple) else owner
    return lambda: face(made, before)


def typed_call(name: str, size: tuple[int, int, int], equal: bool, full: bool) -> Callable[[], GroupAssignment]:
    """Returns a call of the typed API. The members (member-0, member-1, …) are made before the clock starts."""
    members, topics, partitions = size
    _, _, group_type, kafka_name, _ = ASSIGNORS[name]
    assignor = get(kafka_name, group_type)  # type: ignore[arg-type]
    names = [f"topic-{t}" for t in range(topics)]
    topics_ = Topics(dict.fromkeys(names, partitions))
    subscriptions = [tuple(names[t] for t in row) for row in kinds(topics, equal)]
    client = group_type == "classic"

    def make(count: int, before: GroupAssignment | None) -> list[Member]:
        made = []
        for m in range(count):
            member_id = f"member-{m}"
            owned = before.get(member_id) if before is not None and client else None
            data = None
            if owned is not None and name == "sticky":
                from kcore.assignors.sticky import StickyAssignorUserData  # noqa: PLC0415

                data = StickyAssignorUserData(dict(owned), 1).encode()
            generation = 1 if owned is not None else -1
            made.append(
                Member(
                    member_id,
                    subscriptions[kind_of(m, members, equal)],
                    owned=owned,
                    generation_id=generation,
                    user_data=data,
                )
            )
        return made

    if full:
        group = make(members, None)
        return lambda: assignor.assign(group, topics_)
    before = assignor.assign(make(members - 1, None), topics_)
    before.values()
    joined = make(members, before)
    if client:
        return lambda: assignor.assign(joined, topics_)
    return lambda: assignor.assign(joined, topics_, before)


def baseline_call(name: str, size: tuple[int, int, int], equal: bool, full: bool) -> Callable[[], Any]:
    """Returns the call of the baseline: comparable work in pure Python with dictionaries, lists and heaps."""
    members, topics, partitions = size
    subscriptions = kinds(topics, equal)
    group = {f"member-{m}": subscriptions[kind_of(m, members, equal)] for m in range(members)}
    before: dict[str, list[tuple[int, int]]] = {}
    if not full and name not in ("range", "range (server)", "roundrobin"):
        before = python_least_loaded({m: t for m, t in group.items() if m != f"member-{members - 1}"}, partitions, {})
    if name in ("range", "range (server)"):
        return lambda: python_range(group, partitions)
    return lambda: python_least_loaded(group, partitions, before)


def python_range(group: dict[str, list[int]], partitions: int) -> dict[str, list[tuple[int, int]]]:
    per_topic: dict[int, list[str]] = {}
    for member in sorted(group):
        for topic in group[member]:
            per_topic.setdefault(topic, []).append(member)
    result: dict[str, list[tuple[int, int]]] = {member: [] for member in group}
    for topic, subscribers in per_topic.items():
        share, extra = divmod(partitions, len(subscribers))
        at = 0
        for i, member in enumerate(subscribers):
            size = share + (i < extra)
            result[member].extend((topic, p) for p in range(at, at + size))
            at += size
    return result


def python_least_loaded(
    group: dict[str, list[int]], partitions: int, before: dict[str, list[tuple[int, int]]]
) -> dict[str, list[tuple[int, int]]]:
    """Keeps partitions up to an even share, then assigns the rest to the least loaded subscriber."""
    subscribers: dict[int, list[str]] = {}
    for member, topics in group.items():
        for topic in topics:
            subscribers.setdefault(topic, []).append(member)
    share = -(-len(subscribers) * partitions // len(group))
    result = {member: before.get(member, [])[:share] for member in group}
    taken = {partition for kept in result.values() for partition in kept}
    heaps: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for topic, who in subscribers.items():
        key = (who[0], who[-1])
        if key not in heaps:
            heaps[key] = [(len(result[member]), member) for member in who]
            heapq.heapify(heaps[key])
        heap = heaps[key]
        for p in range(partitions):
            if (topic, p) in taken:
                continue
            load, member = heap[0]
            while load != len(result[member]):
                heapq.heapreplace(heap, (len(result[member]), member))
                load, member = heap[0]
            result[member].append((topic, p))
            heapq.heapreplace(heap, (load + 1, member))
    return result


def streams_array_call(size: tuple[int, int, int], standby: int, full: bool) -> Callable[[], Any]:
    """Returns a call of the streams assignor over arrays, with one process per member. Half of the subtopologies have
    state.
    """
    members, topics, partitions = size
    tasks = np.full(topics, partitions, np.int32)
    stateful = (np.arange(topics, dtype=np.int32) + 1) % 2
    made = arrays.Group(tasks, members)
    processes = np.arange(members, dtype=np.int32)
    if full:
        return lambda: arrays.streams_sticky(made, processes, stateful, num_standby_replicas=standby)
    active, (first, rows) = arrays.streams_sticky(
        arrays.Group(tasks, members - 1), processes[:-1], stateful, num_standby_replicas=standby
    )
    before = (np.append(first, first[-1]).astype(np.int32), rows)
    return lambda: arrays.streams_sticky(
        made, processes, stateful, num_standby_replicas=standby, active=active, standby=before
    )


def streams_call(size: tuple[int, int, int], standby: int, full: bool) -> Callable[[], Any]:
    members, topics, partitions = size
    parts = {f"subtopology-{t}": Subtopology(partitions, t % 2 == 0) for t in range(topics)}
    assignor = StickyTaskAssignor()
    count = members if full else members - 1
    group = [StreamsMember(f"member-{m}", f"process-{m}") for m in range(count)]
    if not full:
        before = assignor.assign(group, parts, num_standby_replicas=standby)
        group = [
            StreamsMember(
                m.member_id, m.process_id, active=before.active[m.member_id], standby=before.standby[m.member_id]
            )
            for m in group
        ]
        group.append(StreamsMember(f"member-{count}", f"process-{count}"))
    return lambda: assignor.assign(group, parts, num_standby_replicas=standby)


def cpu_ms(call: Callable[[], Any], budget_s: float = 0.12) -> float:
    """Returns the median CPU milliseconds per call. Each sample lasts at least a few milliseconds."""
    call()
    begin = time.process_time()
    call()
    once = max(time.process_time() - begin, 1e-7)
    repeat = max(1, int(0.01 / once))
    samples: list[float] = []
    end = time.process_time() + budget_s
    while len(samples) < 3 or (time.process_time() < end and len(samples) < 9):
        begin = time.process_time()
        for _ in range(repeat):
            call()
        samples.append((time.process_time() - begin) / repeat)
    return median(samples) * 1e3


def name_of(cell: Cell) -> str:
    name, size, equal, full = cell
    kind = "equal" if equal else "unequal"
    return f"{name} {'/'.join(map(str, size))} {kind} {'from scratch' if full else 'incremental'}"


@pytest.mark.parametrize("face", ["arrays", "typed", "python"])
@pytest.mark.parametrize("cell", cells(), ids=name_of)
def test_assignor(benchmark: Any, cell: Cell, face: str) -> None:
    call = {"arrays": array_call, "typed": typed_call, "python": baseline_call}[face](*cell)
    assert benchmark(call) is not None


@pytest.mark.parametrize("full", [True, False], ids=["from scratch", "incremental"])
@pytest.mark.parametrize("standby", [0, 1])
@pytest.mark.parametrize("face", [streams_array_call, streams_call], ids=["arrays", "typed"])
@pytest.mark.parametrize("size", STREAMS, ids=lambda size: "/".join(map(str, size)))
def test_streams(benchmark: Any, size: tuple[int, int, int], face: Any, standby: int, full: bool) -> None:
    assert benchmark(face(size, standby, full)) is not None


def kafka_figures(path: str) -> dict[tuple[str, tuple[int, int, int], Any, bool], float]:
    """Reads CPU milliseconds from the JSON lines of the Java suite."""
    figures: dict[tuple[str, tuple[int, int, int], Any, bool], float] = {}
    for line in Path(path).read_text().splitlines():
        entry = json.loads(line)
        if not str(entry.get("bench", "")).startswith("assign") or "error" in entry:
            continue
        p = entry["params"]
        full = p["type"] == "full"
        cpu = entry["cpu_us_per_op"] / 1e3
        if "subtopologies" in p:
            size = (p["members"], p["subtopologies"], p["tasks_per_subtopology"])
            figures[entry["bench"], size, p["standby_replicas"], full] = cpu
        else:
            size = (p["members"], p["topics"], p["partitions_per_topic"])
            figures[entry["bench"], size, p["subscriptions"] == "homogeneous", full] = cpu
    return figures


def row_of(label: str, java: float | None, figures: list[float], python: float) -> str:
    """Renders one line of the table. A ratio above 1 is the speed-up over Kafka."""
    shown = "".join(f" {f:8.3f} {java / f if java else float('nan'):6.1f}" for f in figures)
    return f"{label:58} {java or float('nan'):9.3f}{shown} {python:9.2f}"


def main(kafka: dict[tuple[str, tuple[int, int, int], Any, bool], float], only: str) -> None:
    columns = "".join(f" {name:>8} {'x':>6}" for name in ("arrays", "typed", "rows", "dict"))
    print(f"{'':58} {'Kafka':>9}{columns} {'python':>9}")
    gc.freeze()
    for cell in cells():
        name, size, equal, full = cell
        if only not in name_of(cell):
            continue
        java = kafka.get((ASSIGNORS[name][0], size, equal, full))
        call = typed_call(*cell)
        figures = [
            cpu_ms(array_call(*cell)),
            cpu_ms(call),
            cpu_ms(lambda call=call: call().values()),  # type: ignore[misc]
            cpu_ms(lambda call=call: call().to_dict()),  # type: ignore[misc]
        ]
        python = cpu_ms(baseline_call(*cell)) if name != "kcore.balanced" else float("nan")
        print(row_of(name_of(cell), java, figures, python), flush=True)
    for size, standby, full in itertools.product(STREAMS, (0, 1), (True, False)):
        kind = "from scratch" if full else "incremental"
        label = f"streams sticky {'/'.join(map(str, size))} standby {standby} {kind}"
        if only not in label:
            continue
        whole = streams_call(size, standby, full)
        figures = [
            cpu_ms(streams_array_call(size, standby, full)),
            cpu_ms(whole),
            cpu_ms(lambda call=whole: [part.values() for part in both(call())]),  # type: ignore[misc]
            cpu_ms(lambda call=whole: [part.to_dict() for part in both(call())]),  # type: ignore[misc]
        ]
        print(
            row_of(label, kafka.get(("assign.streams.sticky", size, standby, full)), figures, float("nan")), flush=True
        )


def both(assignment: StreamsAssignment) -> tuple[GroupAssignment, GroupAssignment]:
    return assignment.active, assignment.standby


if __name__ == "__main__":
    files = [a for a in sys.argv[1:] if a.endswith(("json", "jsonl"))]
    words = [a for a in sys.argv[1:] if a not in files]
    main(kafka_figures(files[0]) if files else {}, words[0] if words else "")
