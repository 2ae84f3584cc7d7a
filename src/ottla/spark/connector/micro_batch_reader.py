"""The source without Spark: turns options into ranges on the driver, and a range into Arrow batches in a task.

A `StreamPlanner` lives as long as its query. Spark asks for the end of the next micro-batch only after it has logged
the previous one as finished. So the start offset of that question is what the query has finished, and the planner
commits it for the consumer group. This includes the last batch, because Spark asks once more before it stops.
"""

import logging
import time
from collections.abc import Generator, Iterator

import pyarrow as pa

from ottla.client.metadata import partition_label
from ottla.client.retries import is_transient
from ottla.protocol.errors import ApiError, UnknownTopicOrPartition
from ottla.spark.connector.cluster import shared_cluster
from ottla.spark.connector.group_commits import commit_offsets
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.planning import limit_batch, ranges_between, split_ranges
from ottla.spark.connector.positions import Offsets, resolve_position
from ottla.spark.connector.range_reader import DataLost, Range, RangeReader
from ottla.spark.connector.read_options import ReadOptions

_log = logging.getLogger(__name__)


def plan_batch(options: ReadOptions) -> list[Range]:
    """Return the ranges of a batch query."""
    cluster = shared_cluster(options.client)
    keys = cluster.partitions(options.subscription)
    start = resolve_position(cluster, options.start, keys, latest_if_no_time=options.latest_if_no_time)
    stop = resolve_position(cluster, options.end, keys, latest_if_no_time=True)
    _check_ends(options, stop)
    for key, offset in start.items():
        if offset > stop[key]:
            _report_loss(
                options, f"{partition_label(*key)}: it ends at offset {stop[key]}, but the query starts at {offset}"
            )
    return _split(options, ranges_between(start, stop))


