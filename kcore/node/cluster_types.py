"""Results of calls about brokers, log directories and quotas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kcore.errors import KafkaError
from kcore.node.types import PartitionDict

DEFAULT_ENTITY: Final = "<default>"
"""The name in a `QuotaEntity` that stands for the default user, client id or address."""


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of a cluster.

    Attributes:
        id: the broker id.
        host: the host name or address for clients.
        port: the TCP port for clients.
        rack: the name of the rack in which the broker runs, or None.
    """

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster.

    Attributes:
        cluster_id: the id that the brokers report; None if they report none.
        controller: the id of the controller, or of a broker that forwards requests to the controller; None: unknown.
        brokers: the live brokers, by id.
    """

    cluster_id: str | None
    controller: int | None
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A directory in which a broker keeps partitions.

    Attributes:
        path: the path of the directory on the broker's machine.
        partitions: the size of each partition, in bytes.
        total_bytes: the size of the directory's volume; None: unknown.
        usable_bytes: the free space of the directory's volume; None: unknown.
        error: the reason why the directory is offline, or None.
    """

    path: str
    partitions: PartitionDict[int] = field(default_factory=PartitionDict)
    total_bytes: int | None = None
    usable_bytes: int | None = None
    error: KafkaError | None = None


class QuotaEntity(NamedTuple):
    """The clients to which a quota applies. "<default>" stands for the clients without a quota of their own.

    Attributes:
        user: the name of the user; None: the quota does not depend on the user.
        client_id: the id that clients send; None: the quota does not depend on the client id.
        ip: the client's address; None: the quota does not depend on the address.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
