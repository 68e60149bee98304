"""One simulation: creates the node, the network and the clients of a plan, injects the faults, and checks the final
state.
"""

from __future__ import annotations

import gc
import hashlib
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from kcore.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.topic_partition import TopicPartition
from kcore.share.state import key_of
from tools.simulate.channel import Channel
from tools.simulate.checkers.checks import Checks
from tools.simulate.checkers.failure import SimulationFailure
from tools.simulate.checkers.final import FinalChecks
from tools.simulate.checkers.heap import leaked
from tools.simulate.checkers.logged import collected
from tools.simulate.checkers.observer import Observer
from tools.simulate.clients.admin import Admin
from tools.simulate.clients.breaker import RuleBreaker
from tools.simulate.clients.client import NETWORK, Client
from tools.simulate.clients.member import Member
from tools.simulate.clients.producer import Producer
from tools.simulate.clients.share_worker import ShareWorker
from tools.simulate.clients.streams import StreamsMember
from tools.simulate.clients.transactional import Abandoner, TransactionalClient
from tools.simulate.faults import inject
from tools.simulate.history import ACKNOWLEDGED, REFUSED, UNKNOWN, History
from tools.simulate.kernel import Kernel
from tools.simulate.network import Network, Weather
from tools.simulate.node import Node
from tools.simulate.plan import ClientPlan, Fault, Plan
from tools.simulate.stores import LmdbStore, MemoryStore, Store

KINDS: Final[dict[str, type[Client]]] = {
    "producer": Producer,
    "member": Member,
    "transactional": TransactionalClient,
    "abandoner": Abandoner,
    "share": ShareWorker,
    "streams": StreamsMember,
    "breaker": RuleBreaker,
    "admin": Admin,
}
GROUP_RESOURCE: Final = 32
SETUP_MS: Final = 10_000
REST_MS: Final = 240_000
"""Virtual time in ms within which the node and all clients must recover from the last fault."""
AFTER_MS: Final = 90_000
"""Virtual time in ms after the end of the clients within which the node must free all their objects."""
CHECK_EVERY_STEPS: Final = 50
MAX_TIMERS: Final = 60
FINISHED: Final = (2, 4)
"""Delivery states of records that a share group does not deliver again: acknowledged and archived."""


