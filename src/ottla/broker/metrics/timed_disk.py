"""The number and the duration of disk syncs, on which durability and produce latency depend."""

from collections.abc import Iterator
from threading import Lock
from time import perf_counter_ns

from ottla.broker.metrics.family import Family, summary
from ottla.storage.disk import SystemDisk
from ottla.storage.state_machine.histogram import Counts, new_counts, record, since


class TimedDisk(SystemDisk):
    """The system's disk, with the times of its syncs. They run in threads, one at a time for each log."""

    def __init__(self) -> None:
        self._times: Counts = new_counts()
        self._recent: list[Counts] = []
        self._lock = Lock()

    def sync(self, file: int, /) -> None:  # type: ignore[override] # the system's takes no self
        start = perf_counter_ns()
        SystemDisk.sync(file)
        took = perf_counter_ns() - start
        with self._lock:
            record(self._times, took)

    def start_minute(self) -> None:
        """Start a new minute. Quantiles cover the syncs since the last call but one."""
        self._recent = [*self._recent[-1:], self._times[:]]

    def families(self) -> Iterator[Family]:
        """Yield the times under Kafka's name. Kafka measures whole logs, this class single files."""
        flushes = summary("kafka_log_logflushstats_logflushrateandtimems", "Milliseconds to sync a file of a log.")
        with self._lock:
            times = self._times[:]
        flushes.add_summary(times, since(times, self._recent[0] if self._recent else None), 1e6)
        yield flushes
