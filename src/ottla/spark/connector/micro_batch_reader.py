"""What a query reads, without Spark: from options to ranges on the driver, from a range to Arrow batches in a task.

A stream reader lives as long as its query. Spark asks it where the next micro-batch may end only after the one before
is finished and logged: so the offset from which it asks is what the query has finished, and is what is committed for
its consumer group. The last batch is included, since Spark asks once more before it finds that there is nothing left.
"""

import logging
import time
from collections.abc import Generator, Iterator

import pyarrow as pa

from ottla.client.metadata import partition_label
from ottla.client.retries import is_transient
from ottla.protocol.errors import ApiError, UnknownTopicOrPartition
from ottla.spark.connector.cluster import shared
from ottla.spark.connector.fetching import DataLost, Range, RangeReader
from ottla.spark.connector.group_commits import commit_offsets
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.planning import limit, ranges_between, split
from ottla.spark.connector.positions import Offsets, resolve
from ottla.spark.connector.read_options import ReadOptions

_log = logging.getLogger(__name__)


def plan_batch(options: ReadOptions) -> list[Range]:
    """The ranges of a batch query."""
    access = shared(options.client)
    keys = access.partitions(options.subscription)
    start = resolve(access, options.start, keys, latest_if_no_time=options.latest_if_no_time)
    stop = resolve(access, options.end, keys, latest_if_no_time=True)
    _check_ends(options, stop)
    for key, offset in start.items():
        if offset > stop[key]:
            _report(
                options, f"{partition_label(*key)}: ends at {stop[key]}, before offset {offset}, where the query starts"
            )
    return _plan(options, ranges_between(start, stop))


def read_range(
    options: ReadOptions, wanted: Range, schema: pa.Schema, value_schema: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a range, with their values decoded if the options say what they are."""
    if options.values is None:
        return read_raw(options, wanted, schema)
    from ottla.spark.connector.values import ValueStage  # loaded where values are decoded, not where a query is planned

    stage = ValueStage(options.values, value_schema, options.client, schema)
    return stage.decode(read_raw(options, wanted, stage.raw_schema), wanted)


def read_raw(options: ReadOptions, wanted: Range, schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    """The records of a range, as they came."""
    return RangeReader(
        shared(options.client),
        options.client,
        wanted,
        schema,
        fail_on_data_loss=options.fail_on_data_loss,
        patience_s=options.poll_timeout_s,
    ).batches()


def _plan(options: ReadOptions, ranges: list[Range]) -> list[Range]:
    return split(ranges, least=options.min_partitions, most_records=options.max_records_per_partition)


def _report(options: ReadOptions, lost: str) -> None:
    if options.fail_on_data_loss:
        raise DataLost(f"{lost}. failOnDataLoss=false goes on with what is left")
    _log.warning("%s; passed over", lost)


def _check_ends(options: ReadOptions, stop: Offsets) -> None:
    """Offsets that were given must be there: a task would wait for them in vain."""
    if options.end.offsets is None:
        return
    ends = shared(options.client).ends(stop)
    for key, offset in stop.items():
        if offset > ends[key]:
            raise OptionError(
                options.end.option, f"{partition_label(*key)} ends at {ends[key]}, before offset {offset}"
            )


class Stream:
    """One streaming query's source, on the driver."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._access = shared(options.client)
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._last_batch_s = time.monotonic()
        self._finished: Offsets | None = None

    def initial(self) -> Offsets:
        """Where a query without a checkpoint starts."""
        keys = self._access.partitions(self._options.subscription)
        return resolve(self._access, self._options.start, keys, latest_if_no_time=self._options.latest_if_no_time)

    def fix_target(self) -> None:
        """Read up to what is there now, and no further: AvailableNow."""
        self._target = self._ends()

    def next_end(self, start: Offsets, most: int | None, *, waits: bool) -> Offsets:
        """Where the micro-batch that begins at `start` ends; the same offsets if there is to be none.

        It takes at most so many offsets; if it `waits`, a small one is put off until there are more.
        """
        self._check_checkpoint(start)
        self._note_finished(start)
        stop = self._target if self._target is not None else self._ends()
        self._latest = stop
        stop = self._without_loss(start, stop)
        begun = start | self._begins_of_new(start, stop)
        available = sum(max(stop[key] - begun[key], 0) for key in stop)
        if waits and self._is_too_early(available):
            return start
        if most is not None:
            stop = limit(begun, stop, most)
        if available:
            self._last_batch_s = time.monotonic()
        return stop

    def _check_checkpoint(self, start: Offsets) -> None:
        """Raise OptionError if the query was begun with other topics, and none of these."""
        topics = self._options.subscription.topics or tuple(self._options.subscription.assigned or ())
        begun = sorted({topic for topic, _ in start})
        if begun and topics and not set(begun) & set(topics):
            raise OptionError(
                "checkpointLocation",
                f"it is that of a query that reads {', '.join(begun)}, and this one reads {', '.join(topics)}",
            )

    def latest(self) -> Offsets:
        """Where the partitions end, as of the last look."""
        return self._latest

    def plan(self, start: Offsets, stop: Offsets) -> list[Range]:
        """The ranges of a micro-batch; the same for the same offsets, also after a restart."""
        begun = start | self._begins_of_new(start, stop)
        return _plan(self._options, ranges_between(begun, stop))

    def _ends(self) -> Offsets:
        return self._access.ends(self._access.partitions(self._options.subscription))

    def _is_too_early(self, available: int) -> bool:
        least = self._options.min_offsets
        if least is None or self._target is not None or available >= least:
            return False
        return time.monotonic() - self._last_batch_s < self._options.max_delay_s

    def _without_loss(self, start: Offsets, stop: Offsets) -> Offsets:
        """Ends at which nothing goes backwards, and no partition is missing."""
        found = dict(stop)
        for key, offset in start.items():
            if key not in stop:
                _report(
                    self._options, f"{partition_label(*key)}: the partition is gone, of which offset {offset} is next"
                )
            elif stop[key] < offset:
                _report(
                    self._options,
                    f"{partition_label(*key)}: ends at {stop[key]}, but offset {offset} is next; was the topic"
                    " recreated?",
                )
                found[key] = offset
        return found

    def _begins_of_new(self, start: Offsets, stop: Offsets) -> Offsets:
        """Partitions that came later are read from their beginning."""
        begins = self._access.begins([key for key in stop if key not in start])
        for key, offset in begins.items():
            if offset > 0 and start:
                _report(
                    self._options,
                    f"{partition_label(*key)}: is new, and begins at {offset}; what came before was never read",
                )
        return begins

    def _note_finished(self, start: Offsets) -> None:
        group = self._options.client.group_id
        if group is None or start == self._finished:
            return
        try:
            self._access.run(commit_offsets(self._access.cluster, group, start))
            self._finished = start
        except ApiError as error:
            # A topic that is gone is told where its partitions are looked up, if that matters.
            if not (is_transient(error) or isinstance(error, UnknownTopicOrPartition)):
                raise OptionError("kafka.group.id", error.message) from error
            _log.warning("the offsets of group %r are not committed yet: %s", group, error.message)
