"""Random requests to the control plane and to a model: both give the same results, even after failed commits, crashes
and restarts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kcore.broker.metadata import machine
from kcore.broker.metadata.image import ConfigType
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.runtime import Pending
from tests.broker.context import BrokerContext

NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "__consumer_offsets"])
COUNTS = st.integers(1, 4)
VALUES = st.sampled_from(["1", "77", " 5 "])


@dataclass
class Topic:
    partitions: int
    settings: dict[str, str] = field(default_factory=dict)


class ControlPlaneModel(RuleBasedStateMachine):
    """Model of topics by name, with partitions and settings, and of a group's settings."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = machine.COMPACT_FROM_RECORDS, machine.COMPACT_RATIO
        machine.COMPACT_FROM_RECORDS, machine.COMPACT_RATIO = 20, 1  # logs of these tests are short

    def teardown(self) -> None:
        machine.COMPACT_FROM_RECORDS, machine.COMPACT_RATIO = self.limits

    @initialize()
    def start(self) -> None:
        self.node = BrokerContext({"num.partitions": 2})
        self.topics: dict[str, Topic] = {}
        self.group: dict[str, str] = {}
        self.ids: dict[str, bytes] = {}
        self.dead: set[bytes] = set()
        self.failing = False

    def saved(self) -> bool:
        """Commits. Returns False if the test made this commit fail."""
        kept, self.failing = not self.failing, False
        return kept

    def collides(self, name: str) -> bool:
        return name not in self.topics and name.replace(".", "_") in {t.replace(".", "_") for t in self.topics}

    @rule(name=NAMES, count=COUNTS, value=st.none() | VALUES)
    def create(self, name: str, count: int, value: str | None) -> None:
        configs = {} if value is None else {"flush.ms": value}
        result = self.node.create(name, count, configs=configs)
        if name in self.topics:
            assert result.error_code == 36
        elif self.collides(name):
            assert result.error_code == 17
        elif self.saved():
            assert result.error_code == 0
            self.topics[name] = Topic(count, dict(configs))
            self.ids[name] = result.topic_id
        else:
            assert result.error_code == 41

    @rule(name=NAMES)
    def look_up(self, name: str) -> None:
        topics = self.node.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
        (topic,) = topics
        if name not in self.topics and not self.collides(name):
            if not self.saved():
                assert topic.error_code == 5
                return
            self.topics[name] = Topic(50 if name == "__consumer_offsets" else 2)
            if name == "__consumer_offsets":
                own = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
                self.topics[name].settings = own
            assert (topic.error_code, topic.topic_id, list(topic.partitions)) == (3, bytes(16), [])
            (topic,) = self.node.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
            self.ids[name] = topic.topic_id
        if name in self.topics:
            assert (topic.error_code, topic.topic_id) == (0, self.ids[name])
            assert len(topic.partitions) == self.topics[name].partitions
        else:
            assert topic.error_code == 3

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        (result,) = self.node.call(DeleteTopicsRequest(topic_names=[name]), 5).responses
        if name not in self.topics:
            assert result.error_code == 3
        elif name == "__consumer_offsets":
            assert result.error_code == 17
        elif self.saved():
            assert result.error_code == 0
            del self.topics[name]
            self.dead.add(self.ids.pop(name))
        else:
            assert result.error_code == 41

    @rule(name=NAMES, count=COUNTS)
    def grow(self, name: str, count: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        (result,) = self.node.call(CreatePartitionsRequest(topics=[topic])).results
        if name not in self.topics:
            assert result.error_code == 3
        elif name == "__consumer_offsets" or count <= self.topics[name].partitions:
            assert result.error_code == 37
        elif self.saved():
            assert result.error_code == 0
            self.topics[name].partitions = count
        else:
            assert result.error_code == 41

    @rule(name=NAMES, value=st.none() | VALUES)
    def configure(self, name: str, value: str | None) -> None:
        result = self.node.alter(ConfigType.TOPIC, name, ("flush.ms", 1 if value is None else 0, value))
        if name not in self.topics:
            assert result.error_code == 3
            return
        own = self.topics[name].settings
        if own.get("flush.ms") == value:
            assert result.error_code == 0
        elif self.saved():
            assert result.error_code == 0
            own.pop("flush.ms", None)
            if value is not None:
                own["flush.ms"] = value
        else:
            assert result.error_code == 41

    @rule(value=st.none() | st.sampled_from(["5000", "6000", "4999"]))
    def configure_group(self, value: str | None) -> None:
        key = "consumer.heartbeat.interval.ms"
        result = self.node.alter(ConfigType.GROUP, "g", (key, 1 if value is None else 0, value))
        if value == "4999":
            assert result.error_code == 40
        elif self.group.get(key) == value:
            assert result.error_code == 0
        elif self.saved():
            assert result.error_code == 0
            self.group = {} if value is None else {key: value}
        else:
            assert result.error_code == 41

    @rule()
    def fail_the_next_commit(self) -> None:
        if not self.failing:
            self.node.fail_next_commit()
            self.failing = True

    @rule()
    def restart(self) -> None:
        self.node.restart()
        self.failing = False

    @invariant()
    def node_equals_the_model(self) -> None:
        node = self.node
        shown = {topic.name: (topic.topic_id, topic.partitions) for topic in node.topics.all()}
        assert shown == {name: (self.ids[name], topic.partitions) for name, topic in self.topics.items()}
        for name, topic in self.topics.items():
            assert dict(node.topics.settings_of(ConfigType.TOPIC, name)) == topic.settings
            flush_ms = node.control.topic_configs.effective(name)["flush.ms"]
            assert flush_ms == int(topic.settings.get("flush.ms", 2**63 - 1))
            assert node.partitions.get(name, topic.partitions - 1) is not None
        assert node.partitions.names.keys() == self.topics.keys()
        assert all(node.topics.by_id(topic_id) is None for topic_id in self.dead)
        assert dict(node.topics.settings_of(ConfigType.GROUP, "g")) == self.group
        heartbeat_ms = int(self.group.get("consumer.heartbeat.interval.ms", 5000))
        assert node.control.group_configs.get("g", "consumer.heartbeat.interval.ms") == heartbeat_ms
        response = node.send(MetadataRequest(topics=None))
        assert not isinstance(response, Pending)
        assert {t.name: len(t.partitions) for t in response.topics} == {n: t.partitions for n, t in self.topics.items()}


ControlPlaneModel.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
test_model = ControlPlaneModel.TestCase
