"""The fuzzing targets. Each target generates valid inputs and runs any input; running an input raises only if there is
a defect.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.errors import AuthenticationError, KcoreError
from kcore.log import MemoryLogEngine
from kcore.protocol import DecodeError
from kcore.protocol.api_keys import ApiKey, request_class, response_class
from kcore.protocol.compression import CompressionError, decompress
from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kcore.protocol.records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    UnknownRecord,
    decode_key,
    decode_value,
    key_classes,
)
from kcore.protocol.records.metadata import MetadataRecord, decode_metadata_record, encode_metadata_record
from kcore.runtime import Pending, RequestContext
from kcore.security.decoys import Decoys
from kcore.security.plain import Plain
from kcore.security.scram import ScramCredential, ScramMechanism, ScramSha256, ScramSha512
from kcore.server.dispatch import Dispatch, RefusedError
from kcore.server.frames import FrameError
from kcore_ext.batch import (
    CorruptBatchError,
    iter_entries,
    iter_records,
    parse_control,
    parse_header,
    split_batches,
    validate,
)
from kcore_ext.codec.frames import decode_request_header, encode_request, encode_response
from kcore_ext.server.request_queue import RequestQueue
from tools.fuzzing.logs import Columns, Replays
from tools.fuzzing.target import BugError, Target
from tools.fuzzing.values import batch, message

if TYPE_CHECKING:
    from kcore_ext.server.request_queue import Owner


class Messages(Target):
    """Target for requests and responses: a decoded message must survive an encode and a decode unchanged."""

    name = "messages"

    def __init__(self) -> None:
        self.kinds: list[tuple[Any, int]] = []
        for key in ApiKey:
            for find in (request_class, response_class):
                try:
                    cls = find(key)
                except KeyError:
                    continue
                self.kinds += [(cls, version) for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)]

    def make(self, rng: random.Random) -> bytes:
        """Generates an encoded message with its API, direction and version."""
        number = rng.randrange(len(self.kinds))
        cls, version = self.kinds[number]
        return struct.pack(">H", number) + message(cls, version, rng).encode(version)

    def run(self, data: bytes) -> None:
        """Decodes a message; compares it after an encode and a decode."""
        if len(data) < 2:
            return
        cls, version = self.kinds[int.from_bytes(data[:2], "big") % len(self.kinds)]
        try:
            decoded = cls.decode(data, version, 2)
        except DecodeError:
            return
        again = cls.decode(decoded.encode(version), version)
        if again != decoded and not _has_nan(decoded):
            raise BugError(f"{decoded!r} was read back as {again!r}")


class Records(Target):
    """Target for the records of the internal topics."""

    name = "records"
    topics = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)

    def make(self, rng: random.Random) -> bytes:
        """Generates an encoded record of an internal topic."""
        topic = rng.randrange(len(self.topics))
        cls = rng.choice(list(key_classes(self.topics[topic]).values()))
        value_class = cls.VALUE
        version = rng.randint(value_class.MIN_VERSION, value_class.MAX_VERSION)
        key = message(cls, 0, rng).encode_key()
        value = message(value_class, version, rng).encode_value(version)
        return struct.pack(">BH", topic, len(key)) + key + value

    def run(self, data: bytes) -> None:
        """Decodes a record; compares it after an encode and a decode."""
        if len(data) < 3:
            return
        topic, size = self.topics[data[0] % len(self.topics)], int.from_bytes(data[1:3], "big")
        try:
            key = decode_key(topic, data[3 : 3 + size])
            decode_value(key, data[3 + size :] or None)
        except DecodeError:
            return
        if not isinstance(key, UnknownRecord) and decode_key(topic, key.encode_key()) != key:
            raise BugError(f"{key!r} is not read back")


class Metadata(Target):
    """Target for the records of the metadata topic, including KRaft's frame around each record."""

    name = "metadata"

    def make(self, rng: random.Random) -> bytes:
        """Generates an encoded metadata record."""
        cls = rng.choice(MetadataRecord.__subclasses__())
        version = rng.randint(cls.MIN_VERSION, cls.MAX_VERSION)
        return encode_metadata_record(message(cls, version, rng), version)

    def run(self, data: bytes) -> None:
        """Decodes a record; compares it after an encode and a decode."""
        try:
            decode_metadata_record(data)
        except DecodeError:
            return


