"""Enforcement of client quotas: measures the rates of clients, and mutes connections of clients above their quota.

As in Kafka, the response to a client above its quota carries a throttle time. The server serves no request of the
connection until that time has passed. Nothing is measured while no quota is set.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING

from kcore.broker.data.rates import Rate, TokenBucket
from kcore.broker.metadata.quotas import CLIENT_ID, IP, USER
from kcore.config.setting import INT_MAX
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from kcore.broker.metadata.image import QuotaEntity
    from kcore.broker.metadata.topics import Topics
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.runtime.api import RequestContext

MAX_RATES = 10_000
"""Number of measured rates above which idle rates are dropped."""

MAX_NAME_LENGTH = 64
"""Maximum length of a name under which a client is measured.

A longer name is replaced by a digest of twice this length.
"""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

QUOTAS = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
    CONNECTION_CREATION_RATE,
)
"""The quotas that kcore applies, by their names in Kafka."""

PERCENT_PER_NS = 100 / 1e9
"""Factor that converts request time in nanoseconds to percent of a second, the unit of `request_percentage`."""


class ClientQuotas(MetadataListener):
    """The effective quotas and the measured rates.

    Args:
        topics: the metadata with the quotas.
        now: the clock, which the driver reads once for each round of requests.
        config: the node's settings: the number of samples of a rate, and the duration of a sample.

    Attributes:
        mute: called with the id of a connection and a time in ms, for which the connection is not read. The server sets
            this attribute.
        is_node: returns True if a request comes from another node of the cluster. A node of a cluster sets this
            attribute.
        throttled: number of throttled requests and connections, by quota.
        throttled_ms: sum of their throttle times, by quota.
    """

    __slots__ = (
        "_buckets",
        "_config",
        "_max_rates",
        "_now",
        "_observers",
        "_rates",
        "_topics",
        "is_node",
        "mute",
        "throttled",
        "throttled_ms",
    )

    def __init__(self, topics: Topics, now: Now, config: Config) -> None:
        self._topics = topics
        self._now = now
        self._config = config
        self._rates: dict[tuple[str, QuotaEntity], Rate] = {}
        self._buckets: dict[QuotaEntity, TokenBucket] = {}
        self._max_rates = MAX_RATES
        self._observers: list[Callable[[], None]] = []
        self.mute: Callable[[int, int], None] | None = None
        self.is_node: Callable[[RequestContext], bool] = lambda context: False
        self.throttled = dict.fromkeys(QUOTAS, 0)
        self.throttled_ms = dict.fromkeys(QUOTAS, 0)
        topics.listen(self)

    def has(self, quota: str) -> bool:
        """Tests if any entity has this quota."""
        return any(quota in own for own in self._topics.image.quotas.values())

    def observe(self, callback: Callable[[], None]) -> None:
        """Calls `callback` now and after each change of the quotas."""
        self._observers.append(callback)
        callback()

    def on_quotas_changed(self) -> None:
        """Calls the observers, and drops the rates of removed quotas."""
        quotas = self._topics.image.quotas
        if not quotas:
            self._rates.clear()
            self._buckets.clear()
        for callback in self._observers:
            callback()

    def charge(self, quota: str, context: RequestContext, value: float) -> int:
        """Adds a value to the measured rate of a client; mutes the connection if the client exceeds the quota.

        Returns:
            The throttle time in ms, 0 if the client is not throttled.
        """
        return self.throttle(quota, context, self._charge(quota, context, value))

    def charge_time(self, context: RequestContext, duration_ns: int) -> int:
        """Adds the time of a request to the client's `request_percentage`; mutes the connection above the quota.

        Returns:
            The throttle time in ms, at most the length of one sample as in Kafka; 0 if the client is not throttled.
            Other nodes of the cluster are never throttled, because their requests must not wait.
        """
        if context.node_secret and self.is_node(context):
            return 0
        throttle_ms = self._charge(REQUEST_PERCENTAGE, context, duration_ns * PERCENT_PER_NS)
        return self.throttle(REQUEST_PERCENTAGE, context, min(throttle_ms, self.window_ms))

    def throttle(self, quota: str, context: RequestContext, throttle_ms: int) -> int:
        """Mutes the connection of a request for `throttle_ms`, and counts the throttling. Does nothing if it is 0 ms.

        Returns `throttle_ms`.
        """
        if throttle_ms:
            self._count(quota, throttle_ms)
            if self.mute is not None:
                self.mute(context.connection_id, throttle_ms)
        return throttle_ms

    def mute_for(self, context: RequestContext, throttle_ms: int) -> None:
        """Mutes the connection of a client whose request another node has decided.

        The other node has already counted the throttling.
        """
        if throttle_ms and self.mute is not None:
            self.mute(context.connection_id, throttle_ms)

    def _count(self, quota: str, throttle_ms: int) -> None:
        self.throttled[quota] += 1
        self.throttled_ms[quota] += throttle_ms

    def _charge(self, quota: str, context: RequestContext, value: float) -> int:
        match = self._find(quota, context)
        if match is None:
            return 0
        entity, bound = match
        rate = self._rate(quota, entity)
        now_ms, window_ms = self._now.now_ms, self.window_ms
        rate.record(value, now_ms, window_ms)
        return rate.excess_ms(bound, now_ms, window_ms, self.samples)

    def mutations(self, context: RequestContext, *, strict: bool) -> Mutations | None:
        """Returns the client's quota of partition changes for one decision; None if the client has no quota (KIP-599).

        Args:
            context: the client and the API version of the request.
            strict: True to refuse changes while the quota is used up; False to set only the throttle time.
        """
        if not self._topics.image.quotas:
            return None
        match = self._find(CONTROLLER_MUTATION_RATE, context)
        if match is None:
            return None
        entity, bound = match
        bucket = self._buckets.get(entity)
        if bucket is None:
            self._drop_idle()
            bucket = self._buckets[entity] = TokenBucket()
        tokens = bucket.refill(bound, self._now.now_ms, self.samples * self.window_ms)
        return Mutations(bucket, bound, tokens, strict=strict)

    def refund(self, quota: str, context: RequestContext, value: float) -> None:
        """Subtracts a value that `charge` recorded."""
        match = self._find(quota, context)
        if match is not None:
            self._rate(quota, match[0]).record(-value, self._now.now_ms, self.window_ms)

    def burst(self, quota: str, context: RequestContext) -> int:
        """Returns the largest charge that the client's quota allows at once; INT_MAX if the client has no quota."""
        match = self._find(quota, context)
        if match is None:
            return INT_MAX
        return int(min(match[1] * (self.samples - 1) * self.window_ms / 1_000, INT_MAX))

    def connection_throttle_ms(self, address: str) -> int:
        """Counts a new connection of an address; returns its throttle time, 0 if the address is not above its quota.

        As in Kafka, a throttled connection does not count, and its throttle time is at most the duration of a sample.
        """
        quotas = self._topics.image.quotas
        if not quotas:
            return 0
        for named in (address, None):
            own = quotas.get(((IP, named),))
            if own is not None and CONNECTION_CREATION_RATE in own:
                bound = own[CONNECTION_CREATION_RATE]
                break
        else:
            return 0
        rate = self._rate(CONNECTION_CREATION_RATE, ((IP, address),))
        self._now.update()  # connections are accepted between rounds
        now_ms, window_ms = self._now.now_ms, self.window_ms
        rate.record(1, now_ms, window_ms)
        throttle_ms = rate.excess_ms(bound, now_ms, window_ms, self.samples)
        throttle_ms = min(throttle_ms, window_ms)
        if throttle_ms:
            rate.record(-1, now_ms, window_ms)
            self._count(CONNECTION_CREATION_RATE, throttle_ms)
        return throttle_ms

    @property
    def window_ms(self) -> int:
        """The duration of a sample, in ms."""
        seconds: int = self._config.get("quota.window.size.seconds")
        return seconds * 1_000

    @property
    def samples(self) -> int:
        """The number of samples of a rate."""
        count: int = self._config.get("quota.window.num")
        return count

    def _rate(self, quota: str, entity: QuotaEntity) -> Rate:
        rate = self._rates.get((quota, entity))
        if rate is None:
            self._drop_idle()
            rate = self._rates[quota, entity] = Rate()
        return rate

    def _find(self, quota: str, context: RequestContext) -> tuple[QuotaEntity, float] | None:
        """Returns the entity whose quota applies to a client, and the quota; None if no quota applies.

        As in Kafka, quotas for a user with a client id come first, then quotas for a user, then quotas for a client
        id.
        """
        quotas = self._topics.image.quotas
        user, client_id = context.principal.partition(":")[2], context.client_id
        # As in Kafka, a client without a client id has no quota of client ids, not even the default quota.
        clients = (client_id, None) if client_id else ()
        for named_user in (user, None):
            for named_client in clients:
                own = quotas.get(((CLIENT_ID, named_client), (USER, named_user)))
                if own is not None and quota in own:
                    return ((CLIENT_ID, measured_name(client_id)), (USER, measured_name(user))), own[quota]
            own = quotas.get(((USER, named_user),))
            if own is not None and quota in own:
                return ((USER, measured_name(user)),), own[quota]
        for named_client in clients:
            own = quotas.get(((CLIENT_ID, named_client),))
            if own is not None and quota in own:
                return ((CLIENT_ID, measured_name(client_id)),), own[quota]
        return None

    def _drop_idle(self) -> None:
        """Drops idle rates and buckets if the number of all rates and buckets has reached a limit.

        The search for idle ones examines all rates and buckets. So the new limit is at least twice the number that
        remains.
        """
        if len(self._rates) + len(self._buckets) < self._max_rates:
            return
        idle = (self._now.now_ms, self.window_ms, self.samples)
        self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_idle(*idle)}
        self._buckets = {entity: bucket for entity, bucket in self._buckets.items() if not bucket.is_idle(*idle)}
        self._max_rates = max(MAX_RATES, 2 * (len(self._rates) + len(self._buckets)))


