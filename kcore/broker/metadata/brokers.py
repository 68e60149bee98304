"""The registrations of a cluster's nodes, and the metadata records of nodes and leaders (KIP-631)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.broker.metadata.records import metadata_record
from kcore.protocol.records.metadata import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from kcore.runtime.cluster import Leader
    from kcore.runtime.machine import Record

SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""The numbers of Kafka's security protocols."""

NO_LEADER: Final = -1


class ListenerAddress(NamedTuple):
    """The advertised address of a node's listener; `protocol` is the number of its security protocol."""

    listener: str
    host: str
    port: int
    protocol: int


class BrokerRegistration(NamedTuple):
    """A registered node.

    Attributes:
        node_id: the id of the node.
        epoch: the epoch of the registration, which is the epoch of the node's lease; higher for each later start.
        addresses: the node's listeners.
        rack: the node's rack, or None.
        fenced: True if the node is not alive.
        draining: True while it shuts down or an operator moves its partitions away.
    """

    node_id: int
    epoch: int
    addresses: tuple[ListenerAddress, ...]
    rack: str | None = None
    fenced: bool = False
    draining: bool = False

    def address(self, listener: str) -> ListenerAddress | None:
        """Returns the address for clients of a listener, or None."""
        return next((address for address in self.addresses if address.listener == listener), None)

    def record(self) -> Record:
        """Makes the record of this registration."""
        return metadata_record(
            RegisterBrokerRecord(
                broker_id=self.node_id,
                broker_epoch=self.epoch,
                end_points=[
                    BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
                    for name, host, port, protocol in self.addresses
                ],
                rack=self.rack,
                fenced=self.fenced,
                in_controlled_shutdown=self.draining,
            ),
            1,
        )

    @classmethod
    def of(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        """Reads a registration from the record that `record` makes."""
        addresses = tuple(
            ListenerAddress(end.name, end.host, end.port, end.security_protocol) for end in record.end_points
        )
        return cls(
            record.broker_id,
            record.broker_epoch,
            addresses,
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
        )

    def changed(self, record: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        """Returns the registration after a change. A change for another epoch of the registration has no effect."""
        if record.broker_epoch != self.epoch:
            return self
        fenced = self.fenced if not record.fenced else record.fenced > 0
        return self._replace(fenced=fenced, draining=self.draining or record.in_controlled_shutdown > 0)


def fencing_record(broker: BrokerRegistration, fenced: bool) -> Record:
    """Makes the record that fences a node, or unfences it."""
    return metadata_record(
        BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=1 if fenced else -1),
        1,
    )


def unregistration_record(broker: BrokerRegistration) -> Record:
    """Makes the record that removes the registration of a node."""
    return metadata_record(UnregisterBrokerRecord(broker_id=broker.node_id, broker_epoch=broker.epoch), 0)


def leader_record(topic_id: bytes, partition: int, leader: int, replicas: tuple[int, ...] | None = None) -> Record:
    """Makes the record of a partition's new leader, whose epoch is one higher than before.

    Args:
        topic_id: the topic's id, 16 bytes.
        partition: the partition's number.
        leader: the id of the new leader; -1: none.
        replicas: the node ids of the partition's new replicas; None: the replicas do not change.
    """
    return metadata_record(
        PartitionChangeRecord(topic_id=topic_id, partition_id=partition, leader=leader, replicas=replicas)
    )


def successor_record(topic_id: bytes, partition: int, successor: int) -> Record:
    """Makes the record of a planned move: the leader releases the partition, and then `successor` leads it.

    The record equals the record of a reassignment that adds a replica (KIP-455).
    """
    return metadata_record(
        PartitionChangeRecord(topic_id=topic_id, partition_id=partition, adding_replicas=(successor,))
    )


def replicas_record(topic_id: bytes, partition: int, replicas: tuple[int, ...]) -> Record:
    """Makes the record of a partition's new replicas."""
    return metadata_record(PartitionChangeRecord(topic_id=topic_id, partition_id=partition, replicas=replicas))


def led_partition_records(
    topic_id: bytes, partitions: Iterable[tuple[int, tuple[int, ...], Leader, int | None]]
) -> list[Record]:
    """Makes the records of partitions whose leaders may differ from their first replicas.

    Args:
        topic_id: the topic's id, 16 bytes.
        partitions: (number, replicas, leader, planned next leader or None) of each partition.
    """
    return [
        metadata_record(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                adding_replicas=() if successor is None else (successor,),
                leader=leader.node_id,
                leader_epoch=leader.epoch,
                partition_epoch=leader.epoch,
            )
        )
        for index, replicas, leader, successor in partitions
    ]