class ConsumerProtocol(Target):
    """Target for the subscriptions and assignments that members exchange through the coordinator."""

    name = "consumer-protocol"
    classes = (ConsumerProtocolSubscription, ConsumerProtocolAssignment)

    def make(self, rng: random.Random) -> bytes:
        """Generates an encoded subscription or assignment."""
        number, version = rng.randrange(2), rng.randint(0, 3)
        return bytes((number,)) + message(self.classes[number], version, rng).encode_versioned(version)

    def run(self, data: bytes) -> None:
        """Decodes a subscription or an assignment."""
        if not data:
            return
        try:
            decoded, version = self.classes[data[0] % 2].decode_versioned(data[1:])
        except DecodeError:
            return
        again, _ = type(decoded).decode_versioned(decoded.encode_versioned(min(version, type(decoded).MAX_VERSION)))
        if again != decoded:
            raise BugError(f"{decoded!r} was read back as {again!r}")


class Batches(Target):
    """Target for record batches.

    The first byte of an input is not part of the batch. It decides if the target repairs the batch's checksum, so that
    damaged batches also reach the code after the checksum check.
    """

    name = "batches"
    limit_bytes = 1 << 20  # limit of a batch's decompressed size
    expected = (CorruptBatchError, CompressionError)

    def make(self, rng: random.Random) -> bytes:
        """Generates a record batch."""
        return bytes((rng.randrange(2),)) + batch(rng) * rng.choice((1, 1, 2))

    def run(self, data: bytes) -> None:
        """Validates, reads and rewrites a batch."""
        from crc32c import crc32c  # noqa: PLC0415

        body = bytearray(data[1:])
        if data[:1] == b"\x01" and len(body) > 61:
            size = min(12 + max(int.from_bytes(body[8:12], "big", signed=True), 49), len(body))
            body[17:21] = struct.pack(">I", crc32c(bytes(body[21:size])))
        whole = bytes(body)
        decoded = split_batches(whole)
        for start, size in decoded.batches:
            if start + size > len(whole):
                raise BugError(f"a batch of {size} bytes at {start} of {len(whole)}")
        for read in (
            parse_header,
            parse_control,
            lambda b: validate(b, decompress=decompress, max_decompressed_bytes=self.limit_bytes),
            lambda b: self._read(iter_records(b, decompress=decompress, max_decompressed_bytes=self.limit_bytes)),
            lambda b: self._read(iter_entries(b, decompress=decompress, max_decompressed_bytes=self.limit_bytes)),
        ):
            try:
                read(whole)
            except self.expected:
                continue

    @staticmethod
    def _read(records: Any) -> None:
        for _ in records:
            pass


class Frames(Target):
    """Target for request frames: a stream in pieces must give the same frames as the whole stream."""

    name = "frames"
    limit_bytes = 1 << 16

    def make(self, rng: random.Random) -> bytes:
        """Generates a stream of frames."""
        frames = [rng.randbytes(rng.choice((0, 1, 30, 500))) for _ in range(rng.randint(1, 4))]
        return bytes((rng.randrange(256),)) + b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)

    def run(self, data: bytes) -> None:
        """Cuts the stream in pieces of random sizes and compares the frames."""
        if not data:
            return
        step = 1 + data[0] % 97
        stream = data[1:]
        whole = self._cut([stream])
        pieces = self._cut([stream[at : at + step] for at in range(0, len(stream), step)])
        if whole != pieces:
            raise BugError(f"in pieces of {step} bytes: {pieces} instead of {whole}")
        for frame in whole:
            if frame is not None:
                try:
                    decode_request_header(frame, 0)
                except DecodeError:
                    continue

    def _cut(self, pieces: list[bytes]) -> list[bytes | None]:
        frames: list[bytes | None] = []
        line = RequestQueue(
            cast("Owner", self),  # unused while the gate is set
            [],
            frame_error=FrameError,
            max_frame_bytes=self.limit_bytes,
            buffer_bytes=self.limit_bytes,
        )
        line.gate = frames.append
        for piece in pieces:
            line.feed(piece)
            try:
                line.serve()
            except FrameError:
                return [*frames, None]
            if line.claim_bytes > self.limit_bytes + 4 + len(piece):
                raise BugError(f"the queue holds {line.claim_bytes} bytes, above its limit")
        return frames


