"""Connections of the checker's clients. A request without a response within the time limit is a violation, unless the
connection ends.
"""

from __future__ import annotations

import struct
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from tests.golden import kwire
from tools.soak.ledger import Ledger

RESPONSE_TIMEOUT_S = 30.0  # faults end within 5 s, a parked join within 5 s more
RECONNECT_S = 0.05

# Errors after which a client sends the request again, as Kafka's clients do.
UNKNOWN_SERVER_ERROR = -1
CONCURRENT_TRANSACTIONS = 51
STORAGE_ERROR = 56
RETRIABLE = frozenset(
    {UNKNOWN_SERVER_ERROR, 3, 5, 6, 7, 13, 14, 15, 16, 19, CONCURRENT_TRANSACTIONS, STORAGE_ERROR, 88}
)


class LostError(Exception):
    """The connection ended before the response, so that the effect of the request is unknown."""


class RetryError(Exception):
    """The server refused a request temporarily."""


class Client:
    """A client with its own connection.

    Args:
        name: a unique name for messages.
        port: the server's port on 127.0.0.1.
        ledger: the findings and counts of the run.
    """

    def __init__(self, name: str, port: int, ledger: Ledger) -> None:
        self.name = name
        self.port = port
        self.ledger = ledger
        self._connection: kwire.Connection | None = None

    def disconnect(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Sends one request and waits for its response."""
        return self.call_all(api, version, [body])[0]

    def call_all(self, api: str, version: int, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Sends pipelined requests and waits for all responses.

        Raises:
            LostError: the connection ended before the last response.
        """
        try:
            if self._connection is None:
                self._connection = kwire.Connection(("127.0.0.1", self.port), client_id=self.name)
            pending = [self._connection.send(api, version, body) for body in bodies]
            return [one.result(RESPONSE_TIMEOUT_S) for one in pending]
        except TimeoutError:
            self.disconnect()
            self.ledger.violation(
                "unanswered", f"{self.name}: {api} has had no response for {RESPONSE_TIMEOUT_S:.0f} s"
            )
            raise LostError from None
        except (OSError, EOFError, struct.error) as error:
            if not isinstance(error, OSError):
                self.ledger.violation("malformed", f"{self.name}: the response to {api} cannot be read: {error}")
            self.disconnect()
            raise LostError from None

    def checked(self, api: str, code: int, expected: frozenset[int] = frozenset()) -> int:
        """Returns the code if it is 0 or one of `expected`.

        Raises:
            RetryError: any other code. A code that is not retriable is also recorded as a violation.
        """
        if code == 0 or code in expected:
            return code
        self.ledger.count(f"error {code}")
        if code not in RETRIABLE:
            self.ledger.violation("error", f"{self.name}: {api} gets error {code}")
        raise RetryError(code)

    def committed_offsets(self, group: str, topic: str, partitions: list[int], stable: bool = False) -> dict[int, int]:
        """Returns the committed offset of each partition, or -1 without an offset."""
        body = {
            "groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": partitions}]}],
            "require_stable": stable,
        }
        (response,) = self.call("OffsetFetch", 8, body)["groups"]
        self.checked("OffsetFetch", response["error_code"])
        offsets = {}
        for part in response["topics"][0]["partitions"]:
            self.checked("OffsetFetch", part["error_code"])
            offsets[part["partition_index"]] = part["committed_offset"]
        return offsets

    def commit_offsets(
        self, group: str, topic: str, offsets: dict[int, int], member: str = "", epoch: int = -1
    ) -> list[int]:
        """Commits offsets. Returns the error codes in the order of the partitions."""
        parts = [{"partition_index": index, "committed_offset": offset} for index, offset in offsets.items()]
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": epoch,
            "member_id": member,
            "topics": [{"name": topic, "partitions": parts}],
        }
        (response,) = self.call("OffsetCommit", 9, body)["topics"]
        return [part["error_code"] for part in response["partitions"]]


class Worker(Client, ABC):
    """A client on a separate thread, which takes steps until the run is over."""

    pause_s = 0.01

    def __init__(self, name: str, port: int, ledger: Ledger) -> None:
        super().__init__(name, port, ledger)
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    @abstractmethod
    def step(self) -> None:
        """Takes one checked step; `LostError` and `RetryError` end it early."""

    def lost(self) -> None:
        """Prepares the next step after a failed step, whose requests may have taken effect."""

    def run(self) -> None:
        """Runs the client's steps until the run is over."""
        self.ledger.progress[self.name] = time.monotonic()
        while not self.ledger.over.is_set():
            try:
                self.step()
                self.ledger.succeeded(self.name)
                self.ledger.over.wait(self.pause_s)
            except (LostError, RetryError):
                self.lost()
                self.ledger.over.wait(RECONNECT_S)
            except Exception as error:
                self.ledger.violation("unexpected", f"{self.name}: {type(error).__name__}: {error}")
                self.lost()
                self.ledger.over.wait(1.0)
        self.disconnect()