class World:
    """A simulation.

    Args:
        plan: the clients, faults and rates of the run.
        sink: receives the lines of the trace, or None.

    Attributes:
        calm: True once the faults have ended.
        ended: True once the clients are being ended.
        clients: the running clients by name.
        channels: every connection of the clients.
        transactional: the newest producer of each transactional id.
        topic_names: the names of the plan's topics by id.
        all_topics: the names of all topics at the end, by id.
        protocols: the group protocol of each member whose protocol differs from its plan.
        model_topics: topics of the administrator -> "exists", "deleted" or "unknown".
        digest: a hash of the trace.
    """

    def __init__(self, plan: Plan, sink: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self._sink = sink
        self.digest = hashlib.sha256()
        random.seed(f"{plan.seed}/clients")  # kcore's clients draw their pauses from the module's generator
        self.kernel = Kernel()
        self.history = History()
        self.calm = True
        self.ended = False
        self.weather = Weather()
        self.network: Network
        self.store: Store
        self.node: Node
        self._make_nodes()
        self.clients: dict[str, Client] = {}
        self.channels: list[Channel] = []
        self.transactional: dict[str, Any] = {}
        self.topic_names: dict[bytes, str] = {}
        self.protocols: dict[str, str] = {}
        self.model_topics: dict[str, str] = {}
        self.delivery_limit = int(plan.settings.get("group.share.delivery.count.limit", "5"))
        self.all_topics: dict[bytes, str] = {}
        self.final_offsets: dict[tuple[str, TopicPartition], int] = {}
        self._share_states: dict[tuple[str, TopicPartition], tuple[int, list[tuple[int, int, int, int]]]] = {}
        self.observer: Observer
        self.checks: Checks
        self._make_checks()
        self._trouble_until_ms = 0
        self._lives: dict[str, int] = {}

    def _make_nodes(self) -> None:
        """Makes the node, its connections and its store."""
        plan = self.plan
        self.network = Network(self.kernel, self.random("network"), self.weather, self._trouble)
        self.store = MemoryStore() if plan.store == "memory" else LmdbStore(self.random("disk"))
        self.node = Node(self.kernel, self.network, self.store, plan.settings, self.random("node"), self.trace)

    def _make_checks(self) -> None:
        """Makes the checkers that run during the simulation."""
        self.observer = Observer(self)
        self.checks = Checks(self)

    def make_channel(self, name: str) -> Channel:
        """Opens a client's connection."""
        return Channel(self, name)

    def random(self, stream: str) -> random.Random:
        """Returns the random number generator of one part of the simulation, which is independent
        of the other parts.
        """
        return random.Random(f"{self.plan.seed}/{stream}")

    # ---- the trace

    def trace(self, line: str) -> None:
        """Adds a line to the trace."""
        text = f"{self.kernel.now_ms:8} {line}"
        self.digest.update(text.encode())
        if self._sink is not None:
            self._sink(text)

    def trace_frame(self, client: str, direction: str, message: Any, frame: bytes) -> None:
        """Adds a request or a response to the trace. The hash includes its bytes."""
        self.digest.update(frame)
        if self._sink is not None:
            self._sink(f"{self.kernel.now_ms:8} {client} {direction} {message}")

    def _trouble(self, disturbance: str, lasts_ms: int) -> None:
        self.trace(disturbance)
        self.trouble(lasts_ms)

    def trouble(self, lasts_ms: int) -> None:
        """Records that requests may stay without a response for the given time."""
        self._trouble_until_ms = max(self._trouble_until_ms, self.kernel.now_ms + lasts_ms)

    def unanswered(self, client: str, request: Any, sent_ms: int) -> None:
        """Checks a request whose time limit has passed: a fault must have disturbed it."""
        self.trace(f"{client} ! {type(request).__name__} without a response")
        if sent_ms > self._trouble_until_ms:
            self.checks.unanswered(client, request)

    def outcome(self, code: int, sent_ms: int) -> str:
        """Returns the result of a write request whose response has the error code `code`.

        A failed request has the result UNKNOWN if a write has failed since the request was sent, and the log does not
        know if this write is durable.
        """
        if not code:
            return ACKNOWLEDGED
        return UNKNOWN if self.node.uncertain_ms >= sent_ms else REFUSED

    # ---- the course

    def run(self) -> None:
        """Runs the simulation.

        Raises:
            SimulationFailure: a rule was violated.
        """
        collects = gc.isenabled()
        gc.disable()
        try:
            with collected(self.checks.logged):
                self._set_up()
                self._trouble_phase()
                self._rest_phase()
                self._end_phase()
                self.checks.logs()
        finally:
            self.store.close()
            if collects:
                gc.enable()

    def run_at_rest(self, duration_ms: int) -> tuple[float, float]:
        """Runs the clients without faults. Returns the simulated time and the CPU time in seconds."""
        try:
            self._set_up()
            for client in self.plan.clients:
                self.start_client(client)
            self.kernel.run(self.kernel.now_ms + 30_000, 1 << 62)
            started_s = time.process_time()
            self.kernel.run(self.kernel.now_ms + duration_ms, 1 << 62)
            return duration_ms / 1000, time.process_time() - started_s
        finally:
            self.store.close()

    def _set_up(self) -> None:
        self.node.start()
        channel = self.make_channel("setup")
        self.kernel.spawn(self._create_topics(channel))
        self.kernel.run(SETUP_MS, 1 << 62)
        if set(self.topic_names.values()) != set(self.plan.topics):
            raise SimulationFailure("setup", f"topics: {sorted(self.topic_names.values())}")

    async def _create_topics(self, channel: Channel) -> None:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=topic.partitions,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.config.items()],
            )
            for name, topic in self.plan.topics.items()
        ]
        response: Any = None
        while response is None:
            try:
                response = await channel.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
            except NETWORK:
                await self.kernel.sleep(10)
        for row in response.topics:
            self.checks.require(not row.error_code, "setup", f"{row.name}: {row.error_code} {row.error_message}")
        names = [MetadataRequestTopic(name=name) for name in self.plan.topics]
        while len(self.topic_names) < len(self.plan.topics):  # a node of a cluster learns of a topic later
            response = await channel.call(MetadataRequest(topics=names))
            self.topic_names = {row.topic_id: row.name for row in response.topics if not row.error_code and row.name}
            await self.kernel.sleep(10)
        await self._configure_share_groups(channel)
        channel.close()

    async def _configure_share_groups(self, channel: Channel) -> None:
        """Makes share groups begin at the start of the topics, so that no record is skipped."""
        config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        for group in self.plan.share_groups:
            resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[config])
            response = await channel.call(IncrementalAlterConfigsRequest(resources=[resource]))
            code = response.responses[0].error_code
            self.checks.require(not code, "setup", f"the settings of {group}: {code}")

    def _trouble_phase(self) -> None:
        plan = self.plan
        self.calm = False
        for name, value in plan.weather.items():
            setattr(self.weather, name, value)
        self._schedule_rounds(plan.round_ms, plan.background)
        for client in plan.clients:
            self.kernel.after(client.start_ms, self.start_client, client)
        for fault in plan.faults:
            self.kernel.after(fault.at_ms, self._inject, fault)
        self._run_checked(self.kernel.now_ms + plan.trouble_ms, plan.max_steps)

    def _schedule_rounds(self, round_ms: int, background: float) -> None:
        """Sets the length of rounds, and the probability of background commits."""
        self.node.round_ms, self.node.background = round_ms, background

    def _inject(self, fault: Fault) -> None:
        inject(self, fault)

    def _run_checked(self, until_ms: int, max_steps: int) -> None:
        kernel = self.kernel
        last = kernel.steps + max_steps
        while kernel.now_ms < until_ms and kernel.steps < last:
            kernel.run(until_ms, min(last, kernel.steps + CHECK_EVERY_STEPS))
            self.checks.regular()

    def start_client(self, plan: ClientPlan) -> None:
        """Starts a client process, or the next process of a client that has ended."""
        life = self._lives.get(plan.name, 0)
        self._lives[plan.name] = life + 1
        self.trace(f"client {plan.name} {life}")
        client = self.clients[plan.name] = KINDS[plan.kind](self, plan.name, plan.options, life)
        client.start()

    def _rest_phase(self) -> None:
        """Ends all faults, and waits until every client has recovered from them."""
        self.calm = True
        self.trace("calm")
        self.weather.calm()
        self._end_faults()
        self.kernel.run(self.kernel.now_ms + 25_000, 1 << 62)  # half-open connections end, pending restarts happen
        for client in list(self.clients.values()):
            if not client.alive or (isinstance(client, Member) and client.machine.closed):
                self._start_again(client.name)
        until_ms = self.kernel.now_ms + REST_MS
        reason: str | None = "it did not run"
        while reason is not None:
            self._run_checked(self.kernel.now_ms + 1_000, 1 << 62)
            reason = self._unrest()
            if self.kernel.now_ms >= until_ms:
                raise SimulationFailure("rest", f"not at rest {REST_MS} ms after the last fault: {reason}")
        self.checks.replay()

    def _end_faults(self) -> None:
        """Ends all faults of the node and its store."""
        self.store.set_full(False)
        self.store.fail_reads(0)
        self.node.interrupt = None
        self.node.flush_until_ms = self.node.slow_until_ms = 0
        clock = self.node.clock
        clock.step_ms += clock.latest_ms - clock.wall_ms()  # transactions time out by the wall clock
        self._schedule_rounds(1, 0.0)

    def restart_client(self, name: str, life: int) -> None:
        """Restarts a client process that has ended by itself, unless a newer process of the client already runs."""
        if not self.ended and self.clients[name].life == life:
            for plan in self.plan.clients:
                if plan.name == name:
                    self.start_client(plan)

    def _start_again(self, name: str) -> None:
        for plan in self.plan.clients:
            if plan.name == name and plan.kind in ("member", "share", "streams"):
                self.start_client(plan)

    def _unrest(self) -> str | None:
        """Describes a part of the system that has not recovered from the faults. Returns None if all parts have."""
        if not self.observer.at_rest():
            return "the node is not at rest"
        for client in self.clients.values():
            reason = client.at_rest() if client.alive else None
            if reason is not None:
                return f"{client.name}: {reason}"
        for group in self.plan.groups:
            reason = self._group_unrest(group)
            if reason is not None:
                return reason
        for group, parts in self.plan.streams_groups.items():
            reason = self._streams_unrest(group, parts)
            if reason is not None:
                return reason
        for partition in self.node.engine.partitions:
            if partition.last_stable_offset < partition.high_watermark:
                return f"{partition.topic}-{partition.index} has an open transaction"
        for group, topic in self.plan.share_groups.items():
            if any(isinstance(each, ShareWorker) and each.alive for each in self.clients.values()):
                reason = self._share_unrest(group, topic)
                if reason is not None:
                    return reason
        return None

    def _group_unrest(self, group: str) -> str | None:
        members = [
            each
            for each in self.clients.values()
            if isinstance(each, Member) and each.alive and each.options["group"] == group
        ]
        if not members:
            return None
        # Classic members learn of new topics only every five minutes: those of the administrator do not count.
        known = self.plan.topics
        owned = sorted(each for member in members for each in member.owned if each.topic in known)
        expected = self._partitions({each for member in members for each in member.options["topics"] if each in known})
        if owned != expected:
            return f"{group}: its members own {[str(each) for each in owned]}"
        return None

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Returns the sorted partitions of the topics. Takes the partition counts from the node."""
        partitions = []
        for name in sorted(topics):
            topic = self.node.engine.topics.by_name(name)
            partitions += [TopicPartition(name, index) for index in range(0 if topic is None else topic.partitions)]
        return partitions

    def _streams_unrest(self, group: str, parts: dict[str, str]) -> str | None:
        members = [
            each
            for each in self.clients.values()
            if isinstance(each, StreamsMember) and each.alive and each.options["group"] == group
        ]
        owned = sorted(task for member in members for task in member.owned)
        expected = sorted(
            TopicPartition(part, each.partition) for part, topic in parts.items() for each in self._partitions([topic])
        )
        if members and owned != expected:
            return f"{group}: its members run {[str(each) for each in owned]}"
        return None

    def _share_unrest(self, group: str, topic: str) -> str | None:
        """Describes a record that the group has neither accepted nor rejected. Returns None if there is none."""
        for write in self.history.writes.values():
            if write.partition.topic != topic or write.transaction is not None or write.offset < 0:
                continue
            record = self.history.share(group, write.partition, write.offset)
            if record.accepted_ms < 0 and not record.rejected:
                self._note_share_states()
                if not self.final_share_state(group, write.partition, write.offset):
                    return f"{group}: {write.partition}@{write.offset} is not accepted"
        return None

    def _end_phase(self) -> None:
        """Ends the clients, and checks the remaining state."""
        self.ended = True
        if any(isinstance(each, TransactionalClient) for each in self.clients.values()):
            self.kernel.run(self.kernel.now_ms + 30_000, 1 << 62)  # copies end, open transactions time out
        for client in self.clients.values():
            client.shut_down()
        self.kernel.run(self.kernel.now_ms + 10_000, 1 << 62)
        for client in self.clients.values():
            client.kill()
        self.kernel.run(self.kernel.now_ms + AFTER_MS, 1 << 62)
        self._check_leaks()
        self._note_final_state()
        self.node.stop()
        log = self.store.copy()
        try:
            FinalChecks(self, log).run()
        finally:
            log.close()

    def _check_leaks(self) -> None:
        """Checks that the node references no objects of the clients, which have all ended."""
        node, require = self.node, self.checks.require
        engine = node.engine
        require(
            not node.connections, "leaks", f"open connections: {[each.wire.name for each in node.connections.values()]}"
        )
        require(engine.pipeline.waiting == 0, "leaks", f"{engine.pipeline.waiting} responses wait for a commit")
        require(len(engine.purgatory) == 0, "leaks", f"{len(engine.purgatory)} operations are in the purgatory")
        require(len(engine.wheel) < MAX_TIMERS, "leaks", f"{len(engine.wheel)} timers are armed")
        objects = leaked(engine)
        require(not objects, "leaks", f"the engine still has {objects}")
        waiting = sum(channel.waiting for channel in self.channels)
        require(waiting == 0, "responses", f"{waiting} requests have no response")
        for name, state in self.model_topics.items():
            exists = engine.topics.by_name(name) is not None
            require(state == "unknown" or exists == (state == "exists"), "topics", f"{name}: {state}, found: {exists}")

    def _note_final_state(self) -> None:
        engine = self.node.engine
        self.all_topics = {topic.topic_id: topic.name for topic in engine.topics.all()}
        for shard in engine.groups:
            offsets = shard.machine.offsets
            for group in offsets.groups():
                for topic, rows in offsets.topics(group).items():
                    for index, value in rows.items():
                        self.final_offsets[group, TopicPartition(topic, index)] = value.committed_offset
        now_ms = self.kernel.now_ms
        for group, partition in self.history.offsets:
            offset = self.final_offsets.get((group, partition), -1)
            self.checks.saw_committed(group, partition, offset, now_ms)
        self._note_share_states()

    def _note_share_states(self) -> None:
        for shard in self.node.engine.share.shards or ():
            for value in shard.machine.states.values():
                key = key_of(value)
                name = self.topic_names.get(key.topic_id)
                if name is not None:
                    key_of_state = key.group_id, TopicPartition(name, key.partition)
                    self._share_states[key_of_state] = value.start_offset, list(value.batches)

    def final_share_state(self, group: str, partition: TopicPartition, offset: int) -> bool:
        """Returns True if a record is acknowledged or archived in the durable state.

        A record that no client knows to be accepted may be acknowledged, because the response to the acknowledgement
        may be lost.
        """
        start, rows = self._share_states.get((group, partition), (0, []))
        if offset < start:
            return True
        return any(first <= offset <= last and state in FINISHED for first, last, state, _ in rows)
