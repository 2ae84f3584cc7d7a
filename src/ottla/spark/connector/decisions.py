"""The commit decisions of streaming queries: the last decided batch of each query, and its transactions.

One compacted topic holds the last decision of each query, with the query's name as the key. A driver writes a decision
in a transaction. All drivers of a query use the same transactional id, so each one fences the previous one, and only
the latest can decide. The topic also holds which run took over last: a run may commit its batches in several processes,
and a process that is fenced must distinguish its own run from another one.
"""

import functools
import json
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from ottla.client.admin import Admin
from ottla.client.offsets import LATEST, list_offsets
from ottla.client.retries import Deadline
from ottla.protocol.errors import RequestTimedOut, TopicAlreadyExists, UnknownTopicOrPartition
from ottla.protocol.wire.batch import HEADER_BYTES
from ottla.protocol.wire.records import Record, build_batch
from ottla.spark.connector.client_settings import ClientSettings
from ottla.spark.connector.cluster import BlockingCluster
from ottla.spark.connector.columns import TYPES
from ottla.spark.connector.range_reader import Range, RangeReader
from ottla.spark.connector.sender import Sender
from ottla.spark.connector.transactions import Transaction, TransactionCalls

_PARTITION: Final = 0
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    # The active segment is never compacted, so small segments limit what a restart reads.
    "segment.bytes": str(1 << 20),
}
_TAIL: Final = 1000
_TIMEOUT_S: Final = 30.0
"""The longest time for which a driver that dies while it decides can delay other readers of decisions."""


class Decision(NamedTuple):
    """A batch whose transactions must be committed, and the run of the query that decided it."""

    run: str
    batch: int
    transactions: tuple[Transaction, ...]


class Decisions:
    """The decisions of one query, for its driver."""

    def __init__(self, cluster: BlockingCluster, settings: ClientSettings, topic: str, query: str) -> None:
        self._cluster = cluster
        self._settings = settings._replace(committed=True)
        self._calls = TransactionCalls(cluster.async_cluster)
        self._key = topic, _PARTITION
        self._query = query.encode()
        self._driver_id = f"{query}/driver"
        self._taker = self._driver_id.encode()
        self._driver: tuple[Transaction, Sender] | None = None

    def last(self) -> Decision | None:
        """Return the last decision, if any."""
        value = self._last_value(self._query)
        if value is None:
            return None
        decision = json.loads(value)
        transactions = tuple(Transaction(*fields) for fields in decision["transactions"])
        return Decision(decision["run"], decision["batch"], transactions)

    def take_over(self, run: str) -> None:
        """Fence the previous driver, which aborts its unfinished decision. Create the topic if it is missing."""
        self._cluster.run(self._ensure_topic())
        driver = self._cluster.run(self._calls.begin(self._driver_id, _TIMEOUT_S))
        self._driver = driver, Sender(self._cluster, self._settings, driver.identity, driver.id)
        self._write(self._taker, run.encode())

    def is_driven_by(self, run: str) -> bool:
        """Whether this run took over last, in this process or another."""
        return self._last_value(self._taker) == run.encode()

    def write(self, decision: Decision) -> None:
        """Write a decision; from then on the batch must be committed.

        Raises ProducerFenced or InvalidProducerEpoch if another driver has taken over since `take_over`. So as long as
        this succeeds, no other driver has decided anything since.
        """
        value = json.dumps({"run": decision.run, "batch": decision.batch, "transactions": decision.transactions})
        self._write(self._query, value.encode())

    def _write(self, key: bytes, value: bytes) -> None:
        assert self._driver is not None, "a driver must take over before it decides"
        driver, sender = self._driver
        now_ms = time.time_ns() // 1_000_000
        payload = build_batch([Record(0, now_ms, key, value)])[HEADER_BYTES:]
        self._cluster.run(self._calls.add_partitions(driver, [self._key]))
        try:
            sender.put(self._key, bytes(payload), 1)
            sender.flush()
        finally:
            sender.close()
        self._cluster.run(self._calls.end(driver, commit=True))

    async def _ensure_topic(self) -> None:
        cluster = self._cluster.async_cluster
        try:
            await cluster.topic(self._key[0])
        except UnknownTopicOrPartition:
            try:
                await Admin(cluster).create_topic(self._key[0], partitions=1, settings=_SETTINGS)
            except TopicAlreadyExists:
                return  # the driver of another query created it

    def _settled_end(self) -> int:
        """Return the current end of the topic, after all transactions before it have ended."""
        cluster, key = self._cluster.async_cluster, self._key
        deadline = Deadline(2 * _TIMEOUT_S)
        end = self._cluster.run(list_offsets(cluster, {key: LATEST}))[key].offset
        while self._cluster.run(list_offsets(cluster, {key: LATEST}, committed=True))[key].offset < end:
            if deadline.has_passed:
                raise RequestTimedOut(
                    f"cannot read decisions from topic {key[0]!r}: a transaction of another query has been open for "
                    f"{2 * _TIMEOUT_S:g} s; check it with kafka-transactions.sh, and start the query again"
                )
            time.sleep(0.1)
        return end

    def _last_value(self, key: bytes) -> bytes | None:
        """Return the last value of a key. It is usually near the end, so the tail of the topic is read first."""
        end = self._settled_end()
        begin = self._cluster.begins([self._key])[self._key]
        tail = max(begin, end - _TAIL)
        return self._last_between(key, tail, end) or self._last_between(key, begin, tail)

    def _last_between(self, key: bytes, begin: int, end: int) -> bytes | None:
        return functools.reduce(lambda _, later: later, self._values(key, begin, end), None)

    def _values(self, wanted: bytes, begin: int, end: int) -> Iterator[bytes]:
        if begin >= end:
            return
        schema = pa.schema([("key", TYPES["key"]), ("value", TYPES["value"])])
        reader = RangeReader(
            self._cluster,
            self._settings,
            Range(*self._key, begin, end),
            schema,
            fail_on_data_loss=False,  # compaction may remove records meanwhile
            patience_s=_TIMEOUT_S,
        )
        for batch in reader.batches():
            for key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if key == wanted:
                    yield value
