"""Where a query starts and ends, as offsets of the partitions that there are."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ottla.client.metadata import TopicPartition, partition_label
from ottla.client.offsets import NO_OFFSET
from ottla.spark.connector.cluster import BlockingCluster
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.read_options import EARLIEST, LATEST, Position

Offsets: TypeAlias = dict[TopicPartition, int]


def resolve(
    access: BlockingCluster, position: Position, keys: Iterable[TopicPartition], *, latest_if_no_time: bool
) -> Offsets:
    """The offset of each partition; raises OptionError if the option says nothing of one, or speaks of another."""
    wanted = list(keys)
    if position.everywhere is not None:
        found = dict.fromkeys(wanted, position.everywhere)
    elif position.offsets is not None:
        found = _by_partition(position.option, position.offsets, wanted)
    else:
        times = dict.fromkeys(wanted, position.time or 0)
        if position.times is not None:
            times = _by_partition(position.option, position.times, wanted)
        found = _at_times(access, position.option, times, latest_if_no_time=latest_if_no_time)
    begins = access.begins([key for key, offset in found.items() if offset == EARLIEST])
    ends = access.ends([key for key, offset in found.items() if offset == LATEST])
    return found | begins | ends


def _at_times(access: BlockingCluster, option: str, times: Offsets, *, latest_if_no_time: bool) -> Offsets:
    found = access.at_times(times)
    beyond = {key: times[key] for key, offset in found.items() if offset == NO_OFFSET}
    if beyond and not latest_if_no_time:
        key, time = next(iter(beyond.items()))
        raise OptionError(
            option,
            f"{partition_label(*key)} has no record of time {time} or later; startingOffsetsByTimestampStrategy=latest "
            "starts at the end then",
        )
    return found | dict.fromkeys(beyond, LATEST)


def _by_partition(option: str, given: Mapping[str, Mapping[int, int]], keys: list[TopicPartition]) -> Offsets:
    flat = {(topic, partition): value for topic, values in given.items() for partition, value in values.items()}
    for key in keys:
        if key not in flat:
            raise OptionError(option, f"{partition_label(*key)} is missing; -1 is its latest offset, -2 its earliest")
    for key in flat:
        if key not in keys:
            raise OptionError(option, f"{partition_label(*key)} is not part of what the query reads")
    return {key: flat[key] for key in keys}


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as Spark's connector writes them to a checkpoint: {"topic": {"0": 23}}."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(given: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets from a checkpoint; raises OptionError for those of another source."""
    try:
        flat = {(topic, int(number)): offset for topic, numbers in given.items() for number, offset in numbers.items()}
        if not all(isinstance(offset, int) for offset in flat.values()):
            raise TypeError("an offset is a number")
    except (AttributeError, ValueError, TypeError):
        problem = f"it is that of a query with another source: it holds {given!r}"
        raise OptionError("checkpointLocation", problem) from None
    return flat