def measured_name(name: str) -> str:
    """Returns the name under which a client is measured: `name` itself or, if it is long, a digest of it.

    Clients can send names of up to 32 KB. A digest is longer than any name that is used directly, so it never equals
    such a name.
    """
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return "\0" + blake2b(name.encode("utf-8", "surrogatepass"), digest_size=MAX_NAME_LENGTH).hexdigest()


def record_mutations(mutations: Mutations | None, partitions: int) -> None:
    """Records the partitions that a decision creates or deletes, if the client has a quota; see `Mutations.record`."""
    if mutations is not None:
        mutations.record(partitions)


class Mutations:
    """A client's quota of partition changes, within one decision.

    Args:
        bucket: the client's tokens, refilled.
        bound: the number of partitions that the client may create or delete in a second.
        tokens: the number of tokens.
        strict: True to refuse changes while the number of tokens is negative.

    Attributes:
        throttle_ms: the time after the last change until the quota is no longer used up; 0 if the quota is not used up.
    """

    __slots__ = ("_bound", "_bucket", "_strict", "_tokens", "throttle_ms")

    def __init__(self, bucket: TokenBucket, bound: float, tokens: float, *, strict: bool) -> None:
        self._bucket = bucket
        self._bound = bound
        self._tokens = tokens
        self._strict = strict
        self.throttle_ms = 0

    def record(self, partitions: int) -> None:
        """Counts created or deleted partitions towards the quota of a client.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED if the quota is strict and used up. The changes then do not count.
        """
        if self._strict and self._tokens < 0:
            self._measure()
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._bucket.consume(partitions)
        self._tokens -= partitions
        if not self._strict and self._tokens < 0:
            self._measure()

    def _measure(self) -> None:
        self.throttle_ms = int(min(-self._tokens / self._bound * 1_000 + 0.5, INT_MAX))
