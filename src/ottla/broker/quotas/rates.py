"""Usage over time: rates over sliding windows, and token buckets. The caller provides the time."""

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Sample:
    """The usage of one window."""

    start_ms: int
    amount: float = 0.0


class Rate:
    """The amount a second over the last windows, measured as Kafka does, so that throttle times are the same."""

    __slots__ = ("_samples", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[Sample] = deque()
        """The windows with usage, oldest first."""

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount; a negative amount takes it back."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window_ms:
            samples.append(Sample(now_ms))
            self._drop_expired(now_ms)
        samples[-1].amount += amount

    def measure(self, now_ms: int) -> tuple[float, float]:
        """Return the rate a second, and the milliseconds over which it is measured."""
        self._drop_expired(now_ms)
        if not self._samples:
            return 0.0, float(self._window_ms)
        elapsed = now_ms - self._samples[0].start_ms
        # A new rate is measured over nearly all windows, otherwise the first usage would exceed any limit.
        missing = self._windows - 1 - elapsed // self._window_ms
        if missing > 0:
            elapsed += missing * self._window_ms
        elapsed = max(elapsed, self._window_ms)
        return sum(sample.amount for sample in self._samples) * 1000 / elapsed, elapsed

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time until the rate is back at the limit without further usage; 0 if it is not above."""
        rate, elapsed = self.measure(now_ms)
        return round((rate - limit) / limit * elapsed) if rate > limit else 0

    def is_idle(self, now_ms: int) -> bool:
        """Return whether there was no usage in the windows that count."""
        self._drop_expired(now_ms)
        return not self._samples

    def _drop_expired(self, now_ms: int) -> None:
        oldest = now_ms - self._windows * self._window_ms
        while self._samples and self._samples[0].start_ms <= oldest:
            self._samples.popleft()


class TokenBucket:
    """A bucket that fills at a rate. It may be overdrawn once; then it gives nothing until it is positive again."""

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._seconds = windows * window_ms / 1000
        """The capacity: the tokens of this time."""
        self._tokens = 0.0
        self._updated_ms: int | None = None

    def take(self, amount: float, rate: float, now_ms: int) -> None:
        """Take tokens, even if the bucket is overdrawn."""
        self._fill(rate, now_ms)
        self._tokens = min(self._seconds * rate, self._tokens - amount)

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """Return the time until the bucket is no longer overdrawn."""
        self._fill(rate, now_ms)
        return round(-self._tokens / rate * 1000) if self._tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Return whether the bucket is full again, at any rate."""
        return self._updated_ms is None or (self._tokens >= 0 and now_ms - self._updated_ms > self._seconds * 1000)

    def _fill(self, rate: float, now_ms: int) -> None:
        capacity = self._seconds * rate
        if self._updated_ms is None:
            self._tokens = capacity
        else:
            self._tokens = min(capacity, self._tokens + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
