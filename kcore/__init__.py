"""kcore: Kafka's coordinator as a Python library.

A node is an engine in this process, or a connection to any Kafka-compatible cluster::

    with kcore.open("data/") as node:                       # or kcore.connect("host:9092")
        node.topics.create("jobs", partitions=4, exist_ok=True)
        node.group("workers").commit({("jobs", 0): 42})
        print(node.group("workers").committed())

    async with kcore.open_async("data/") as node:           # or kcore.connect_async("host:9092")
        await node.group("workers").commit({("jobs", 0): 42})

`kcore serve` serves Kafka clients.
"""

from typing import TYPE_CHECKING, Any

from kcore.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from kcore.client.consumer_coordinator.interface import Assigned as Assigned
    from kcore.client.consumer_coordinator.interface import Lost as Lost
    from kcore.client.consumer_coordinator.interface import MemberEvent as MemberEvent
    from kcore.client.consumer_coordinator.interface import Revoked as Revoked
    from kcore.clock import ManualClock as ManualClock
    from kcore.config.node import Config as Config
    from kcore.embed import AsyncEngine as AsyncEngine
    from kcore.embed import SyncEngine as SyncEngine
    from kcore.errors import KafkaError as KafkaError
    from kcore.node._async.acls import AsyncAcls as AsyncAcls
    from kcore.node._async.brokers import AsyncBrokers as AsyncBrokers
    from kcore.node._async.brokers import AsyncClusterBroker as AsyncClusterBroker
    from kcore.node._async.consumer import AsyncConsumer as AsyncConsumer
    from kcore.node._async.delivery import AsyncDelivery as AsyncDelivery
    from kcore.node._async.groups import AsyncGroup as AsyncGroup
    from kcore.node._async.groups import AsyncGroups as AsyncGroups
    from kcore.node._async.job import AsyncJob as AsyncJob
    from kcore.node._async.member import AsyncMember as AsyncMember
    from kcore.node._async.node import AsyncNode as AsyncNode
    from kcore.node._async.producer import AsyncProducer as AsyncProducer
    from kcore.node._async.queue import AsyncQueue as AsyncQueue
    from kcore.node._async.quotas import AsyncQuotas as AsyncQuotas
    from kcore.node._async.topics import AsyncTopic as AsyncTopic
    from kcore.node._async.topics import AsyncTopics as AsyncTopics
    from kcore.node._async.transaction_states import AsyncTransactions as AsyncTransactions
    from kcore.node._async.transactions import AsyncTransaction as AsyncTransaction
    from kcore.node._async.users import AsyncUsers as AsyncUsers
    from kcore.node._sync.acls import Acls as Acls
    from kcore.node._sync.brokers import Brokers as Brokers
    from kcore.node._sync.brokers import ClusterBroker as ClusterBroker
    from kcore.node._sync.consumer import Consumer as Consumer
    from kcore.node._sync.delivery import Delivery as Delivery
    from kcore.node._sync.groups import Group as Group
    from kcore.node._sync.groups import Groups as Groups
    from kcore.node._sync.job import Job as Job
    from kcore.node._sync.member import Member as Member
    from kcore.node._sync.node import Node as Node
    from kcore.node._sync.producer import Producer as Producer
    from kcore.node._sync.queue import Queue as Queue
    from kcore.node._sync.quotas import Quotas as Quotas
    from kcore.node._sync.topics import Topic as Topic
    from kcore.node._sync.topics import Topics as Topics
    from kcore.node._sync.transaction_states import Transactions as Transactions
    from kcore.node._sync.transactions import Transaction as Transaction
    from kcore.node._sync.users import Users as Users
    from kcore.node.acls import Acl as Acl
    from kcore.node.cluster_node import AsyncClusteredNode as AsyncClusteredNode
    from kcore.node.cluster_node import ClusteredNode as ClusteredNode
    from kcore.node.cluster_types import BrokerDescription as BrokerDescription
    from kcore.node.cluster_types import ClusterDescription as ClusterDescription
    from kcore.node.cluster_types import LogDirectory as LogDirectory
    from kcore.node.cluster_types import QuotaEntity as QuotaEntity
    from kcore.node.embedded import AsyncEmbeddedNode as AsyncEmbeddedNode
    from kcore.node.embedded import EmbeddedNode as EmbeddedNode
    from kcore.node.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from kcore.node.interceptors import ProducerInterceptor as ProducerInterceptor
    from kcore.node.interceptors import ProducerRecord as ProducerRecord
    from kcore.node.listening import AsyncListening as AsyncListening
    from kcore.node.listening import Listening as Listening
    from kcore.node.membership import MemberState as MemberState
    from kcore.node.membership import Protocol as Protocol
    from kcore.node.opening import connect as connect
    from kcore.node.opening import connect_async as connect_async
    from kcore.node.opening import open as open
    from kcore.node.opening import open_async as open_async
    from kcore.node.types import GroupDescription as GroupDescription
    from kcore.node.types import GroupListing as GroupListing
    from kcore.node.types import GroupMetadata as GroupMetadata
    from kcore.node.types import HeaderList as HeaderList
    from kcore.node.types import Isolation as Isolation
    from kcore.node.types import MemberDescription as MemberDescription
    from kcore.node.types import OffsetAndMetadata as OffsetAndMetadata
    from kcore.node.types import Offsets as Offsets
    from kcore.node.types import Partition as Partition
    from kcore.node.types import PartitionDescription as PartitionDescription
    from kcore.node.types import PartitionDict as PartitionDict
    from kcore.node.types import ProducerState as ProducerState
    from kcore.node.types import Record as Record
    from kcore.node.types import RecordMetadata as RecordMetadata
    from kcore.node.types import SharePosition as SharePosition
    from kcore.node.types import Tasks as Tasks
    from kcore.node.types import TopicDescription as TopicDescription
    from kcore.node.types import TopicListing as TopicListing
    from kcore.node.types import Topology as Topology
    from kcore.node.types import TransactionDescription as TransactionDescription
    from kcore.node.types import TransactionListing as TransactionListing
    from kcore.protocol.topic_partition import TopicPartition as TopicPartition

