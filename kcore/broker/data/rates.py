"""Measurement of quotas as in Kafka: a rate over samples, and a token bucket (KIP-599)."""

from __future__ import annotations

from kcore.config.setting import INT_MAX


class Rate:
    """A rate over the last `count` samples. Each sample covers `window_ms`.

    A sample counts until `count * window_ms` after its last value. The rate is the sum of all values, divided by the
    time since the oldest counted sample began. This time can be longer than `count * window_ms`.
    """

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: list[list[float]] = []  # [start in ms, last value in ms, sum], oldest first

    def record(self, value: float, now_ms: int, window_ms: int) -> None:
        """Adds a value that was measured at `now_ms`."""
        if not self._samples or now_ms - self._samples[-1][0] >= window_ms:
            self._samples.append([now_ms, now_ms, 0.0])
        sample = self._samples[-1]
        sample[1] = now_ms
        sample[2] += value

    def is_idle(self, now_ms: int, window_ms: int, count: int) -> bool:
        """Tests if all values are too old to count."""
        return not self._samples or now_ms - self._samples[-1][1] >= count * window_ms

    def excess_ms(self, bound: float, now_ms: int, window_ms: int, count: int) -> int:
        """Returns the time in which the rate falls to `bound` if no further values are added.

        Returns 0 if the rate is not above the bound, and at most INT_MAX, because responses carry the time as an int32.

        Args:
            bound: the allowed rate, per second.
            now_ms: the current time.
            window_ms: the duration of a sample.
            count: the maximum number of samples over which the rate is measured.
        """
        samples = self._samples
        while samples and now_ms - samples[0][1] >= count * window_ms:
            del samples[0]
        if not samples:
            return 0
        elapsed_ms = now_ms - samples[0][0]
        # A client that has just started is measured over almost all windows, so that it may begin with a burst.
        elapsed_ms += max(count - 1 - elapsed_ms // window_ms, 0) * window_ms
        elapsed_ms = max(elapsed_ms, 1)
        rate = sum(value for _, _, value in samples) * 1_000 / elapsed_ms
        return int(min((rate - bound) / bound * elapsed_ms + 0.5, INT_MAX)) if rate > bound else 0


class TokenBucket:
    """A token bucket for changes of partitions. Each change removes tokens, and tokens arrive at a constant rate.

    The bucket is full at the beginning. Its capacity is the number of tokens that arrive in the time of all samples.
    The number of tokens can become negative.
    """

    __slots__ = ("_at_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._at_ms = 0

    def refill(self, bound: float, now_ms: int, burst_ms: int) -> float:
        """Adds the tokens that arrived since the last call; returns the number of tokens in the bucket.

        Args:
            bound: the tokens that arrive in a second.
            now_ms: the current time.
            burst_ms: the time in which an empty bucket fills up.
        """
        burst = bound * burst_ms / 1_000
        if self._tokens is None:
            self._tokens = burst
        self._tokens = min(burst, self._tokens + bound * (now_ms - self._at_ms) / 1_000)
        self._at_ms = now_ms
        return self._tokens

    def consume(self, tokens: float) -> None:
        """Removes tokens from the bucket; call `refill` before."""
        assert self._tokens is not None, "a bucket is refilled before tokens are taken"
        self._tokens -= tokens

    def is_idle(self, now_ms: int, window_ms: int, count: int) -> bool:
        """Tests if the bucket was unused for the time of `count` samples, and its number of tokens is 0 or more."""
        return (self._tokens or 0.0) >= 0 and now_ms - self._at_ms >= count * window_ms
