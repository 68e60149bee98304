"""The interface of a store that several nodes share: registration, leases and leadership.

A `ClusterStore` gives access to the nodes, their leases and the leaders of partitions. The `SharedStorage` of a node
gives access to the logs. Both belong to the same store, so one transaction can check a leader and write its batches.

Leases have names: `controller`, and `node/7` for node 7. All times of leases come from the store's clock. A node reads
its monotonic clock before it sends a renewal, and computes its own deadline from this time. Therefore it stops before
the lease expires in the store.

The methods block. Any thread may call them, but an object supports only one call at a time. Each call is one
transaction. The caller may repeat it after StoreUnavailableError, even if the interrupted attempt has succeeded.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kcore.json_text import parse_json
from kcore.log.errors import FailureReason, LogError
from kcore.log.interface import PartitionKey
from kcore.protocol.uuids import METADATA_TOPIC_ID

if TYPE_CHECKING:
    from kcore.log.interface import Finding
    from kcore.log.storage import SharedStorage

METADATA: Final = PartitionKey(METADATA_TOPIC_ID, 0)
"""The key of the metadata log's partition.

Its leader is the node that holds the lease `controller`, and its leader epoch is the epoch of that lease.
"""
METADATA_NUMBER: Final = 0
"""The number of the metadata log's partition. It is the same in every shared store."""
CONTROLLER_LEASE: Final = "controller"


def node_lease(node_id: int) -> str:
    """Returns the name of a node's lease."""
    return f"node/{node_id}"


class Lease(NamedTuple):
    """A lease as the store had it at the time of the call.

    Attributes:
        name: the name of the lease.
        holder: the id of the node that took it last.
        epoch: the number of times that the lease was taken or its holder fenced. It never decreases.
        remaining_ms: a lower bound of the time until the lease expires by the store's clock; 0 if it has expired or was
            released.
    """

    name: str
    holder: int
    epoch: int
    remaining_ms: int


class Endpoint(NamedTuple):
    """A listener of a node: its name, its security protocol by Kafka's name, the advertised host and port."""

    listener: str
    protocol: str
    host: str
    port: int


