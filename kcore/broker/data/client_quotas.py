"""Enforcement of client quotas: measures the rates of clients, and mutes connections of those above their quota.

As in Kafka, a rate is the total of the last samples over their time, a response tells its throttle time, and the
server reads no request of the connection until that time has passed. Nothing is measured while no quota is set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.broker.metadata.quotas import CLIENT_ID, IP, USER
from kcore.config.setting import INT_MAX
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from kcore.broker.metadata.image import QuotaEntity
    from kcore.broker.metadata.topics import Topics
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.runtime.api import RequestContext

MAX_RATES = 10_000
"""Number of measured rates above which those without a recent sample are dropped."""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"


class Rate:
    """A rate of the last samples, of `window_ms` each.

    Attributes:
        last_ms: the time of the last record.
    """

    __slots__ = ("_samples", "last_ms")

    def __init__(self) -> None:
        self._samples: list[list[float]] = []  # [start in ms, sum], oldest first
        self.last_ms = 0

    def record(self, value: float, now_ms: int, window_ms: int) -> None:
        """Adds a value at a time."""
        self.last_ms = now_ms
        if not self._samples or now_ms - self._samples[-1][0] >= window_ms:
            self._samples.append([now_ms, 0.0])
        self._samples[-1][1] += value

    def excess_ms(self, bound: float, now_ms: int, window_ms: int, count: int) -> int:
        """Returns the time after which the rate would be `bound` without further values; 0 if it is not above.

        The time is at most INT_MAX, because responses tell it as an int32.

        Args:
            bound: the allowed rate, per second.
            now_ms: the present time.
            window_ms: the time of a sample.
            count: the number of samples.
        """
        samples = self._samples
        while samples and now_ms - samples[0][0] >= count * window_ms:
            del samples[0]
        if not samples:
            return 0
        elapsed_ms = now_ms - samples[0][0]
        # A client that has just started is measured over almost all windows, so that it may begin with a burst.
        elapsed_ms += max(count - 1 - elapsed_ms // window_ms, 0) * window_ms
        rate = sum(value for _, value in samples) * 1_000 / elapsed_ms if elapsed_ms else 0.0
        return round(min((rate - bound) / bound * elapsed_ms, INT_MAX)) if rate > bound else 0


class ClientQuotas(MetadataListener):
    """The quotas in force and the measured rates.

    Args:
        topics: holds the quotas.
        now: the time of the round.
        config: the number and the time of samples.

    Attributes:
        mute: stops reading from a connection (its number) for some milliseconds; the server sets it.
    """

    __slots__ = ("_config", "_now", "_observers", "_rates", "_topics", "mute")

    def __init__(self, topics: Topics, now: Now, config: Config) -> None:
        self._topics = topics
        self._now = now
        self._config = config
        self._rates: dict[tuple[str, QuotaEntity], Rate] = {}
        self._observers: list[Callable[[], None]] = []
        self.mute: Callable[[int, int], None] | None = None
        topics.listen(self)

    def has(self, quota: str) -> bool:
        """Tests if any entity has this quota."""
        return any(quota in own for own in self._topics.image.quotas.values())

    def observe(self, callback: Callable[[], None]) -> None:
        """Calls `callback` now and after each change of the quotas."""
        self._observers.append(callback)
        callback()

    def on_quotas_changed(self) -> None:
        """Informs the observers; rates of removed quotas are dropped."""
        quotas = self._topics.image.quotas
        if not quotas:
            self._rates.clear()
        for callback in self._observers:
            callback()

    def charge(self, quota: str, context: RequestContext, value: float) -> int:
        """Records a value for the client of a request; mutes its connection if it is above the quota.

        Returns:
            The throttle time in ms, 0 if the client may go on.
        """
        found = self._find(quota, context)
        if found is None:
            return 0
        entity, bound = found
        rate = self._rate(quota, entity)
        now_ms, window_ms = self._now.now_ms, self.window_ms
        rate.record(value, now_ms, window_ms)
        throttle_ms = rate.excess_ms(bound, now_ms, window_ms, self.samples)
        if throttle_ms and self.mute is not None:
            self.mute(context.connection_id, throttle_ms)
        return throttle_ms

    def refund(self, quota: str, context: RequestContext, value: float) -> None:
        """Takes back a value that `charge` recorded."""
        found = self._find(quota, context)
        if found is not None:
            self._rate(quota, found[0]).record(-value, self._now.now_ms, self.window_ms)

    def burst(self, quota: str, context: RequestContext) -> int:
        """Returns the largest value that the client's quota allows at once; INT_MAX if it has none."""
        found = self._find(quota, context)
        if found is None:
            return INT_MAX
        return int(min(found[1] * (self.samples - 1) * self.window_ms / 1_000, INT_MAX))

    def connection_throttle_ms(self, address: str) -> int:
        """Counts a new connection of an address; returns its throttle time, 0 if the address is not above its quota.

        As in Kafka, a connection that is throttled does not count, and is throttled for at most one sample's time.
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
        if throttle_ms:
            rate.record(-1, now_ms, window_ms)
        return min(throttle_ms, window_ms)

    @property
    def window_ms(self) -> int:
        """The time of a sample."""
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
            if len(self._rates) >= MAX_RATES:
                self._drop_idle()
            rate = self._rates[quota, entity] = Rate()
        return rate

    def _find(self, quota: str, context: RequestContext) -> tuple[QuotaEntity, float] | None:
        """Returns the measured entity and its quota, by Kafka's order: pairs, then users, then client ids."""
        quotas = self._topics.image.quotas
        user, client_id = context.principal.partition(":")[2], context.client_id
        for named_user in (user, None):
            for named_client in (client_id, None):
                own = quotas.get(((CLIENT_ID, named_client), (USER, named_user)))
                if own is not None and quota in own:
                    return ((CLIENT_ID, client_id), (USER, user)), own[quota]
            own = quotas.get(((USER, named_user),))
            if own is not None and quota in own:
                return ((USER, user),), own[quota]
        for named_client in (client_id, None):
            own = quotas.get(((CLIENT_ID, named_client),))
            if own is not None and quota in own:
                return ((CLIENT_ID, client_id),), own[quota]
        return None

    def _drop_idle(self) -> None:
        oldest_ms = self._now.now_ms - self.window_ms
        self._rates = {key: rate for key, rate in self._rates.items() if rate.last_ms >= oldest_ms}