_MODULES = {
    "Acl": "kcore.node.acls",
    "Acls": "kcore.node._sync.acls",
    "Assigned": "kcore.client.consumer_coordinator.interface",
    "AsyncAcls": "kcore.node._async.acls",
    "AsyncBrokers": "kcore.node._async.brokers",
    "AsyncClusterBroker": "kcore.node._async.brokers",
    "AsyncClusteredNode": "kcore.node.cluster_node",
    "AsyncConsumer": "kcore.node._async.consumer",
    "AsyncDelivery": "kcore.node._async.delivery",
    "AsyncEmbeddedNode": "kcore.node.embedded",
    "AsyncEngine": "kcore.embed",
    "AsyncGroup": "kcore.node._async.groups",
    "AsyncGroups": "kcore.node._async.groups",
    "AsyncJob": "kcore.node._async.job",
    "AsyncListening": "kcore.node.listening",
    "AsyncMember": "kcore.node._async.member",
    "AsyncNode": "kcore.node._async.node",
    "AsyncProducer": "kcore.node._async.producer",
    "AsyncQueue": "kcore.node._async.queue",
    "AsyncQuotas": "kcore.node._async.quotas",
    "AsyncTopic": "kcore.node._async.topics",
    "AsyncTopics": "kcore.node._async.topics",
    "AsyncTransaction": "kcore.node._async.transactions",
    "AsyncTransactions": "kcore.node._async.transaction_states",
    "AsyncUsers": "kcore.node._async.users",
    "BrokerDescription": "kcore.node.cluster_types",
    "Brokers": "kcore.node._sync.brokers",
    "ClusterBroker": "kcore.node._sync.brokers",
    "ClusterDescription": "kcore.node.cluster_types",
    "ClusteredNode": "kcore.node.cluster_node",
    "Config": "kcore.config.node",
    "Consumer": "kcore.node._sync.consumer",
    "ConsumerInterceptor": "kcore.node.interceptors",
    "Delivery": "kcore.node._sync.delivery",
    "EmbeddedNode": "kcore.node.embedded",
    "Group": "kcore.node._sync.groups",
    "GroupDescription": "kcore.node.types",
    "GroupListing": "kcore.node.types",
    "GroupMetadata": "kcore.node.types",
    "Groups": "kcore.node._sync.groups",
    "HeaderList": "kcore.node.types",
    "Isolation": "kcore.node.types",
    "Job": "kcore.node._sync.job",
    "KafkaError": "kcore.errors",
    "Listening": "kcore.node.listening",
    "LogDirectory": "kcore.node.cluster_types",
    "Lost": "kcore.client.consumer_coordinator.interface",
    "ManualClock": "kcore.clock",
    "Member": "kcore.node._sync.member",
    "MemberDescription": "kcore.node.types",
    "MemberEvent": "kcore.client.consumer_coordinator.interface",
    "MemberState": "kcore.node.membership",
    "Node": "kcore.node._sync.node",
    "OffsetAndMetadata": "kcore.node.types",
    "Offsets": "kcore.node.types",
    "Partition": "kcore.node.types",
    "PartitionDescription": "kcore.node.types",
    "PartitionDict": "kcore.node.types",
    "Producer": "kcore.node._sync.producer",
    "ProducerInterceptor": "kcore.node.interceptors",
    "ProducerRecord": "kcore.node.interceptors",
    "ProducerState": "kcore.node.types",
    "Protocol": "kcore.node.membership",
    "Queue": "kcore.node._sync.queue",
    "QuotaEntity": "kcore.node.cluster_types",
    "Quotas": "kcore.node._sync.quotas",
    "Record": "kcore.node.types",
    "RecordMetadata": "kcore.node.types",
    "Revoked": "kcore.client.consumer_coordinator.interface",
    "SharePosition": "kcore.node.types",
    "SyncEngine": "kcore.embed",
    "Tasks": "kcore.node.types",
    "Topic": "kcore.node._sync.topics",
    "TopicDescription": "kcore.node.types",
    "TopicListing": "kcore.node.types",
    "TopicPartition": "kcore.protocol.topic_partition",
    "Topics": "kcore.node._sync.topics",
    "Topology": "kcore.node.types",
    "Transaction": "kcore.node._sync.transactions",
    "TransactionDescription": "kcore.node.types",
    "TransactionListing": "kcore.node.types",
    "Transactions": "kcore.node._sync.transaction_states",
    "Users": "kcore.node._sync.users",
    "connect": "kcore.node.opening",
    "connect_async": "kcore.node.opening",
    "open": "kcore.node.opening",
    "open_async": "kcore.node.opening",
}

