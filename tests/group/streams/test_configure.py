"""The configuration of topologies: partition counts of internal topics, co-partitioning, and invalid topologies."""

from __future__ import annotations

import pytest

from kcore.errors import KafkaError
from kcore.group.streams.configure import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    InternalTopic,
    Status,
    configure,
    summary,
)
from kcore.group.streams.topology import from_request
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.streams_group_heartbeat import Subtopology
from tests.group.context import Topics
from tests.group.streams.members import internal, subtopology, topology


def configured(topics: dict[str, int], *parts: Subtopology) -> ConfiguredTopology:
    return configure(from_request(topology(*parts)), Topics(topics))


def chosen_partitions(topics: dict[str, int], *parts: Subtopology) -> dict[str, int]:
    """Returns the partition counts that the configuration chooses for missing internal topics."""
    result = configured(topics, *parts)
    assert result.fault is not None
    assert result.fault.status is Status.MISSING_INTERNAL_TOPICS, result.fault
    return {name: topic.partitions for name, topic in result.missing.items()}


def fault(topics: dict[str, int], *parts: Subtopology) -> tuple[Status, str]:
    """Returns the fault of a topology that cannot be configured."""
    result = configured(topics, *parts)
    assert result == (0, None, {}, result.fault)
    assert result.fault is not None
    return result.fault.status, result.fault.detail


def error(topics: dict[str, int], *parts: Subtopology) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as caught:
        configured(topics, *parts)
    return caught.value.code, caught.value.message or ""


def test_a_ready_topology_has_tasks_and_state() -> None:
    """All topics of the topology exist, so its tasks are known. A subtopology has as many tasks as its largest input
    topic has partitions, and is stateful if it has a changelog.
    """
    result = configured(
        {"a": 2, "b": 3, "log": 3}, subtopology("1", ["a"]), subtopology("0", ["b", "a"], [internal("log")])
    )
    assert result == ConfiguredTopology(
        0,
        {
            "0": ConfiguredSubtopology(3, True, ("b", "a"), {"log": InternalTopic("log", 3, 0, {})}),
            "1": ConfiguredSubtopology(2, False, ("a",), {}),
        },
        {},
        None,
    )
    assert list(result.subtopologies or ()) == ["0", "1"]


def test_a_topology_without_subtopologies_is_ready() -> None:
    assert configured({}) == (0, {}, {}, None)


def test_missing_source_topics_hide_every_other_fault() -> None:
    """The status names three missing topics in order, and counts the others."""
    parts = subtopology("0", ["e", "d", "c", "b", "a"], [internal("log")], sinks=["r"])
    assert fault({"c": 1}, parts) == (Status.MISSING_SOURCE_TOPICS, "the source topics a, b, d and 1 more are missing")
    assert summary(["b", "a"]) == "a, b"


def test_repartition_counts_follow_their_writers() -> None:
    """A repartition topic gets the largest partition count among the inputs of the subtopology that writes to it. This
    works over several subtopologies, listed in any order.

    A count that the client has fixed stays. A changelog has one partition for each task.
    """
    counts = chosen_partitions(
        {"a": 2, "b": 5},
        subtopology("3", repartitions=[internal("r3")], changelogs=[internal("log3")]),
        subtopology("2", repartitions=[internal("r2"), internal("fixed", 7)], sinks=["r3"]),
        subtopology("1", repartitions=[internal("r1")], sinks=["r2"]),
        subtopology("0", ["a", "b"], sinks=["r1", "fixed"]),
    )
    assert counts == {"r1": 5, "r2": 5, "fixed": 7, "r3": 7, "log3": 7}


def test_counts_equal_the_counts_of_repeated_sweeps() -> None:
    """The partition counts equal those of Kafka's algorithm, which visits the repartition topics again and again.

    Each topic gets its count from those inputs that have a count at this time, and keeps it. So the order matters.
    """
    parts = (
        subtopology("0", repartitions=[internal("late"), internal("fixed", 2)], sinks=["early"]),
        subtopology("1", ["big"], sinks=["late"]),
        subtopology("2", repartitions=[internal("early")]),
    )
    assert chosen_partitions({"big": 9}, *parts) == {"late": 9, "fixed": 2, "early": 2}
    assert chosen_partitions({"big": 9}, parts[1], parts[0], parts[2]) == {"late": 9, "fixed": 2, "early": 9}


