"""Which batch of a streaming query was decided last, and which transactions that commits.

One compacted topic holds the last decision of each query, under the query's name. A decision is written in a
transaction of the query's driver, whose id is taken over by each later driver: of two drivers, only the later one
decides anything. Who took over last is written down as well: one run may commit its batches in several processes, and
one that finds itself fenced can tell its own run from another.
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
from ottla.spark.connector.fetching import Range, RangeReader
from ottla.spark.connector.sending import Sender
from ottla.spark.connector.transactions import Transaction, TransactionCalls

_PARTITION: Final = 0
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    # Only segments that are full are compacted: small ones keep small what a restart reads.
    "segment.bytes": str(1 << 20),
}
_TAIL: Final = 1000
_TIMEOUT_S: Final = 30.0
"""How long a driver that dies while it decides keeps others from reading decisions."""


class Decision(NamedTuple):
    """A batch that is to be committed, come what may, and the run of the query that decided it."""

    run: str
    batch: int
    transactions: tuple[Transaction, ...]


class Decisions:
    """The decisions of one query, for its driver."""

    def __init__(self, access: BlockingCluster, settings: ClientSettings, topic: str, query: str) -> None:
        self._access = access
        self._settings = settings._replace(committed=True)
        self._calls = TransactionCalls(access.cluster)
        self._key = topic, _PARTITION
        self._query = query.encode()
        self._driver_id = f"{query}/driver"
        self._taker = self._driver_id.encode()
        self._driver: tuple[Transaction, Sender] | None = None

    def last(self) -> Decision | None:
        """The last decision; None if there was none."""
        value = self._last_value(self._query)
        if value is None:
            return None
        given = json.loads(value)
        return Decision(given["run"], given["batch"], tuple(Transaction(*each) for each in given["transactions"]))

    def take_over(self, run: str) -> None:
        """Fence whoever drove the query before; what it was about to decide is undone. Makes the topic if need be."""
        self._access.run(self._ensure_topic())
        driver = self._access.run(self._calls.begin(self._driver_id, _TIMEOUT_S))
        self._driver = driver, Sender(self._access, self._settings, driver.identity, driver.id)
        self._write(self._taker, run.encode())

    def is_driven_by(self, run: str) -> bool:
        """Whether it was this run, in whatever process, that took over last."""
        return self._last_value(self._taker) == run.encode()

    def write(self, decision: Decision) -> None:
        """Decide; from then on the batch is to be committed.

        Raises ProducerFenced or InvalidProducerEpoch if another driver has taken over since `take_over`: so what was
        last decided then is so still.
        """
        value = json.dumps({"run": decision.run, "batch": decision.batch, "transactions": decision.transactions})
        self._write(self._query, value.encode())

    def _write(self, key: bytes, value: bytes) -> None:
        assert self._driver is not None, "only a driver that took over decides"
        driver, sender = self._driver
        now_ms = time.time_ns() // 1_000_000
        payload = build_batch([Record(0, now_ms, key, value)])[HEADER_BYTES:]
        self._access.run(self._calls.enlist(driver, [self._key]))
        try:
            sender.put(self._key, bytes(payload), 1)
            sender.flush()
        finally:
            sender.close()
        self._access.run(self._calls.end(driver, commit=True))

    async def _ensure_topic(self) -> None:
        cluster = self._access.cluster
        try:
            await cluster.topic(self._key[0])
        except UnknownTopicOrPartition:
            try:
                await Admin(cluster).create_topic(self._key[0], partitions=1, settings=_SETTINGS)
            except TopicAlreadyExists:
                return  # another query's driver was faster

    def _settled_end(self) -> int:
        """The end of what is there now, when no other query's decision is under way in front of it."""
        cluster, key = self._access.cluster, self._key
        deadline = Deadline(2 * _TIMEOUT_S)
        end = self._access.run(list_offsets(cluster, {key: LATEST}))[key].offset
        while self._access.run(list_offsets(cluster, {key: LATEST}, committed=True))[key].offset < end:
            if deadline.has_passed:
                raise RequestTimedOut(f"topic {key[0]!r}: a decision of another query is not finished")
            time.sleep(0.1)
        return end

    def _last_value(self, key: bytes) -> bytes | None:
        """What was written last under a key. Most often that is near the end, so that is looked at first."""
        end = self._settled_end()
        begin = self._access.begins([self._key])[self._key]
        tail = max(begin, end - _TAIL)
        return self._last_between(key, tail, end) or self._last_between(key, begin, tail)

    def _last_between(self, key: bytes, begin: int, end: int) -> bytes | None:
        return functools.reduce(lambda _, later: later, self._values(key, begin, end), None)

    def _values(self, wanted: bytes, begin: int, end: int) -> Iterator[bytes]:
        if begin >= end:
            return
        schema = pa.schema([("key", TYPES["key"]), ("value", TYPES["value"])])
        reader = RangeReader(
            self._access,
            self._settings,
            Range(*self._key, begin, end),
            schema,
            fail_on_data_loss=False,  # compaction and retention may go on meanwhile
            patience_s=_TIMEOUT_S,
        )
        for batch in reader.batches():
            for key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if key == wanted:
                    yield value