_SUBMODULES = frozenset({"client", "errors"})
"""Names of submodules that a program may use after `import kcore` alone, for example `kcore.errors.KafkaError`."""

__all__ = [
    "Acl",
    "Acls",
    "Assigned",
    "AsyncAcls",
    "AsyncBrokers",
    "AsyncClusterBroker",
    "AsyncClusteredNode",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncEmbeddedNode",
    "AsyncEngine",
    "AsyncGroup",
    "AsyncGroups",
    "AsyncJob",
    "AsyncListening",
    "AsyncMember",
    "AsyncNode",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncQuotas",
    "AsyncTopic",
    "AsyncTopics",
    "AsyncTransaction",
    "AsyncTransactions",
    "AsyncUsers",
    "BrokerDescription",
    "Brokers",
    "ClusterBroker",
    "ClusterDescription",
    "ClusteredNode",
    "Config",
    "Consumer",
    "ConsumerInterceptor",
    "Delivery",
    "EmbeddedNode",
    "Group",
    "GroupDescription",
    "GroupListing",
    "GroupMetadata",
    "Groups",
    "HeaderList",
    "Isolation",
    "Job",
    "KafkaError",
    "Listening",
    "LogDirectory",
    "Lost",
    "ManualClock",
    "Member",
    "MemberDescription",
    "MemberEvent",
    "MemberState",
    "Node",
    "OffsetAndMetadata",
    "Offsets",
    "Partition",
    "PartitionDescription",
    "PartitionDict",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "ProducerState",
    "Protocol",
    "Queue",
    "QuotaEntity",
    "Quotas",
    "Record",
    "RecordMetadata",
    "Revoked",
    "SharePosition",
    "SyncEngine",
    "Tasks",
    "Topic",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "Topics",
    "Topology",
    "Transaction",
    "TransactionDescription",
    "TransactionListing",
    "Transactions",
    "Users",
    "__version__",
    "connect",
    "connect_async",
    "open",
    "open_async",
]


def __getattr__(name: str) -> Any:
    """Imports a public name or submodule at its first use, so that `import kcore` itself loads no other module."""
    if name not in _MODULES and name not in _SUBMODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the public names, including names that are not imported yet."""
    return sorted({*globals(), *__all__})