def test_a_long_chain_is_configured_in_linear_time() -> None:
    """Sweeps over 3,000 subtopologies in reverse order would take minutes."""
    size = 3_000
    chain = [subtopology(str(i), repartitions=[internal(f"r{i}")], sinks=[f"r{i + 1}"]) for i in reversed(range(size))]
    first, last = subtopology("in", ["in"], sinks=["r0"]), subtopology("out", repartitions=[internal(f"r{size}")])
    counts = chosen_partitions({"in": 4}, *chain, first, last)
    assert counts == {f"r{i}": 4 for i in range(size + 1)}


def test_many_copartition_groups_are_configured_in_linear_time() -> None:
    """Comparing all fixed topics in each of 20,000 co-partition groups would take minutes."""
    size = 5_000
    fixed = [internal(f"f{i}", 3) for i in range(size)]
    part = subtopology("0", repartitions=[internal("r"), *fixed], sinks=["r"], copartition=20_000 * [([], [0])])
    assert chosen_partitions({}, part) == {"r": 3} | {f"f{i}": 3 for i in range(size)}


def test_a_topology_with_too_many_tasks_is_not_ready() -> None:
    """A topology with more than 50,000 tasks is refused. Each subtopology that reads a topic has a task for each
    partition of the topic.
    """
    parts = [subtopology(str(i), ["in"]) for i in range(500)]
    assert configured({"in": 100}, *parts).is_ready
    text = "the topology has 50100 tasks, the maximum is 50000"
    expected = (Status.INCORRECTLY_PARTITIONED_TOPICS, text)
    assert fault({"in": 100}, *parts, subtopology("one more", ["in"])) == expected


def test_topologies_that_cannot_work_are_errors() -> None:
    invalid = ErrorCode.STREAMS_INVALID_TOPOLOGY
    loop = (
        subtopology("0", repartitions=[internal("r")], sinks=["s"]),
        subtopology("1", repartitions=[internal("s")], sinks=["r"]),
    )
    assert error({}, *loop) == (invalid, "repartition topics depend on each other in a loop: r, s")
    unwritten = subtopology("0", ["a"], repartitions=[internal("r")])
    assert error({"a": 1}, unwritten) == (invalid, "no subtopology writes the repartition topics r")
    no_input = subtopology("1", changelogs=[internal("log")])
    assert error({"a": 1}, subtopology("0", ["a"]), no_input) == (invalid, "subtopology 1 has no input topic")
    outside = subtopology("0", ["a"], copartition=[([0, 1], [])])
    assert error({"a": 1}, outside)[0] is ErrorCode.UNKNOWN_SERVER_ERROR


def test_copartitioned_topics_force_their_count_on_repartition_topics() -> None:
    """A repartition topic without a fixed count takes the count of the other topics, even a smaller one."""
    join = subtopology("1", ["b", "c"], repartitions=[internal("r")], copartition=[([0, 1], [0])])
    assert chosen_partitions({"a": 8, "b": 3, "c": 3}, subtopology("0", ["a"], sinks=["r"]), join) == {"r": 3}


def test_copartitioned_topics_with_different_counts_are_a_fault() -> None:
    incorrect = Status.INCORRECTLY_PARTITIONED_TOPICS
    sources = subtopology("0", ["a", "b"], copartition=[([0, 1], [])])
    text = "co-partitioned topics have different partition counts: a=2, b=3"
    assert fault({"a": 2, "b": 3}, sources) == (incorrect, text)
    fixed = subtopology("0", ["a"], repartitions=[internal("r", 4)], copartition=[([0], [0])])
    text = "the repartition topic r has 4 partitions, and its co-partitioned topics have 2"
    assert fault({"a": 2}, fixed) == (incorrect, text)
    both = subtopology("0", repartitions=[internal("r", 4), internal("s", 5)], copartition=[([], [0, 1])])
    text = "co-partitioned topics have different partition counts: r=4, s=5"
    assert fault({}, both) == (incorrect, text)


