"""One of the two servers: its clients with their ids and epochs, and responses in a comparable form."""

from __future__ import annotations

import re
import select
import socket
import time
from hashlib import md5
from typing import Any, Final

from kcore.client.connection import body_position
from kcore.protocol.api_keys import response_class
from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kcore.protocol.schema import Message, Struct
from kcore_ext.batch.header import BatchHeader, parse_header, split_batches
from kcore_ext.batch.records import iter_entries
from kcore_ext.codec.frames import encode_request
from kcore_ext.codec.plan import DecodeError

USERS: Final = tuple(f"user{number}" for number in range(400))
"""The names with which clients may log in. Programs that run at the same time use different names."""
PASSWORD: Final = "password"
RESPONSE_S: Final = 20.0
"""Maximum time in seconds until the response to a request that needs no other client."""
NOW_MS: Final = int(time.time() * 1000)
"""The timestamp of every record that a test program appends, in ms since the epoch."""
CLIENT_IDS: Final = ("one", "two", "three", "four")
CHOSEN_MEMBERS: Final = frozenset(
    {"nobody", *(f"{kind}-{name}" for kind in ("consumer", "share", "streams") for name in CLIENT_IDS)}
)
"""Member ids that test programs choose themselves. The servers generate all other ids."""
CHOSEN_PRODUCERS: Final = frozenset({900_001, 900_002})
"""Producer ids that test programs choose themselves. The ids that servers allocate are smaller."""

MEMBERS: Final = frozenset({"member_id", "leader"})
TOPIC_IDS: Final = frozenset({"topic_id"})
PRODUCERS: Final = frozenset({"producer_id", "ongoing_txn_producer_id", "previous_producer_id", "next_producer_id"})
DROPPED: Final = frozenset(
    {
        "throttle_time_ms", "client_host", "coordinator_epoch", "documentation", "brokers", "cluster_id", "log_dir",
        "total_bytes", "usable_bytes", "finalized_features_epoch",
    }
)  # fmt: skip
LEADER_EPOCHS: Final = frozenset({"leader_epoch", "current_leader_epoch"})
MOMENTS: Final = frozenset(
    {
        "log_append_time_ms", "transaction_start_time_ms", "last_timestamp", "commit_timestamp",
        "current_state_timestamp", "transaction_last_update_timestamp_ms", "transaction_start_timestamp_ms",
        "create_timestamp", "write_timestamp", "expire_timestamp", "assignment_timestamp", "metadata_hash",
    }
)  # fmt: skip
"""Fields whose values are times or hashes of random topic ids, and so differ between the servers."""
MESSAGES: Final = frozenset(
    {"error_message", "batch_index_error_message", "acknowledge_error_message", "status_detail"}
)
QUORUM_FEATURE: Final = "kraft.version"
"""Name of a feature that is not compared. Its level depends on how the quorum of a Kafka cluster was formatted."""
ASSIGNMENTS: Final = frozenset({"assignment", "member_assignment"})
"""Fields with assignments that the leader of a classic group, or the coordinator of a consumer group, has encoded."""
ORDERED: Final = frozenset({"records", "aborted_transactions", "configs", "synonyms"})
"""Names of the list fields whose order is compared.

Other lists are sorted before the comparison, because Kafka fills them from hash maps or puts failed entries first.
"""
SORT_KEYS: Final = (
    "name", "partition_index", "index", "group_id", "transactional_id", "client_id", "group_instance_id", "offset",
    "resource_type", "resource_name", "pattern_type", "entity_type", "key", "partition_id", "partition",
    "protocol_type", "group_state", "topic", "subtopology_id", "user_endpoint", "status_code", "user", "principal",
    "host", "operation", "permission_type", "mechanism", "topic_name", "entity",
)  # fmt: skip
"""Fields by which the rows of the other lists are sorted before the comparison."""
HEADER_BYTES: Final = 61
"""Size of the header of a record batch."""
NO_UUID: Final = bytes(16)
UNIQUE_END: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""A pattern for the UUID that a server appends to the client id, or to the instance id, of a new member."""


class ClosedError(Exception):
    """The server closed a client's connection."""