class _Errors(logging.Handler):
    """The collector of the internal errors that the engine logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record)


class Requests(Target):
    """Target for requests to an engine: none may fail internally, or change the group of another client."""

    name = "requests"
    renew_after = 3_000  # inputs per engine, because clients may create topics and groups
    look_every = 50
    settings = {  # noqa: RUF012
        "offsets.topic.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1",
    }

    def __init__(self) -> None:
        self.errors = _Errors()
        logging.getLogger("kcore").addHandler(self.errors)
        logging.getLogger("kcore").propagate = False
        self.count = 0
        self._open()
        self.kinds = [
            (served.api.request_type, version)
            for served in map(self.dispatch.route, self.engine.apis)
            if served is not None
            for version in range(served.min_version, served.max_version + 1)
        ]

    def _open(self) -> None:
        self.clock = ManualClock()
        self.engine = Engine(MemoryLogEngine(), Config.of(self.settings), self.clock)
        self.dispatch = Dispatch(self.engine)
        self._submit(CreateTopicsRequest(topics=[_topic("t"), _topic("u"), _topic("kept")], timeout_ms=1_000))
        parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=42)]
        topics = [OffsetCommitRequestTopic(name="kept", partitions=parts)]
        self._submit(OffsetCommitRequest(group_id="bystander", topics=topics), 9)
        self._bystander()

    def _submit(self, request: Any, version: int | None = None) -> Any:
        version = self.engine.newest_version(request) if version is None else version
        response = self.engine.submit(RequestContext(version, "bystander"), request)
        self.engine.commit()
        return response.response if isinstance(response, Pending) else response

    def _bystander(self) -> None:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="bystander", topics=None)])
        (group,) = self._submit(request, 9).groups
        offsets = [(t.name, p.partition_index, p.committed_offset) for t in group.topics for p in t.partitions]
        if offsets != [("kept", 0, 42)]:
            raise BugError(f"another client's group has {offsets}")
        if self._submit(HeartbeatRequest(group_id="bystander", member_id="nobody", generation_id=1)).error_code != 25:
            raise BugError("another client gets a wrong response")

    def make(self, rng: random.Random) -> bytes:
        """Generates a request frame."""
        cls, version = rng.choice(self.kinds)
        frame = encode_request(message(cls, version, rng), version, rng.randrange(1 << 31), rng.choice((None, "c", "")))
        return frame[4:]  # without the length prefix

    def run(self, data: bytes) -> None:
        """Sends a request to an engine and checks the response and the other client's group."""
        if b"bystander" in data or b"kept" in data:
            return
        self.count += 1
        if self.count % self.renew_after == 0:
            self._open()
        with contextlib.suppress(DecodeError, RefusedError, KcoreError):
            self._serve(data)
        if self.count % 7 == 0:
            self.engine.advance(1_000)
        self.engine.slices.finish()
        if self.count % self.look_every == 0:
            self._bystander()
        if self.errors.found:
            record = self.errors.found[0]
            self.errors.found.clear()
            raise BugError(record.getMessage()) from (record.exc_info[1] if record.exc_info else None)

    def _serve(self, data: bytes) -> None:
        api_key, version, correlation_id, client_id, position = decode_request_header(data, 0)
        served = self.dispatch.find(api_key, version)
        if served is None:
            self.dispatch.unsupported(api_key, version)
            return
        request = served.api.request_type.decode(data, version, position)
        context = RequestContext(version, client_id, connection_id=self.count)
        response = self.engine.submit(context, request)
        self.engine.commit()
        if isinstance(response, Pending):
            response = response.response
        if response is not None:
            encode_response(response, version, correlation_id, served.header_version(version))


def _topic(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1)


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, list | tuple):
        return any(map(_has_nan, value))
    fields = getattr(type(value), "FIELDS", None)
    return fields is not None and any(_has_nan(getattr(value, spec.name)) for spec in fields)


class _NoUsers:
    """A credential store without users."""

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Returns None."""
        return None


class Sasl(Target):
    """Target for authentication tokens. None of them may authenticate a client, because there are no users."""

    name = "sasl"
    tokens = (b"\0user\0password", b"n,,n=user,r=nonce", b"c=biws,r=nonceserver,p=" + b"A" * 43 + b"=")

    def make(self, rng: random.Random) -> bytes:
        """Generates authentication tokens."""
        first = rng.choice(self.tokens)
        return struct.pack(">BH", rng.randrange(3), len(first)) + first + self.tokens[2]

    def run(self, data: bytes) -> None:
        """Sends tokens to a server-side exchange, which must refuse them."""
        if len(data) < 3:
            return
        decoys = Decoys(b"secret")
        kind = data[0] % 3
        mechanism = (
            Plain(_NoUsers(), decoys)
            if kind == 0
            else (ScramSha256, ScramSha512)[kind - 1](_NoUsers(), decoys, lambda: "server")
        )
        size = int.from_bytes(data[1:3], "big")
        for token in (data[3 : 3 + size], data[3 + size :]):
            try:
                mechanism.evaluate(token)
            except AuthenticationError:
                return
        if mechanism.complete:
            raise BugError("a client was authenticated")


TARGETS: dict[str, Callable[[], Target]] = {
    cls.name: cls
    for cls in (Messages, Records, Metadata, ConsumerProtocol, Batches, Columns, Replays, Frames, Sasl, Requests)
}
"""Name -> class of the target, for all targets."""
