"""The runtime: shards, decide and replay, the commit pipeline, timers.

A *shard* is one partition of an internal topic with the state machine that owns its state. The shard of a key decides
every request about this key, one at a time. The records of all shards that decided in a round are written in one
commit, and only then are the responses completed. This package does no I/O, reads no clock and imports no coordinator.
"""

from kcore.runtime.api import Api, RequestContext
from kcore.runtime.commit import CommitPipeline, Participant
from kcore.runtime.loader import ShardLog
from kcore.runtime.machine import Outcome, Record, ShardContext, StateMachine
from kcore.runtime.partitioner import java_hash, partition_for
from kcore.runtime.pending import Pending, gather
from kcore.runtime.shard import Shard
from kcore.runtime.shard_services import ShardServices
from kcore.runtime.shard_state import ShardState
from kcore.runtime.shard_timer import ShardTimer
from kcore.runtime.shards import Shards
from kcore.runtime.slices import Slices
from kcore.runtime.topics import TopicImage, TopicInfo

__all__ = [
    "Api",
    "CommitPipeline",
    "Outcome",
    "Participant",
    "Pending",
    "Record",
    "RequestContext",
    "Shard",
    "ShardContext",
    "ShardLog",
    "ShardServices",
    "ShardState",
    "ShardTimer",
    "Shards",
    "Slices",
    "StateMachine",
    "TopicImage",
    "TopicInfo",
    "gather",
    "java_hash",
    "partition_for",
]
