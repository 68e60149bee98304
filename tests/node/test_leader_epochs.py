"""Consumers after a change of a partition's leader: they validate their positions with the new leader (KIP-320)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import kcore
from kcore.errors import LogTruncationError, OffsetOutOfRangeError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.topic_partition import TopicPartition
from tests.recording_proxy import RecordingProxy

NEW_EPOCH = 7


class NewLeader:
    """Makes one broker appear as two: after `elect`, the partitions have another leader, whose epoch is `NEW_EPOCH`.

    Args:
        end_of_epoch: (end offset, epoch) that the new leader returns in its OffsetForLeaderEpoch responses.
    """

    def __init__(self, end_of_epoch: tuple[int, int]) -> None:
        self.end_offset, self.epoch = end_of_epoch
        self.elected = False
        self.refused = False
        self.epoch_requests: list[tuple[int, int, int]] = []

    def request(self, api: ApiKey, request: Any) -> None:
        if api is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            for topic in request.topics:
                for row in topic.partitions:
                    self.epoch_requests.append((row.partition, row.current_leader_epoch, row.leader_epoch))
                    row.current_leader_epoch = -1  # the broker itself has another epoch
        elif api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
            for topic in request.topics:
                for row in topic.partitions:
                    row.current_leader_epoch = -1

    def response(self, api: ApiKey, response: Any) -> None:
        if not self.elected:
            return
        if api is ApiKey.METADATA:
            for topic in response.topics:
                for row in topic.partitions:
                    row.leader_epoch = NEW_EPOCH
        elif api is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            for topic in response.topics:
                for row in topic.partitions:
                    row.end_offset, row.leader_epoch = self.end_offset, self.epoch
        elif api is ApiKey.FETCH and not self.refused:
            for topic in response.responses:
                for row in topic.partitions:
                    self.refused = True
                    row.records = None
                    row.error_code = ErrorCode.FENCED_LEADER_EPOCH


def read_until(consumer: Any, offset: int) -> list[int]:
    """Polls until the record with an offset has arrived. Returns the offsets of all records."""
    offsets: list[int] = []
    until_s = time.monotonic() + 60
    while offset not in offsets:
        assert time.monotonic() < until_s, offsets
        offsets += [record.offset for record in consumer.poll(1)]
    return offsets


@pytest.fixture
def read(bootstrap: str, name: str) -> Callable[..., tuple[NewLeader, list[int]]]:
    """Returns a function that runs a consumer: it reads three records, changes the leader, and reads on. The function
    returns the offsets that the consumer reads from the new leader.
    """

    def run(end_of_epoch: tuple[int, int], reset: Any = "earliest") -> tuple[NewLeader, list[int]]:
        leader = NewLeader(end_of_epoch)
        with (
            RecordingProxy(bootstrap, leader.request, leader.response) as proxy,
            kcore.connect(proxy.bootstrap) as node,
        ):
            topic = node.topics.create(name, 1)
            topic.append_many(["a", "b", "c"])
            if reset == "none":
                node.group(name).commit({(name, 0): 0})
            with node.group(name).consume(name, reset=reset, auto_commit=None) as consumer:
                offsets = read_until(consumer, 2)
                assert offsets == [0, 1, 2]
                assert leader.epoch_requests == []
                leader.elected = True
                topic.append("d")
                offsets = read_until(consumer, 3)
        return leader, offsets

    return run


def test_a_position_that_the_new_leader_has_stays(read: Callable[..., tuple[NewLeader, list[int]]]) -> None:
    leader, offsets = read((3, 0))
    assert (offsets, leader.epoch_requests) == ([3], [(0, NEW_EPOCH, 0)])


def test_a_position_behind_a_truncation_moves_to_the_offset_where_the_logs_differ(
    read: Callable[..., tuple[NewLeader, list[int]]],
) -> None:
    leader, offsets = read((1, 0))
    assert offsets == [1, 2, 3]
    assert leader.epoch_requests[0] == (0, NEW_EPOCH, 0)


def test_a_position_of_an_epoch_that_the_new_leader_does_not_have_is_reset(
    read: Callable[..., tuple[NewLeader, list[int]]],
) -> None:
    assert read((-1, -1))[1] == [0, 1, 2, 3]


@pytest.mark.parametrize(("epoch_end", "divergent"), [((1, 0), 1), ((-1, -1), None)])
def test_without_a_reset_policy_the_truncation_is_raised(
    read: Callable[..., tuple[NewLeader, list[int]]], name: str, epoch_end: tuple[int, int], divergent: int | None
) -> None:
    with pytest.raises(OffsetOutOfRangeError) as raised:
        read(epoch_end, "none")
    assert isinstance(raised.value, LogTruncationError)
    assert raised.value.divergent_offsets == {TopicPartition(name, 0): divergent}


def test_a_seek_with_an_epoch_and_a_committed_offset_are_validated(bootstrap: str, name: str) -> None:
    leader = NewLeader((2, 0))
    with (
        RecordingProxy(bootstrap, leader.request, leader.response) as proxy,
        kcore.connect(proxy.bootstrap) as node,
    ):
        node.topics.create(name, 1).append_many(["a", "b", "c"])
        node.group(name).commit({(name, 0): kcore.OffsetAndMetadata(2, "", 0)})
        with node.group(name).consume(name, auto_commit=None) as consumer:
            assert read_until(consumer, 2) == [2]
            assert [epoch for _, _, epoch in leader.epoch_requests] == [0]
            consumer.seek((name, 0), kcore.OffsetAndMetadata(1, "", 0))
            assert read_until(consumer, 2) == [1, 2]
            assert [epoch for _, _, epoch in leader.epoch_requests] == [0, 0]
            consumer.seek((name, 0), 0)
            assert read_until(consumer, 2) == [0, 1, 2]
            assert [epoch for _, _, epoch in leader.epoch_requests] == [0, 0]


def test_a_closed_consumer_frees_its_fetch_sessions(bootstrap: str, name: str) -> None:
    with RecordingProxy(bootstrap) as proxy, kcore.connect(proxy.bootstrap) as node:
        node.topics.create(name, 1).append("a")
        with node.group(name).consume(name) as consumer:
            assert len(consumer.poll(60)) == 1
        fetches = [each.request for each in proxy.requests if each.api is ApiKey.FETCH]
    opened = {each.session_id for each in fetches} - {0}
    assert len(opened) <= 1
    assert [each.session_epoch for each in fetches if each.session_epoch < 0] == [-1] * len(opened)
