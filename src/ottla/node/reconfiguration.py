"""Applies changed broker settings to the parts of a running node.

Topic defaults are not handled here: partitions read them from each metadata image.
"""

from collections.abc import Sequence
from typing import Final

from ottla.broker.network.listener import Listener
from ottla.broker.requests.request_workers import RequestWorkers
from ottla.config.node_settings import NodeSettings
from ottla.node.maintenance import Maintenance
from ottla.storage.compaction.scheduler import Compaction
from ottla.storage.directories.logs import Logs

_NO_LIMIT: Final = 1e308


class Reconfiguration:
    """Passes settings to the parts of a node that store them."""

    def __init__(
        self,
        pools: Sequence[RequestWorkers],
        listeners: Sequence[Listener],
        logs: Logs,
        compaction: Compaction,
        maintenance: Maintenance,
    ) -> None:
        self._pools = pools
        self._listeners = listeners
        self._logs = logs
        self._compaction = compaction
        self._maintenance = maintenance
        self.is_serving = False
        """Whether listeners accept connections. Then a listener that was full resumes if its limit rises."""

    def apply(self, old: NodeSettings, new: NodeSettings) -> None:
        """Apply new settings. Applying the same settings twice does no harm."""
        for pool in self._pools:
            pool.resize(new.num_io_threads)
        for listener in self._listeners:
            listener.limits = new.limits_of(listener.name)
            if self.is_serving:
                listener.start()
        rate, load = new["log.cleaner.io.max.bytes.per.second"], new["log.cleaner.io.buffer.load.factor"]
        assert isinstance(rate, float)
        assert isinstance(load, float)
        self._compaction.bytes_per_second = float("inf") if rate >= _NO_LIMIT else rate
        self._compaction.load = load
        self._compaction.memory_bytes = new.number("log.cleaner.dedupe.buffer.size")
        self._maintenance.change_interval("compaction", new.number("log.cleaner.backoff.ms") / 1000)
        for directory in self._logs.directories:
            directory.producer_expiration_ms = new.number("producer.id.expiration.ms")
            directory.is_cordoned = directory.path in new.cordoned_log_dirs
