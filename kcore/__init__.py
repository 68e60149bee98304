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
    from kcore.node._async.consumer import AsyncConsumer as AsyncConsumer
    from kcore.node._async.member import AsyncMember as AsyncMember
    from kcore.node._async.node import AsyncNode as AsyncNode
    from kcore.node._async.queue import AsyncJob as AsyncJob
    from kcore.node._async.queue import AsyncQueue as AsyncQueue
    from kcore.node._sync.consumer import Consumer as Consumer
    from kcore.node._sync.member import Member as Member
    from kcore.node._sync.node import Node as Node
    from kcore.node._sync.queue import Job as Job
    from kcore.node._sync.queue import Queue as Queue
    from kcore.node.embedded import AsyncEmbeddedNode as AsyncEmbeddedNode
    from kcore.node.embedded import EmbeddedNode as EmbeddedNode
    from kcore.node.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from kcore.node.interceptors import ProducerInterceptor as ProducerInterceptor
    from kcore.node.interceptors import ProducerRecord as ProducerRecord
    from kcore.node.membership import MemberState as MemberState
    from kcore.node.membership import Protocol as Protocol
    from kcore.node.opening import connect as connect
    from kcore.node.opening import connect_async as connect_async
    from kcore.node.opening import open as open
    from kcore.node.opening import open_async as open_async
    from kcore.node.types import GroupMetadata as GroupMetadata
    from kcore.node.types import OffsetAndMetadata as OffsetAndMetadata
    from kcore.node.types import Record as Record
    from kcore.protocol.topic_partition import TopicPartition as TopicPartition

_MODULES = {
    "Assigned": "kcore.client.consumer_coordinator.interface",
    "AsyncConsumer": "kcore.node._async.consumer",
    "AsyncEmbeddedNode": "kcore.node.embedded",
    "AsyncEngine": "kcore.embed",
    "AsyncJob": "kcore.node._async.queue",
    "AsyncMember": "kcore.node._async.member",
    "AsyncNode": "kcore.node._async.node",
    "AsyncQueue": "kcore.node._async.queue",
    "Config": "kcore.config.node",
    "Consumer": "kcore.node._sync.consumer",
    "ConsumerInterceptor": "kcore.node.interceptors",
    "EmbeddedNode": "kcore.node.embedded",
    "GroupMetadata": "kcore.node.types",
    "Job": "kcore.node._sync.queue",
    "KafkaError": "kcore.errors",
    "Lost": "kcore.client.consumer_coordinator.interface",
    "ManualClock": "kcore.clock",
    "Member": "kcore.node._sync.member",
    "MemberEvent": "kcore.client.consumer_coordinator.interface",
    "MemberState": "kcore.node.membership",
    "Node": "kcore.node._sync.node",
    "OffsetAndMetadata": "kcore.node.types",
    "ProducerInterceptor": "kcore.node.interceptors",
    "ProducerRecord": "kcore.node.interceptors",
    "Protocol": "kcore.node.membership",
    "Queue": "kcore.node._sync.queue",
    "Record": "kcore.node.types",
    "Revoked": "kcore.client.consumer_coordinator.interface",
    "SyncEngine": "kcore.embed",
    "TopicPartition": "kcore.protocol.topic_partition",
    "connect": "kcore.node.opening",
    "connect_async": "kcore.node.opening",
    "open": "kcore.node.opening",
    "open_async": "kcore.node.opening",
}

__all__ = [
    "Assigned",
    "AsyncConsumer",
    "AsyncEmbeddedNode",
    "AsyncEngine",
    "AsyncJob",
    "AsyncMember",
    "AsyncNode",
    "AsyncQueue",
    "Config",
    "Consumer",
    "ConsumerInterceptor",
    "EmbeddedNode",
    "GroupMetadata",
    "Job",
    "KafkaError",
    "Lost",
    "ManualClock",
    "Member",
    "MemberEvent",
    "MemberState",
    "Node",
    "OffsetAndMetadata",
    "ProducerInterceptor",
    "ProducerRecord",
    "Protocol",
    "Queue",
    "Record",
    "Revoked",
    "SyncEngine",
    "TopicPartition",
    "__version__",
    "connect",
    "connect_async",
    "open",
    "open_async",
]


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use, so that `import kcore` alone costs nothing."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
