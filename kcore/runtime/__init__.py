"""The runtime: shards, decide and replay, the commit pipeline, timers.

A *shard* is one partition of an internal topic with the state machine that lives in it. Every request about a key is
decided by the shard of that key, one at a time; what it decides is written in one commit together with what other
shards decided meanwhile, and only then are the replies released. Nothing here does I/O, reads a clock or knows what
a group is.
"""

from kcore.runtime.api import Api, RequestContext
from kcore.runtime.commit import CommitPipeline, Participant
from kcore.runtime.loader import ShardLog
from kcore.runtime.machine import Outcome, Record, ShardContext, StateMachine
from kcore.runtime.partitioner import java_hash, partition_for
from kcore.runtime.pending import Pending, gather
from kcore.runtime.shard import Shard, ShardState, ShardTimer
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
