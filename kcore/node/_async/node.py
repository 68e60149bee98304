"""`AsyncNode`: the client API of an embedded engine and of any Kafka-compatible cluster."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn

import kcore
from kcore.errors import ConfigError
from kcore.node._async.calls import AsyncCalls
from kcore.node._async.transport import AsyncSend, AsyncTransport
from kcore.node.arguments import check_choice, check_count, check_name, check_seconds, check_text, codec_of, names_of

if TYPE_CHECKING:
    from kcore.node._async.transactional_producer import TransactionalProducer

CALL_TIMEOUT_S = 60.0
"""Default time limit of a call in seconds, including its retries. It equals the default of `default.api.timeout.ms`."""
LONG_TRANSACTION_S, LONG_DELIVERY_S, LONG_LINGER_S = 3_600.0, 3_600.0, 1.0
"""Longest plausible `timeout` of a transaction, and longest plausible `timeout` and `linger` of a producer, in seconds.

A longer time causes a warning, because the caller probably passed milliseconds.
"""


class AsyncNode:
    """An embedded engine, or a connection to a cluster. Both have the same operations.

    `kcore.open_async` and `kcore.connect_async` create nodes.

    Attributes:
        send: sends a typed request to the broker that it concerns, and returns the response:
            `await node.send(MetadataRequest())`. The second argument is the version of the request; by default, the
            newest version that the client and the server support. In the newest versions, some APIs name topics by id.
    """

    def __init__(self, transport: AsyncTransport, *, local: bool = False, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._calls = AsyncCalls(transport, local, timeout_s)
        self.send: AsyncSend = transport.send
        self._producers: dict[str, TransactionalProducer] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._calls.transport)!r}{', closed' * self._calls.closed})"

    def __reduce__(self) -> NoReturn:
        self._calls.__reduce__()

    @cached_property
    def topics(self) -> kcore.AsyncTopics:
        """The topics: `node.topics["jobs"]`."""
        from kcore.node._async.topics import AsyncTopics  # noqa: PLC0415 - a node that only sends needs no more

        return AsyncTopics(self._calls)

    @cached_property
    def groups(self) -> kcore.AsyncGroups:
        """The groups: `node.groups["workers"]`, or `node.group("workers")`."""
        from kcore.node._async.groups import AsyncGroups  # noqa: PLC0415 - a node that only sends needs no more

        return AsyncGroups(self._calls)

    @cached_property
    def users(self) -> kcore.AsyncUsers:
        """The users that authenticate with a password."""
        from kcore.node._async.users import AsyncUsers  # noqa: PLC0415 - only administration needs it

        return AsyncUsers(self._calls)

    @cached_property
    def transactions(self) -> kcore.AsyncTransactions:
        """The states of transactions, for administration; `transaction` is for programs that write records."""
        from kcore.node._async.transaction_states import AsyncTransactions  # noqa: PLC0415 - for administration only

        return AsyncTransactions(self._calls)

    @cached_property
    def acls(self) -> kcore.AsyncAcls:
        """The access control lists."""
        from kcore.node._async.acls import AsyncAcls  # noqa: PLC0415 - only administration needs it

        return AsyncAcls(self._calls)

    @cached_property
    def quotas(self) -> kcore.AsyncQuotas:
        """The quotas of clients."""
        from kcore.node._async.quotas import AsyncQuotas  # noqa: PLC0415 - only administration needs it

        return AsyncQuotas(self._calls)

    @cached_property
    def brokers(self) -> kcore.AsyncBrokers:
        """The brokers: `node.brokers[1]`."""
        from kcore.node._async.brokers import AsyncBrokers  # noqa: PLC0415 - only administration needs it

        return AsyncBrokers(self._calls)

    async def describe_cluster(self) -> kcore.ClusterDescription:
        """Returns the cluster with its controller and its live brokers."""
        from kcore.node._async.brokers import described_cluster  # noqa: PLC0415 - only administration needs it

        return await described_cluster(self._calls)

    async def cluster_id(self) -> str | None:
        """Returns the id of the cluster; None if its brokers do not report one."""
        return (await self._calls.metadata([])).cluster_id

    def group(self, group_id: str) -> kcore.AsyncGroup:
        """Returns a group. No request is sent, and the group need not exist."""
        return self.groups[group_id]

    def queue(
        self,
        topics: str | Iterable[str],
        *,
        group: str,
        auto_accept: bool = True,
        max_jobs: int = 1,
        rack: str | None = None,
    ) -> kcore.AsyncQueue:
        """Returns a worker of a share group (KIP-932), which makes topics a work queue; use it with `with`.

        A new group begins at the end of its topics, unless its setting "share.auto.offset.reset" is "earliest":
        see `set_config` of groups.

        Args:
            topics: the names of the topics whose records are the jobs.
            group: the share group, the same for all workers of the queue.
            auto_accept: True to accept a job when the program requests the next job; False if the program acknowledges
                each job itself.
            max_jobs: the largest number of jobs that one request fetches. The lock of a job begins when the worker
                fetches the job.
            rack: the worker's rack.

        Raises:
            ConfigError: no topic is passed, the group's id is empty, or `max_jobs` is below 1.
            TypeError: an argument has another type.
        """
        from kcore.node._async.queue import AsyncQueue  # noqa: PLC0415 - only workers need it

        listed = names_of("topics", topics)
        if not listed:
            raise ConfigError("a queue needs a topic")
        check_name("group", group)
        check_count("max_jobs", max_jobs)
        if rack is not None:
            check_text("rack", rack)
        return AsyncQueue(self._calls, listed, group, auto_accept=auto_accept, max_jobs=max_jobs, rack=rack)

    def transaction(
        self,
        transactional_id: str,
        *,
        timeout: float = 60.0,
        compression: str = "none",
        interceptors: Iterable[kcore.ProducerInterceptor] = (),
    ) -> kcore.AsyncTransaction:
        """Returns a transaction, as a context manager: commits at the end of the block, aborts if the block raises.

        The first transaction of an id on a node fences all other producers of that id.

        Args:
            transactional_id: the id of the producer, which stays the same after a restart of the program.
            timeout: the time in seconds after which the coordinator aborts the transaction.
            compression: "none", "gzip", "snappy", "lz4" or "zstd".
            interceptors: called with each record before it is buffered, and with the result of its append.

        Raises:
            ProducerFencedError: another producer of the id has fenced this producer. Entering the block, each operation
                and the commit may raise it.
            ConfigError: the id is empty, or the timeout or the compression is not valid.
            TypeError: the id is not a string.
        """
        from kcore.node._async.transactional_producer import transactional_producer  # noqa: PLC0415
        from kcore.node._async.transactions import AsyncTransaction  # noqa: PLC0415
        from kcore.node.interceptors import interceptors_of  # noqa: PLC0415

        check_name("transactional_id", transactional_id)
        check_seconds("timeout", timeout, LONG_TRANSACTION_S)
        codec = codec_of(compression)
        listed = interceptors_of(interceptors, "on_send")
        producer = transactional_producer(self._calls, self._producers, transactional_id, timeout)
        self._producers[transactional_id] = producer
        return AsyncTransaction(producer, codec, listed)

    def producer(
        self,
        *,
        linger: float = 0.0,
        batch_bytes: int = 131_072,
        buffer_bytes: int = 33_554_432,
        compression: str = "none",
        timeout: float = 120.0,
        acks: Literal["all", 1] = "all",
        create_topics: bool = False,
        interceptors: Iterable[kcore.ProducerInterceptor] = (),
    ) -> kcore.AsyncProducer:
        """Returns a producer, which sends many records in batches and stores each record once.

        Args:
            linger: the seconds for which a batch waits for more records. With 0, a batch grows while the previous
                batch is being stored.
            batch_bytes: the size at which a batch is sent at once.
            buffer_bytes: the total size of all batches at which `append` begins to wait.
            compression: "none", "gzip", "snappy", "lz4" or "zstd".
            timeout: the time limit of a record in seconds, with all retries.
            acks: "all" waits for all in-sync replicas; 1 waits only for the leader. With 1, a repeated request may
                store a record twice.
            create_topics: True to let the server create missing topics, if its settings allow that.
            interceptors: called with each record before it is appended, and with its result.

        Raises:
            ConfigError: an argument is not valid.
        """
        # Only producers need these modules.
        from kcore.client.producer_settings import ACKS_ALL, ProducerSettings  # noqa: PLC0415
        from kcore.node._async.producer import AsyncProducer  # noqa: PLC0415
        from kcore.node.interceptors import interceptors_of  # noqa: PLC0415

        check_seconds("linger", linger, LONG_LINGER_S)
        check_seconds("timeout", timeout, LONG_DELIVERY_S)
        check_choice("acks", acks, ("all", 1))
        check_count("batch_bytes", batch_bytes)
        check_count("buffer_bytes", buffer_bytes)
        codec = codec_of(compression)
        number = ACKS_ALL if acks == "all" else 1
        settings = ProducerSettings(linger, batch_bytes, buffer_bytes, codec, timeout, number, create_topics)
        return AsyncProducer(self._calls, settings, interceptors_of(interceptors, "on_send"))

    async def close(self) -> None:
        """Closes the node with its members, consumers and producers. Other requests that have no response yet fail."""
        await self._calls.close()

    async def __aenter__(self) -> AsyncNode:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