def read_range(
    options: ReadOptions, wanted: Range, schema: pa.Schema, value_schema: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Return the records of a range, with decoded values if the options give a format."""
    if options.values is None:
        return read_raw(options, wanted, schema)
    from ottla.spark.connector.values import ValueStage  # only tasks that decode values need it

    stage = ValueStage(options.values, value_schema, options.client, schema)
    return stage.decode(read_raw(options, wanted, stage.raw_schema), wanted)


def read_raw(options: ReadOptions, wanted: Range, schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    """Return the records of a range with their values as bytes."""
    return RangeReader(
        shared_cluster(options.client),
        options.client,
        wanted,
        schema,
        fail_on_data_loss=options.fail_on_data_loss,
        patience_s=options.poll_timeout_s,
    ).batches()


def _split(options: ReadOptions, ranges: list[Range]) -> list[Range]:
    return split_ranges(ranges, min_ranges=options.min_partitions, max_records=options.max_records_per_partition)


def _report_loss(options: ReadOptions, lost: str) -> None:
    if options.fail_on_data_loss:
        raise DataLost(f"{lost}. To continue with the remaining records, set failOnDataLoss=false")
    _log.warning("%s; continuing with the remaining records because failOnDataLoss=false", lost)


def _check_ends(options: ReadOptions, stop: Offsets) -> None:
    """Raise OptionError if a given end offset does not exist yet: a task would wait for it until it times out."""
    if options.end.offsets is None:
        return
    ends = shared_cluster(options.client).ends(stop)
    for key, offset in stop.items():
        if offset > ends[key]:
            raise OptionError(
                options.end.option,
                f"offset {offset} of {partition_label(*key)} does not exist: the partition ends at {ends[key]}; "
                f"use {ends[key]}, or -1 for latest",
            )


class StreamPlanner:
    """Plans the micro-batches of one streaming query, on the driver."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster = shared_cluster(options.client)
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._last_batch_s = time.monotonic()
        self._finished: Offsets | None = None

    def initial(self) -> Offsets:
        """Return where a query without a checkpoint starts."""
        keys = self._cluster.partitions(self._options.subscription)
        strategy = self._options.latest_if_no_time
        return resolve_position(self._cluster, self._options.start, keys, latest_if_no_time=strategy)

    def fix_target(self) -> None:
        """Read up to the current ends and no further, for the trigger AvailableNow."""
        self._target = self._ends()

    def next_end(self, start: Offsets, most: int | None, *, waits: bool) -> Offsets:
        """Return where the micro-batch that begins at `start` ends, or `start` if there are no new records yet.

        A micro-batch has at most `most` offsets. If `waits` is set, `minOffsetsPerTrigger` may delay it.
        """
        self._check_checkpoint(start)
        self._commit_finished(start)
        stop = self._target if self._target is not None else self._ends()
        self._latest = stop
        stop = self._without_loss(start, stop)
        begun = start | self._begins_of_new(start, stop)
        available = sum(max(stop[key] - begun[key], 0) for key in stop)
        if waits and self._is_too_early(available):
            return start
        if most is not None:
            stop = limit_batch(begun, stop, most)
        if available:
            self._last_batch_s = time.monotonic()
        return stop

    def _check_checkpoint(self, start: Offsets) -> None:
        """Raise OptionError if the checkpoint shares no topic with the query."""
        topics = self._options.subscription.topics or tuple(self._options.subscription.assigned or ())
        checkpoint_topics = sorted({topic for topic, _ in start})
        if checkpoint_topics and topics and not set(checkpoint_topics) & set(topics):
            raise OptionError(
                "checkpointLocation",
                f"the checkpoint belongs to a query that reads {', '.join(checkpoint_topics)}, but this query reads "
                f"{', '.join(topics)}; use a new checkpoint",
            )

    def latest(self) -> Offsets:
        """Return the ends of the partitions as of the last micro-batch that was planned."""
        return self._latest

    def plan(self, start: Offsets, stop: Offsets) -> list[Range]:
        """Return the ranges of a micro-batch; the same for the same offsets, also after a restart."""
        begun = start | self._begins_of_new(start, stop)
        return _split(self._options, ranges_between(begun, stop))

    def _ends(self) -> Offsets:
        return self._cluster.ends(self._cluster.partitions(self._options.subscription))

    def _is_too_early(self, available: int) -> bool:
        least = self._options.min_offsets
        if least is None or self._target is not None or available >= least:
            return False
        return time.monotonic() - self._last_batch_s < self._options.max_delay_s

    def _without_loss(self, start: Offsets, stop: Offsets) -> Offsets:
        """Return the ends with none before `start`; report data loss if a partition shrank or is gone."""
        ends = dict(stop)
        for key, offset in start.items():
            if key not in stop:
                _report_loss(
                    self._options,
                    f"{partition_label(*key)}: the partition no longer exists, but the query is at offset {offset}",
                )
            elif stop[key] < offset:
                _report_loss(
                    self._options,
                    f"{partition_label(*key)}: it ends at offset {stop[key]}, but the query is at offset {offset}. "
                    "The topic was probably recreated",
                )
                ends[key] = offset
        return ends

    def _begins_of_new(self, start: Offsets, stop: Offsets) -> Offsets:
        """Return the first offsets of partitions that were added since; the query reads them from the beginning."""
        begins = self._cluster.begins([key for key in stop if key not in start])
        for key, offset in begins.items():
            if offset > 0 and start:
                _report_loss(
                    self._options,
                    f"{partition_label(*key)}: the partition is new and begins at offset {offset}; "
                    "earlier records were deleted before the query read them",
                )
        return begins

    def _commit_finished(self, start: Offsets) -> None:
        group = self._options.client.group_id
        if group is None or start == self._finished:
            return
        try:
            self._cluster.run(commit_offsets(self._cluster.async_cluster, group, start))
            self._finished = start
        except ApiError as error:
            # A deleted topic is reported as data loss when its partitions are planned.
            if not (is_transient(error) or isinstance(error, UnknownTopicOrPartition)):
                raise OptionError("kafka.group.id", error.message) from error
            _log.warning(
                "cannot commit offsets of group %r: %s; retrying with the next micro-batch", group, error.message
            )
