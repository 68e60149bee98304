"""An independent check of share consumers: a proxy decodes their share requests, and `Books` tracks the state of each
record.

All clients reach the server through the proxy. The proxy forwards all bytes unchanged. Before it forwards a complete
frame of ShareFetch or ShareAcknowledge, it passes the frame to the books. One thread serves all connections, so that
the books see a delivery before any later acknowledgement of the same record.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from kcore.client.connection import body_position
from kcore.protocol.api_keys import ApiKey, request_class, response_class
from kcore_ext.codec.frames import decode_request_header

RecordPosition = tuple[int, int]
"""Partition and offset."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL = (GAP, ACCEPT, REJECT)
SHARE_APIS = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
READ_BYTES = 1 << 20
SELECT_S = 0.1


class Books:
    """The state of each record of one topic, as requests and responses on the wire show it.

    Attributes:
        done: record -> acknowledgement type, if the server confirmed an acceptance or rejection of the record. Such a
            record must never be delivered again.
        uncertain: records whose acceptance or rejection was sent on a connection that ended without a response.
        counts: the last delivery count of each record.
        delivered: the number of deliveries, by client id.
        confirmed: the number of confirmed acknowledgements, by client id and kind.
        faults: violations, as text.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done: dict[RecordPosition, int] = {}
        self.uncertain: set[RecordPosition] = set()
        self.counts: dict[RecordPosition, int] = {}
        self.delivered: Counter[str] = Counter()
        self.confirmed: Counter[tuple[str, int]] = Counter()
        self.redelivered = 0
        self.faults: list[str] = []

    def final_of(self, client_id: str) -> int:
        """Returns the number of acceptances and rejections that the server confirmed to a client."""
        with self.lock:
            return sum(count for (name, kind), count in self.confirmed.items() if name == client_id and kind in FINAL)

    def missing(self, produced: dict[int, int]) -> list[RecordPosition]:
        """Returns the produced records that are neither done nor uncertain."""
        with self.lock:
            return [
                (partition, offset)
                for partition, end in produced.items()
                for offset in range(end)
                if (partition, offset) not in self.done and (partition, offset) not in self.uncertain
            ]

    def deliver(self, client_id: str, record: RecordPosition, count: int) -> None:
        """Records one delivery."""
        if record in self.done:
            self.faults.append(f"{record} was delivered to {client_id} again after it was done, with count {count}")
        before = self.counts.get(record, 0)
        if count < before:
            self.faults.append(f"{record} was delivered to {client_id} with count {count} after {before}")
        self.counts[record] = count
        self.uncertain.discard(record)
        self.delivered[client_id] += 1
        self.redelivered += count > 1

    def confirm(self, client_id: str, record: RecordPosition, kind: int) -> None:
        """Records one confirmed acknowledgement."""
        if record not in self.counts:
            self.faults.append(f"{record} was acknowledged by {client_id} without a delivery")
        if record in self.done:
            self.faults.append(f"{record} was acknowledged by {client_id} again, which the server confirmed")
        self.confirmed[client_id, kind] += 1
        if kind in FINAL:
            self.done[record] = kind
            self.uncertain.discard(record)

    def lose(self, records: dict[RecordPosition, int]) -> None:
        """Records acknowledgements that got no response."""
        self.uncertain |= {record for record, kind in records.items() if kind in FINAL and record not in self.done}


class Sent(NamedTuple):
    """A share request without a response.

    Attributes:
        api_key: its API.
        version: its version.
        client_id: the client.
        kinds: its acknowledgements, as (partition, offset) -> acknowledgement type.
    """

    api_key: int
    version: int
    client_id: str
    kinds: dict[RecordPosition, int]


class Link:
    """One connection of a client, and the connection to the server over which the proxy forwards its bytes.

    Args:
        books: the books.
        client: the client's socket.
        server: the server's socket.
    """

    def __init__(self, books: Books, client: socket.socket, server: socket.socket) -> None:
        self.books = books
        self.client = client
        self.server = server
        self._in_flight: dict[int, Sent] = {}
        self._buffers = {client: bytearray(), server: bytearray()}

    def pump(self, source: socket.socket) -> bool:
        """Forwards the bytes that one side has sent; returns False at the end of its stream."""
        try:
            data = source.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            return False
        buffer = self._buffers[source]
        buffer += data
        for frame in _frames(buffer):
            if source is self.client:
                self._requested(frame)
            else:
                self._responded(frame)
        try:
            (self.server if source is self.client else self.client).sendall(data)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Closes both sides of the connection. The acknowledgements of requests without a response become uncertain."""
        for each in (self.client, self.server):
            each.close()
        with self.books.lock:
            for sent in self._in_flight.values():
                self.books.lose(sent.kinds)

    def _requested(self, frame: bytes) -> None:
        if int.from_bytes(frame[:2], "big") not in SHARE_APIS:
            return
        api_key, version, correlation_id, client_id, position = decode_request_header(frame)
        request: Any = request_class(api_key).decode(frame, version, position)
        kinds = {
            (partition.partition_index, batch.first_offset + at): kind
            for topic in request.topics
            for partition in topic.partitions
            for batch in partition.acknowledgement_batches
            for at, kind in enumerate(_expanded(batch))
        }
        self._in_flight[correlation_id] = Sent(api_key, version, client_id, kinds)

    def _responded(self, frame: bytes) -> None:
        sent = self._in_flight.pop(int.from_bytes(frame[:4], "big"), None)
        if sent is None:
            return
        fetches = sent.api_key == ApiKey.SHARE_FETCH
        response: Any = response_class(sent.api_key).decode(
            frame, sent.version, body_position(sent.api_key, sent.version, frame)
        )
        rows = [row for topic in response.responses for row in topic.partitions]
        errors = {row.partition_index: row.acknowledge_error_code if fetches else row.error_code for row in rows}
        with self.books.lock:
            for record, kind in sent.kinds.items():
                if not response.error_code and not errors.get(record[0]):
                    self.books.confirm(sent.client_id, record, kind)
            for row in rows if fetches else ():
                for acquired in row.acquired_records:
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        self.books.deliver(sent.client_id, (row.partition_index, offset), acquired.delivery_count)