class Side:
    """One of the two compared servers, with the connections of a test program's clients.

    Args:
        name: the server's name in reports.
        bootstrap: HOST:PORT of the server.
        hides_leader_epochs: True to leave leader epochs out of requests and responses. The servers count them
            differently when they restart.
        sasl_port: the port at which users log in; None if the server has no such port.

    Attributes:
        name: the server's name.
        bootstrap: the server's address.
        user: the name with which all clients except the first one log in; None if all clients are super users. Error
            texts of test programs with a user are not compared: Kafka often sends null instead of the text of the code.
        members: a member's name in the test program -> its member id and its generation or epoch.
        producers: a producer's name -> producer id and epoch.
        topic_ids: a topic's name -> its id.
        assignments: a consumer's name -> its last assignment.
        sessions: a share member's name -> the next epoch of its share session.
        fetch_sessions: a client's name -> the id of its fetch session, and the session's next epoch.
        states: the states of simulated clients and of topics, for areas that need them.
        subscribed: a share group's name -> the topics that its members have subscribed to.
    """

    def __init__(
        self, name: str, bootstrap: str, *, hides_leader_epochs: bool = False, sasl_port: int | None = None
    ) -> None:
        self._dropped = DROPPED | LEADER_EPOCHS if hides_leader_epochs else DROPPED
        self.name = name
        self.bootstrap = bootstrap
        self.sasl_port = sasl_port
        self.user: str | None = None
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._sockets: dict[int, socket.socket] = {}
        self._waiting: dict[int, tuple[int, int]] = {}
        self.reset()

    def disconnect(self) -> None:
        """Closes all connections; their requests get no responses."""
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()
        self._waiting.clear()

    def reset(self) -> None:
        """Closes all connections and discards the ids and epochs that a test program has stored."""
        self.disconnect()
        self.members: dict[str, tuple[str, int]] = {}
        self.producers: dict[str, tuple[int, int]] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.assignments: dict[str, tuple[Any, ...]] = {}
        self.sessions: dict[str, int] = {}
        self.fetch_sessions: dict[str, tuple[int, int]] = {}
        self.subscribed: dict[str, set[str]] = {}
        self.states: dict[str, Any] = {}
        self._labels: dict[tuple[str, Any], str] = {}
        self._unknown_ids: dict[bytes, str] = {}

    # ---- the wire

    def send(self, client: int, request: Any, version: int) -> None:
        """Sends a request. `receive` returns its response."""
        connection = self._sockets.get(client)
        if connection is None:
            address = self._address if self.user is None or client < 1 else (self._address[0], self.sasl_port)
            connection = self._sockets[client] = socket.create_connection(address, timeout=RESPONSE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address is not self._address:
                self._log_in(client)
        self._waiting[client] = (type(request).API_KEY, version)
        if self._dropped >= LEADER_EPOCHS:
            _forget_leader_epochs(request)
        connection.sendall(encode_request(request, version, 1, CLIENT_IDS[client]))

    def _log_in(self, client: int) -> None:
        """Logs a new connection in as `user`, with SASL's mechanism PLAIN."""
        self.send(client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        self.receive(client)
        self.send(client, SaslAuthenticateRequest(auth_bytes=f"\0{self.user}\0{PASSWORD}".encode()), 2)
        response: Any = self.receive(client)
        if response.error_code:
            raise RuntimeError(f"{self.name} refuses the login of {self.user}: {response.error_message}")

    def responded(self, client: int, wait_s: float) -> bool:
        """Waits for a client's response. Returns True if the response began to arrive or the connection ended."""
        readable, _, _ = select.select([self._sockets[client]], [], [], wait_s)
        return bool(readable)

    def receive(self, client: int) -> Message:
        """Returns the client's response. Raises ClosedError, or TimeoutError after `RESPONSE_S`."""
        key, version = self._waiting.pop(client)
        connection = self._sockets[client]
        deadline_s = time.monotonic() + RESPONSE_S
        try:
            size = int.from_bytes(self._exactly(connection, 4, deadline_s), "big")
            frame = self._exactly(connection, size, deadline_s)
        except OSError as error:
            self._sockets.pop(client).close()
            if isinstance(error, TimeoutError):
                raise
            raise ClosedError(self.name) from error
        return response_class(key).decode(frame, version, body_position(key, version, frame))

    @staticmethod
    def _exactly(connection: socket.socket, size: int, deadline_s: float) -> bytes:
        parts = b""
        while len(parts) < size:
            connection.settimeout(max(deadline_s - time.monotonic(), 0.001))
            part = connection.recv(size - len(parts))
            if not part:
                raise ConnectionResetError
            parts += part
        return parts

    # ---- what the server chose

    def label(self, kind: str, value: Any) -> str:
        """Returns a label for a value that the server chose. Both sides give the same label to values that appear at
        the same point of a test program.
        """
        return self._labels.setdefault((kind, value), f"<{kind} {len(self._labels)}>")

    def plain(self, value: Any, field: str = "", texts: bool = False) -> Any:
        """Converts a response, or a part of it, to plain values, in which labels replace the values that the server
        chose.

        Args:
            value: a message, or a field's value.
            field: the field's name.
            texts: True to keep the texts of errors; False to compare only whether there is one.
        """
        if isinstance(value, Struct):
            names = [spec.name for spec in value.FIELDS if spec.name not in self._dropped]
            return {name: self.plain(getattr(value, name), name, texts) for name in names}
        if isinstance(value, (list, tuple)):
            rows = value if field in ORDERED else sorted(value, key=self._sort_key)
            rows = [row for row in rows if getattr(row, "name", None) != QUORUM_FEATURE]
            return [self.plain(each, field, texts) for each in rows]
        if field in MESSAGES and not texts:
            return "<text>" if value and self.user is None else None
        if field in MEMBERS and value and value not in CHOSEN_MEMBERS:
            return self.label("member", value)
        if field == "port" and value in (self._address[1], self.sasl_port):
            return "<port>"
        if field in TOPIC_IDS and value != NO_UUID:
            names = [name for name, topic_id in self.topic_ids.items() if topic_id == value]
            return names[0] if names else self._unknown_ids.get(value) or self.label("topic", value)
        if field == "session_id" and value:
            return self.label("session", value)
        if field in PRODUCERS and value >= 0 and value not in CHOSEN_PRODUCERS:
            return self.label("producer", value)
        if (field in MOMENTS and value not in (0, -1)) or (field == "timestamp" and value > 0 and value != NOW_MS):
            return "<moment>"
        if field in ASSIGNMENTS and isinstance(value, bytes):
            return _sorted_assignment(value)
        if field == "records":
            return self._batches(value) if value else []
        return value

    def _sort_key(self, row: Any) -> str:
        """Returns the key by which a list is sorted. The key has only values that are equal on both servers."""
        if not isinstance(row, Struct):
            return repr(row)
        names = {spec.name for spec in row.FIELDS}
        chosen = [self.plain(getattr(row, name), name) for name in ("topic_id", "producer_id") if name in names]
        member_id = getattr(row, "member_id", None)
        if member_id:
            chosen.append(self._labels.get(("member", member_id)) or UNIQUE_END.sub("", member_id))
        keys = [getattr(row, name) for name in SORT_KEYS if name in names]
        return repr([*chosen, *(sorted(map(repr, key)) if isinstance(key, (tuple, list)) else key for key in keys)])

    def topic_id(self, name: str) -> bytes:
        """Returns the id of a topic of the test program, or an unknown id."""
        known = self.topic_ids.get(name)
        if known is not None:
            return known
        unknown = md5(name.encode(), usedforsecurity=False).digest()
        self._unknown_ids[unknown] = f"<no topic {name}>"
        return unknown

    def _batches(self, data: Any) -> list[Any]:
        batches = []
        for start, size in split_batches(data).batches:
            head = parse_header(data, start)
            batches.append(
                {
                    "offsets": (head.base_offset, head.last_offset_delta),
                    **({} if self._dropped >= LEADER_EPOCHS else {"leader_epoch": head.partition_leader_epoch}),
                    "attributes": head.attributes,
                    "producer": self.plain(head.producer_id, "producer_id"),
                    "epoch": head.producer_epoch,
                    "sequence": head.base_sequence,
                    "count": head.record_count,
                    "records": _records(bytes(data[start : start + size]), head),
                }
            )
        return batches


def _records(batch: bytes, head: BatchHeader) -> Any:
    """Returns the records of a batch in a comparable form: None for a marker.

    The base timestamp of a batch with a delete horizon is the time after which its tombstones may go (KIP-534).
    """
    if head.is_control:
        return None
    if head.delete_horizon_ms >= 0:
        return [(offset, key, value) for offset, _, key, value in iter_entries(batch)]
    return batch[HEADER_BYTES:]


def _sorted_assignment(data: bytes) -> Any:
    """Sorts the topics of an encoded assignment, whose order follows their random ids. Other bytes stay as they are."""
    try:
        assignment, version = ConsumerProtocolAssignment.decode_versioned(data)
    except DecodeError:
        return data
    topics = sorted((row.topic, tuple(row.partitions)) for row in assignment.assigned_partitions)
    return {"version": version, "topics": topics, "user_data": assignment.user_data}


def _forget_leader_epochs(value: Any) -> None:
    """Sets every current leader epoch in a request to -1, which means unknown."""
    if isinstance(value, (list, tuple)):
        for each in value:
            _forget_leader_epochs(each)
    elif isinstance(value, Struct):
        for spec in value.FIELDS:
            if spec.name == "current_leader_epoch":
                value.current_leader_epoch = -1
            else:
                _forget_leader_epochs(getattr(value, spec.name))
