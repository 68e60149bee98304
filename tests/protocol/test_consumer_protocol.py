"""The embedded consumer protocol."""

import pytest

from kcore.protocol import DecodeError
from kcore.protocol.consumer_protocol import Assignment, Subscription, TopicPartition
from tests.golden import kwire

FULL = Subscription(
    topics=["a", "b"],
    user_data=b"\x01",
    owned_partitions=[TopicPartition(topic="a", partitions=[0, 1])],
    generation_id=4,
    rack_id="r",
)


@pytest.mark.parametrize("version", range(4))
def test_kwire_reads_kcores_subscriptions(version: int) -> None:
    read = kwire.unversioned("ConsumerProtocolSubscription", FULL.encode_versioned(version))
    expected = {"_version": version, "topics": ["a", "b"], "user_data": b"\x01"}
    if version >= 1:
        expected["owned_partitions"] = [{"topic": "a", "partitions": [0, 1]}]
    if version >= 2:
        expected["generation_id"] = 4
    if version >= 3:
        expected["rack_id"] = "r"
    assert read == expected


@pytest.mark.parametrize("version", [4, 100, 32767])
def test_newer_versions_are_read_as_the_newest_known(version: int) -> None:
    data = version.to_bytes(2, "big") + FULL.encode(3) + b"fields to come"
    assert Subscription.decode_versioned(data) == (FULL, version)


@pytest.mark.parametrize("version", range(4))
def test_assignments_have_one_layout(version: int) -> None:
    assignment = Assignment(assigned_partitions=[TopicPartition(topic="t", partitions=[5])])
    assert assignment.encode(version) == b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x05\xff\xff\xff\xff"
    assert Assignment.decode_versioned(assignment.encode_versioned(version)) == (assignment, version)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x00\x00\x00\x00\x01"])
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        Subscription.decode_versioned(data)
