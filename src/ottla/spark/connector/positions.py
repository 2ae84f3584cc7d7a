"""Start and end positions of a query, resolved to offsets of the existing partitions."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ottla.client.metadata import TopicPartition, partition_label
from ottla.client.offsets import NO_OFFSET
from ottla.spark.connector.cluster import BlockingCluster
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.read_options import EARLIEST, LATEST, Position

Offsets: TypeAlias = dict[TopicPartition, int]


def resolve_position(
    cluster: BlockingCluster, position: Position, partitions: Iterable[TopicPartition], *, latest_if_no_time: bool
) -> Offsets:
    """Return the offset of each partition; raise OptionError if the option omits a partition or names another one."""
    keys = list(partitions)
    if position.everywhere is not None:
        offsets = dict.fromkeys(keys, position.everywhere)
    elif position.offsets is not None:
        offsets = _select_partitions(position.option, position.offsets, keys)
    else:
        times = dict.fromkeys(keys, position.time or 0)
        if position.times is not None:
            times = _select_partitions(position.option, position.times, keys)
        offsets = _look_up_times(cluster, position.option, times, latest_if_no_time=latest_if_no_time)
    begins = cluster.begins([key for key, offset in offsets.items() if offset == EARLIEST])
    ends = cluster.ends([key for key, offset in offsets.items() if offset == LATEST])
    return offsets | begins | ends


def _look_up_times(cluster: BlockingCluster, option: str, times: Offsets, *, latest_if_no_time: bool) -> Offsets:
    offsets = cluster.at_times(times)
    without_record = {key: times[key] for key, offset in offsets.items() if offset == NO_OFFSET}
    if without_record and not latest_if_no_time:
        key, time = next(iter(without_record.items()))
        raise OptionError(
            option,
            f"{partition_label(*key)} has no record with timestamp {time} or later; "
            "use an earlier timestamp, or startingOffsetsByTimestampStrategy=latest to start at the end",
        )
    return offsets | dict.fromkeys(without_record, LATEST)


def _select_partitions(option: str, given: Mapping[str, Mapping[int, int]], keys: list[TopicPartition]) -> Offsets:
    values = {(topic, partition): value for topic, numbers in given.items() for partition, value in numbers.items()}
    for key in keys:
        if key not in values:
            raise OptionError(
                option, f"{partition_label(*key)} is missing; add it (for offsets, -1 is latest and -2 earliest)"
            )
    for key in values:
        if key not in keys:
            raise OptionError(
                option, f"{partition_label(*key)} is not read by the query; remove it, or subscribe to it"
            )
    return {key: values[key] for key in keys}


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in the form of a checkpoint of Spark's connector: {"topic": {"0": 23}}."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def from_json(topics: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets of a checkpoint; raise OptionError if another kind of source wrote it."""
    try:
        offsets = {(topic, int(text)): offset for topic, numbers in topics.items() for text, offset in numbers.items()}
        if not all(isinstance(offset, int) for offset in offsets.values()):
            raise TypeError("an offset is a number")
    except (AttributeError, ValueError, TypeError):
        problem = f"the checkpoint belongs to a query with another source: it has {topics!r}; use a new checkpoint"
        raise OptionError("checkpointLocation", problem) from None
    return offsets