def _expanded(batch: Any) -> list[int]:
    """Returns the acknowledgement type of each offset of a batch. A batch with a single type has the same type for all
    offsets.
    """
    count = batch.last_offset - batch.first_offset + 1
    kinds = list(batch.acknowledge_types)
    return kinds * count if len(kinds) == 1 else kinds


def _frames(buffer: bytearray) -> Iterator[bytes]:
    """Removes the complete frames from a buffer and returns them."""
    while len(buffer) >= 4:
        size = int.from_bytes(buffer[:4], "big")
        if len(buffer) < 4 + size:
            return
        yield bytes(buffer[4 : 4 + size])
        del buffer[: 4 + size]


class BookingProxy:
    """A proxy between the clients and a server. The proxy has a fixed port, but the server's port may change.

    Args:
        books: the books.
    """

    def __init__(self, books: Books) -> None:
        self.books = books
        self.target = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._selector = selectors.DefaultSelector()
        self._links: dict[socket.socket, Link] = {}
        self._stopped = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> BookingProxy:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join(10)
        self._listener.close()
        self._selector.close()
        if self._failure is not None:
            raise self._failure

    @property
    def failed(self) -> bool:
        """True if the proxy ended with an error, which `__exit__` raises."""
        return self._failure is not None

    def _run(self) -> None:
        try:
            while not self._stopped:
                for key, _ in self._selector.select(SELECT_S):
                    self._serve(key.fileobj)  # type: ignore[arg-type]
        except BaseException as error:
            self._failure = error
        for link in {*self._links.values()}:
            self._close(link)

    def _serve(self, ready: socket.socket) -> None:
        if ready is self._listener:
            client, _ = self._listener.accept()
            self._connect(client)
        elif (link := self._links.get(ready)) is not None and not link.pump(ready):
            self._close(link)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=1)
        except OSError:
            client.close()  # the server is down
            return
        server.settimeout(None)
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(each, selectors.EVENT_READ)
        self._links[client] = self._links[server] = Link(self.books, client, server)

    def _close(self, link: Link) -> None:
        for each in (link.client, link.server):
            with contextlib.suppress(KeyError):
                self._selector.unregister(each)
            self._links.pop(each, None)
        link.close()
