"""The checker of share consumers: the entries that it reads from the wire, and the faults that it finds."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kcore.protocol.messages.share_acknowledge import (
    AcknowledgementBatch as AcknowledgedBatch,
)
from kcore.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kcore.protocol.messages.share_acknowledge import PartitionData as AcknowledgedPartition
from kcore.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kcore_ext.codec.frames import encode_request, encode_response
from tests.crash.share_books import ACCEPT, RELEASE, Books, Link

VERSION = 2


class Wire:
    """One connection through the proxy. The test controls both ends."""

    def __init__(self) -> None:
        self.books = Books()
        self.client, inner_client = socket.socketpair()
        self.server, inner_server = socket.socketpair()
        self.link = Link(self.books, inner_client, inner_server)
        self.requests = 0

    def request(self, message: ShareFetchRequest | ShareAcknowledgeRequest) -> None:
        """Sends a request in two parts, as on a slow network."""
        self.requests += 1
        frame = encode_request(message, VERSION, self.requests, "tester")
        for part in (frame[:7], frame[7:]):
            self.client.sendall(part)
            assert self.link.pump(self.link.client)
        assert self.server.recv(1 << 20) == frame

    def respond(self, message: ShareFetchResponse | ShareAcknowledgeResponse) -> None:
        """Sends the response to the last request."""
        frame = encode_response(message, VERSION, self.requests, 1)
        self.server.sendall(frame)
        assert self.link.pump(self.link.server)
        assert self.client.recv(1 << 20) == frame

    def fetch(self, first: int, last: int, count: int) -> None:
        """Fetches and acquires records of partition 0."""
        self.request(ShareFetchRequest(group_id="g", member_id="m"))
        acquired = AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        row = PartitionData(partition_index=0, acquired_records=[acquired])
        self.respond(ShareFetchResponse(responses=[ShareFetchableTopicResponse(partitions=[row])]))

    def acknowledge(self, first: int, kinds: list[int], last: int | None = None) -> None:
        """Sends a ShareAcknowledge request for records of partition 0."""
        ranges = [
            AcknowledgedBatch(
                first_offset=first,
                last_offset=first + len(kinds) - 1 if last is None else last,
                acknowledge_types=kinds,
            )
        ]
        partitions = [AcknowledgePartition(partition_index=0, acknowledgement_batches=ranges)]
        self.request(
            ShareAcknowledgeRequest(group_id="g", member_id="m", topics=[AcknowledgeTopic(partitions=partitions)])
        )

    def confirm(self, error_code: int = 0, top_level: int = 0) -> None:
        """Sends the response to the last ShareAcknowledge request."""
        row = AcknowledgedPartition(partition_index=0, error_code=error_code)
        responses = [ShareAcknowledgeTopicResponse(partitions=[row])]
        self.respond(ShareAcknowledgeResponse(error_code=top_level, responses=responses))


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Returns a connection on which offsets 0 to 3 were acquired with delivery count 1."""
    wire = Wire()
    wire.fetch(0, 3, 1)
    yield wire
    wire.link.close()
    wire.client.close()
    wire.server.close()


def test_the_checker_reads_acknowledgements_of_both_requests(wire: Wire) -> None:
    """The checker counts acknowledgements of ShareAcknowledge and ShareFetch once their response has no error.

    All records without a final acknowledgement are missing.
    """
    wire.acknowledge(0, [ACCEPT, RELEASE])
    wire.confirm()
    partition = FetchPartition(
        partition_index=0,
        acknowledgement_batches=[AcknowledgementBatch(first_offset=2, last_offset=3, acknowledge_types=[ACCEPT])],
    )
    wire.request(ShareFetchRequest(group_id="g", member_id="m", topics=[FetchTopic(partitions=[partition])]))
    row = PartitionData(
        partition_index=0, acquired_records=[AcquiredRecords(first_offset=1, last_offset=1, delivery_count=2)]
    )
    wire.respond(ShareFetchResponse(responses=[ShareFetchableTopicResponse(partitions=[row])]))
    books = wire.books
    assert books.done == {(0, 0): ACCEPT, (0, 2): ACCEPT, (0, 3): ACCEPT}
    assert (books.delivered["tester"], books.redelivered, books.final_of("tester")) == (5, 1, 3)
    assert books.missing({0: 4, 1: 1}) == [(0, 1), (1, 0)]
    assert books.faults == []


def test_refused_acknowledgements_change_nothing_and_lost_ones_stay_uncertain(wire: Wire) -> None:
    """Acknowledgements without a response are uncertain until the next delivery of the record."""
    wire.acknowledge(0, [ACCEPT], last=1)
    wire.confirm(error_code=121)
    wire.acknowledge(0, [ACCEPT], last=1)
    wire.confirm(top_level=122)
    assert (wire.books.done, wire.books.uncertain) == ({}, set())
    wire.acknowledge(0, [ACCEPT, ACCEPT, RELEASE])
    wire.link.close()
    assert wire.books.uncertain == {(0, 0), (0, 1)}
    wire.books.deliver("tester", (0, 0), 1)
    assert wire.books.uncertain == {(0, 1)}
    assert wire.books.missing({0: 2}) == [(0, 0)]
    assert wire.books.faults == []


def test_the_checker_finds_wrong_deliveries_and_acknowledgements(wire: Wire) -> None:
    """The faults are a delivery after the acceptance, a second acceptance, a lower delivery count, and an unknown
    record.
    """
    wire.fetch(1, 1, 3)
    wire.acknowledge(0, [ACCEPT])
    wire.confirm()
    assert wire.books.faults == []
    wire.fetch(0, 1, 2)
    wire.acknowledge(0, [ACCEPT])
    wire.confirm()
    wire.acknowledge(9, [ACCEPT])
    wire.confirm()
    assert wire.books.faults == [
        "(0, 0) was delivered to tester again after it was done, with count 2",
        "(0, 1) was delivered to tester with count 2 after 3",
        "(0, 0) was acknowledged by tester again, which the server confirmed",
        "(0, 9) was acknowledged by tester without a delivery",
    ]