class NodeDescription(NamedTuple):
    """The addresses and the rack that a node registers for the other nodes.

    Attributes:
        endpoints: the node's listeners with their advertised addresses.
        rack: the node's rack, or None.
        inter_broker_listener: the name of the listener for requests of other nodes.
        secret: random text by which the node identifies itself to other nodes, because only nodes can read the store.
            "" for a node of an older version.
    """

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    inter_broker_listener: str = "PLAINTEXT"
    secret: str = ""

    def __repr__(self) -> str:
        return f"NodeDescription({self.endpoints!r}, rack={self.rack!r})"

    def encode(self) -> bytes:
        """Encodes the description as JSON, which an operator can read in the store."""
        fields = {
            "endpoints": [endpoint._asdict() for endpoint in self.endpoints],
            "rack": self.rack,
            "inter_broker_listener": self.inter_broker_listener,
            "secret": self.secret,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> NodeDescription:
        """Decodes the result of `encode`.

        Raises:
            ValueError: the bytes are not a description.
        """
        try:
            fields = parse_json(data)
            endpoints = tuple(
                Endpoint(str(part["listener"]), str(part["protocol"]), str(part["host"]), int(part["port"]))
                for part in fields["endpoints"]
            )
            rack = fields["rack"]
            listener, secret = str(fields["inter_broker_listener"]), str(fields.get("secret", ""))
            return cls(endpoints, None if rack is None else str(rack), listener, secret)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{len(data)} bytes are not the description of a node ({type(error).__name__})") from error


class RegisteredNode(NamedTuple):
    """A node that has registered at some time.

    Attributes:
        node_id: the setting `node.id` of the node.
        lease: the node's lease. A node is alive while the lease has not expired and `fenced` is False.
        fenced: True if the store refuses the node's writes, because it was fenced or has unregistered.
        draining: True if an operator wants the node to lead no partition (`set_draining`).
        description: the node's addresses.
    """

    node_id: int
    lease: Lease
    fenced: bool
    draining: bool
    description: NodeDescription


class PartitionLeader(NamedTuple):
    """The leader of a partition, as the store records it. The metadata log must record the same leader.

    Attributes:
        number: the partition's number in the store.
        key: the partition.
        leader: the node; -1 for none.
        leader_epoch: rises with each new leader.
    """

    number: int
    key: PartitionKey
    leader: int
    leader_epoch: int


class Initialised(NamedTuple):
    """The result of `kcore cluster init`.

    Attributes:
        cluster_id: identifies the new or existing cluster.
        before: the version of the schema before the call; 0 if there was none.
        after: the version of the schema after the call.
        warnings: texts about settings of the store that reduce durability or availability.
    """

    cluster_id: str
    before: int
    after: int
    warnings: tuple[str, ...]


class ClusterStore(ABC):
    """The nodes, leases and partition leaders of a shared store. Each node or command opens its own object.

    Every method raises:

    * StoreUnavailableError: the store cannot be reached now.
    * StoreRewoundError: the state of the store is older than a state that this object has seen, because the server is
      an old primary or a restored backup.
    * LogError: the store refuses the call for another reason, such as a missing permission or an unknown schema.

    Attributes:
        renews_concurrently: True if a thread may call `renew` while another thread runs any other method. A slow call
            then delays no renewal.
    """

    __slots__ = ()

    renews_concurrently: ClassVar[bool] = False

    @abstractmethod
    def cluster_id(self) -> str:
        """Returns the cluster's id, which `kcore cluster init` has created."""

    # -- this node

    @abstractmethod
    def register(self, node_id: int, description: NodeDescription, ttl_ms: int) -> Lease:
        """Begins a new incarnation of a node: takes its lease and makes every earlier incarnation's writes fail.

        The node leads no partition until the controller gives it partitions in a later epoch. Until then, partitions
        that an earlier incarnation led keep their leader and epoch, and accept no writes.

        Raises:
            NodeAliveError: an earlier incarnation holds the lease. The error has the time after which to try again.
        """

    @abstractmethod
    def storage(self) -> SharedStorage:
        """Returns the storage of the logs, for the incarnation that this object has registered last.

        `close` of this object also closes the storage.
        """

    def reader(self) -> SharedStorage:
        """Returns a storage with which a command that has not registered reads the logs of all nodes.

        Every write to it raises FencedWriteError. The caller closes it before this object.

        Raises:
            LogError: this kind of store has no such reader.
        """
        raise LogError(f"{type(self).__name__} has no reader: read the logs through a node", FailureReason.MISUSE)

    @abstractmethod
    def renew(self, leases: Sequence[Lease], ttl_ms: int) -> list[bool]:
        """Extends leases to `ttl_ms` from the store's present time.

        The result has one element for each lease: False if another holder has the lease, or if its epoch is different.
        """

    @abstractmethod
    def unregister(self, lease: Lease) -> None:
        """Ends an incarnation before its process ends: fences it and ends its leases. Has no effect on an ended
        incarnation.
        """

    @abstractmethod
    def take_controller(self, node: Lease, ttl_ms: int) -> Lease | None:
        """Takes the lease `controller` and the leadership of `METADATA`, if the lease has expired or was released.

        The epoch of the lease is the new leader epoch of `METADATA`, in the same transaction. Returns None if another
        node holds the lease.

        Raises:
            FencedWriteError: `node` is not the present incarnation, or it is fenced.
        """

    @abstractmethod
    def release_controller(self, lease: Lease) -> None:
        """Ends the lease `controller` immediately, so that another node can take it.

        Has no effect if this node has lost the lease.
        """

    # -- the cluster

    @abstractmethod
    def nodes(self) -> list[RegisteredNode]:
        """Returns all registered nodes in order of id."""

    @abstractmethod
    def controller(self) -> Lease | None:
        """Returns the lease `controller`; None if no node has ever taken it."""

    @abstractmethod
    def fence(self, node: Lease, controller: Lease | None, force: bool = False) -> bool:
        """Fences a node whose lease has expired, in one transaction. Later writes and renewals of the node fail.

        Its partitions keep their leader and epoch until the controller moves them. The transaction waits for a write
        of the node that is being stored.

        Args:
            node: the lease of the incarnation to fence. The call increases the epoch of the lease.
            controller: the lease of the calling controller, checked in the same transaction; None for a command.
            force: True to fence a node whose lease has not expired. The node may serve reads until its own deadline, so
                the caller waits until then before it gives the partitions to other nodes.

        Returns:
            False if the lease has not expired, or if another incarnation has it.

        Raises:
            FencedWriteError: the controller's lease is lost.
        """

    @abstractmethod
    def set_draining(self, node_id: int, draining: bool) -> bool:
        """Starts or ends a drain, during which the controller moves all leaders away from the node.

        Returns False for an unknown node.
        """

    @abstractmethod
    def leaders(self) -> list[PartitionLeader]:
        """Returns the leader of every partition in order of number, for commands and checks."""

    def damaged_rows(self) -> list[Finding]:
        """Returns the findings about rows of the store that cannot be read, for `kcore log verify`."""
        return []

    # -- notifications

    @abstractmethod
    def listen(self, callback: Callable[[], None]) -> None:
        """Sets the function that the store calls when nodes, the controller or the metadata log may have changed.

        The store may call the function on any thread. Notifications may be late, repeated or lost. They only save time,
        because a node also polls.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes all connections and the storage. It changes nothing in the store."""