def test_copartitioned_repartition_topics_agree_on_a_count() -> None:
    """Co-partitioned repartition topics get the partition count that the client has fixed for one of them. If no count
    is fixed, they get the largest of their counts.
    """
    writers = (subtopology("0", ["a"], sinks=["r"]), subtopology("1", ["b"], sinks=["s"]))
    join = subtopology("2", repartitions=[internal("r"), internal("s")], copartition=[([], [0, 1])])
    assert chosen_partitions({"a": 2, "b": 6}, *writers, join) == {"r": 6, "s": 6}
    fixed = subtopology("3", repartitions=[internal("f", 5)])
    assert chosen_partitions({"a": 2, "b": 6}, *writers, join, fixed) == {"r": 5, "s": 5, "f": 5}


def test_existing_internal_topics_must_have_the_decided_count() -> None:
    """An existing internal topic must have the partition count that the topology needs. Otherwise the topology is
    refused.
    """
    incorrect = Status.INCORRECTLY_PARTITIONED_TOPICS
    stateful = subtopology("0", ["a"], [internal("log")])
    text = "the existing topic log has 3 partitions, but 2 are needed"
    assert fault({"a": 2, "log": 3}, stateful) == (incorrect, text)
    chained = (
        subtopology("0", ["a"], sinks=["r"]),
        subtopology("1", [], [internal("log")], repartitions=[internal("r")]),
    )
    text = "the existing topic r has 5 partitions, but 2 are needed"
    assert fault({"a": 2, "r": 5, "log": 5}, *chained) == (incorrect, text)
    assert configured({"a": 2, "r": 2, "log": 2}, *chained).is_ready


def test_topics_to_create_have_the_requested_properties() -> None:
    """A missing topic has the requested count, replication factor and settings."""
    result = configured({"a": 2}, subtopology("0", ["a"], [internal("log", replication_factor=1)]))
    assert result.missing == {"log": InternalTopic("log", 2, 1, {})}
    assert result.fault == (Status.MISSING_INTERNAL_TOPICS, "the internal topics log are missing")
    assert not result.is_ready


def test_topologies_are_equal_if_epoch_and_content_are() -> None:
    """As in Kafka, the order of topics counts, but the order of subtopologies does not."""
    one, other = subtopology("0", ["a", "b"]), subtopology("1", ["c"])
    assert from_request(topology(one, other)) == from_request(topology(other, one))
    assert from_request(topology(one)) != from_request(topology(one, epoch=1))
    assert from_request(topology(one)) != from_request(topology(subtopology("0", ["b", "a"])))
    with pytest.raises(KafkaError) as caught:
        from_request(topology(one, one))
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(KafkaError) as caught:
        from_request(topology(one, epoch=-1))
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("positions", [([-1], []), ([], [-1]), ([0, -2], []), ([2], []), ([], [1])])
def test_a_copartition_group_of_unknown_positions_is_an_error(positions: tuple[list[int], list[int]]) -> None:
    """A position outside of the topic list is an error, also a negative one, although Python would count it from the
    end.
    """
    part = subtopology("0", ["a", "b"], repartitions=[internal("r", 1)], copartition=[positions])
    code, message = error({"a": 1, "b": 1, "r": 1}, part)
    assert code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert message == "a co-partition group of subtopology 0 names an unknown topic"


@pytest.mark.parametrize("existing", [{}, {"r": 2}])
def test_a_negative_partition_count_is_an_error(existing: dict[str, int]) -> None:
    """A negative partition count of an internal topic is an error, whether or not the topic exists."""
    part = subtopology("0", ["a"], repartitions=[internal("r", -1)])
    code, message = error({"a": 2, **existing}, part)
    assert code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert message == "the internal topic r has -1 partitions; the count must be 1 or more"
