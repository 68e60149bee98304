"""Records of the metadata log."""

import pytest
from hypothesis import given

from kcore.protocol import DecodeError, EncodeError
from kcore.protocol.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from tests.protocol.strategies import at_version, examples, struct_strategy

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize("cls", MetadataRecord.__subclasses__(), ids=lambda cls: cls.__name__)
def test_records_round_trip_in_every_version(cls: type[MetadataRecord]) -> None:
    @examples(15, 300)
    @given(struct_strategy(cls))
    def check(anything: MetadataRecord) -> None:
        for version in range(cls.MAX_VERSION + 1):
            record = at_version(anything, version)
            assert decode_metadata_record(encode_metadata_record(record, version)) == record

    check()


@pytest.mark.parametrize(
    ("record", "version", "data"),
    [
        (TopicRecord(name="t", topic_id=TOPIC_ID), 0, b"\x01\x02\x00\x02t" + TOPIC_ID + b"\x00"),
        (RemoveTopicRecord(topic_id=TOPIC_ID), 0, b"\x01\x09\x00" + TOPIC_ID + b"\x00"),
        (FeatureLevelRecord(name="f", feature_level=1), 0, b"\x01\x0c\x00\x02f\x00\x01\x00"),
        (
            ConfigRecord(resource_type=2, resource_name="t", name="n", value=None),
            0,
            b"\x01\x04\x00\x02\x02t\x02n\x00\x00",
        ),
        (
            ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000),
            0,
            b"\x01\x0f\x00\x00\x00\x00\x01" + (2).to_bytes(8, "big") + (1000).to_bytes(8, "big") + b"\x00",
        ),
        (
            PartitionRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
            ),
            0,
            b"\x01\x03\x00\x00\x00\x00\x00"
            + TOPIC_ID
            + b"\x02\x00\x00\x00\x01" * 2
            + b"\x01\x01\x00\x00\x00\x01"
            + bytes(9),
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_the_layout_of_a_record(record: MetadataRecord, version: int, data: bytes) -> None:
    """A record has the frame version, the API key, the record version, and then the flexible body (KIP-631)."""
    assert encode_metadata_record(record, version) == data
    assert decode_metadata_record(data) == record
    assert decode_metadata_record(b"\x81\x80\x00" + data[1:]) == record, "a varint may be longer than needed"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\x02\x00\x01",
        b"\x01",
        b"\x01\x63\x00\x01",
        b"\x01\x02\x01\x01",
        b"\x01\x02\x00",
        b"\x81\x80\x80\x80\x80\x00",
    ],
)
def test_malformed_records_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_metadata_record(data)


def test_directories_need_version_one() -> None:
    with pytest.raises(EncodeError, match=r"PartitionRecord\.directories"):
        encode_metadata_record(PartitionRecord(directories=[TOPIC_ID]), 0)
