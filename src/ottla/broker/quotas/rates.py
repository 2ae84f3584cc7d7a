"""How much of something was used lately: rates over sliding windows, and buckets of tokens. Time comes from outside."""

from collections import deque


class Rate:
    """Amounts a second, over the last few windows. Counted as Kafka does, so that it throttles for the same times."""

    __slots__ = ("_samples", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()
        """When each window began, and what was used in it; the oldest first."""

    def record(self, amount: float, now_ms: int) -> None:
        """Something was used; a negative amount takes it back."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, 0.0])
            self._forget(now_ms)
        samples[-1][1] += amount

    def measure(self, now_ms: int) -> tuple[float, float]:
        """The rate a second, and the milliseconds that it is taken over."""
        self._forget(now_ms)
        if not self._samples:
            return 0.0, float(self._window_ms)
        elapsed = now_ms - self._samples[0][0]
        # A rate that has just begun is taken over nearly all windows, or its first use would look like too much.
        missing = self._windows - 1 - elapsed // self._window_ms
        if missing > 0:
            elapsed += missing * self._window_ms
        elapsed = max(elapsed, self._window_ms)
        return sum(amount for _, amount in self._samples) * 1000 / elapsed, elapsed

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait until the rate is back at a limit, if nothing more is used; 0 if it is not above."""
        rate, elapsed = self.measure(now_ms)
        return round((rate - limit) / limit * elapsed) if rate > limit else 0

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing was used in any window that still counts."""
        self._forget(now_ms)
        return not self._samples

    def _forget(self, now_ms: int) -> None:
        oldest = now_ms - self._windows * self._window_ms
        while self._samples and self._samples[0][0] <= oldest:
            self._samples.popleft()


class TokenBucket:
    """Fills up at a rate and may be overdrawn once: then there is nothing to be had until it is full enough again."""

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._seconds = windows * window_ms / 1000
        """It holds what comes in this time."""
        self._tokens = 0.0
        self._updated_ms: int | None = None

    def take(self, amount: float, rate: float, now_ms: int) -> None:
        """Take tokens, be they there or not."""
        self._fill(rate, now_ms)
        self._tokens = min(self._seconds * rate, self._tokens - amount)

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """How long until what was overdrawn has come in."""
        self._fill(rate, now_ms)
        return round(-self._tokens / rate * 1000) if self._tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is full again, whatever comes in."""
        return self._updated_ms is None or (self._tokens >= 0 and now_ms - self._updated_ms > self._seconds * 1000)

    def _fill(self, rate: float, now_ms: int) -> None:
        most = self._seconds * rate
        if self._updated_ms is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
