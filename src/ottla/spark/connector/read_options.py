"""The options of a query that reads: those of Spark's Kafka connector, with their names, defaults and precedence."""

import difflib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.spark.connector.client_settings import PREFIX, ClientSettings, parse_client_settings
from ottla.spark.connector.option_values import (
    OptionError,
    parse_assignment,
    parse_boolean,
    parse_by_partition,
    parse_choice,
    parse_duration_s,
    parse_number,
)
from ottla.spark.connector.value_options import VALUE_OPTIONS, ValueOptions, parse_value_options

LATEST: Final = -1
EARLIEST: Final = -2

READ_OPTIONS: Final[Mapping[str, str]] = {
    "assign": 'The partitions to read, as JSON: `{"orders": [0, 1]}`.',
    "subscribe": "The topics to read, separated by commas.",
    ("subscribePattern"): (
        "A regular expression; every topic whose whole name matches is read, also topics created later."
    ),
    ("startingOffsets"): (
        'Where to start: `earliest`, `latest`, or JSON: `{"orders": {"0": 23, "1": -2}}` (-2 is earliest, -1 '
        "latest). Default: `latest` for a streaming query, `earliest` for a batch query. A checkpoint overrides "
        "it."
    ),
    ("startingTimestamp"): (
        "Start at the first record of each partition with this timestamp, in milliseconds, or a later one."
    ),
    "startingOffsetsByTimestamp": "Like `startingTimestamp`, with a timestamp for each partition, as JSON.",
    ("startingOffsetsByTimestampStrategy"): (
        "What to do if a partition has no record at or after the timestamp: `error` (default) fails the query, "
        "`latest` starts at the end."
    ),
    "endingOffsets": "Where a batch query ends: `latest` (default) or JSON.",
    "endingTimestamp": "End a batch query before the first record with this timestamp or a later one.",
    "endingOffsetsByTimestamp": "Like `endingTimestamp`, with a timestamp for each partition, as JSON.",
    ("failOnDataLoss"): (
        "Fail if records were deleted before the query read them (default: `true`). `false` logs a warning and "
        "continues with the remaining records."
    ),
    "includeHeaders": "Add the column `headers` (default: `false`).",
    "minPartitions": "Split the ranges of offsets into at least this number of tasks.",
    "maxRecordsPerPartition": "Split ranges so that no task reads more than this number of offsets.",
    "minOffsetsPerTrigger": "Delay a micro-batch until there are at least this many new offsets.",
    ("maxOffsetsPerTrigger"): (
        "Read at most this number of offsets in a micro-batch, shared among the partitions by their lag."
    ),
    ("maxTriggerDelay"): (
        "Start a micro-batch after this time even if `minOffsetsPerTrigger` is not reached (default: `15m`)."
    ),
    ("groupIdPrefix"): (
        "Accepted for compatibility. It has no effect: the source uses a group only if `kafka.group.id` names one."
    ),
    "kafkaConsumer.pollTimeoutMs": "Fail a task if it receives no records for this time (default: 120000).",
    "fetchOffset.numRetries": "Accepted for compatibility. It has no effect: requests are retried until they time out.",
    "fetchOffset.retryIntervalMs": "Accepted for compatibility. It has no effect: requests are retried with backoff.",
}
"""The options of a source and their descriptions, as the reference shows them."""
WRITE_OPTIONS: Final[Mapping[str, str]] = {
    "topic": "The topic to write to. Without it, each row names its topic in the column `topic`.",
    "guarantee": "`exactly-once` (default) writes each micro-batch in transactions; `at-least-once` uses none.",
    "transactionalIdPrefix": "Prefix of the transactional ids of an exactly-once sink (default: `ottla-spark`).",
    ("decisionsTopic"): (
        "The compacted topic in which an exactly-once sink records its commits (default: `ottla-spark-decisions`)."
    ),
    "checkpointLocation": "The checkpoint of a streaming query, as for every Spark sink.",
    "queryName": "The name of a streaming query, as for every Spark sink.",
}
"""The options of a sink and their descriptions."""
_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
_ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


class Position(NamedTuple):
    """Where a query starts or ends: EARLIEST or LATEST, an offset or a time for each partition, or one time for all."""

    option: str
    everywhere: int | None = None
    offsets: Mapping[str, Mapping[int, int]] | None = None
    times: Mapping[str, Mapping[int, int]] | None = None
    time: int | None = None


class Subscription(NamedTuple):
    """The topics and partitions of a query. Exactly one field is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, list[int]] | None = None


class ReadOptions(NamedTuple):
    """The parsed options of a query that reads."""

    client: ClientSettings
    subscription: Subscription
    start: Position
    end: Position
    latest_if_no_time: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    min_offsets: int | None
    max_offsets: int | None
    max_delay_s: float
    poll_timeout_s: float
    values: ValueOptions | None = None


def check_names(options: Mapping[str, str]) -> None:
    """Raise OptionError for an unknown option. `options` has lower-case names: Spark's options ignore case."""
    names = {name.lower(): name for name in (*READ_OPTIONS, *WRITE_OPTIONS, *VALUE_OPTIONS)}
    for name in options:
        if name not in names and not name.startswith(PREFIX):
            similar = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {names[similar[0]]}?" if similar else ""
            raise OptionError(name, f"there is no such option{hint}")


def parse_read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a batch or streaming query; raise OptionError for the first one that is wrong."""
    options = {name.lower(): value for name, value in given.items()}
    check_names(options)

    def number(name: str) -> int | None:
        text = options.get(name.lower())
        return None if text is None else parse_number(name, text, least=1)

    if streaming:
        for name in _ENDINGS:
            if name.lower() in options:
                raise OptionError(name, "a streaming query has no end; remove the option, or use spark.read")
    least, most = number("minOffsetsPerTrigger"), number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger={most}")
    strategy = options.get("startingoffsetsbytimestampstrategy", "error")
    return ReadOptions(
        client=parse_client_settings(options),
        subscription=_subscription(options),
        start=_position(options, "starting", LATEST if streaming else EARLIEST, streaming=streaming),
        end=_position(options, "ending", LATEST, streaming=streaming),
        latest_if_no_time=parse_choice("startingOffsetsByTimestampStrategy", strategy, ("error", "latest")) == "latest",
        fail_on_data_loss=parse_boolean("failOnDataLoss", options.get("failondataloss", "true")),
        include_headers=parse_boolean("includeHeaders", options.get("includeheaders", "false")),
        min_partitions=number("minPartitions"),
        max_records_per_partition=number("maxRecordsPerPartition"),
        min_offsets=least,
        max_offsets=most,
        max_delay_s=parse_duration_s("maxTriggerDelay", options.get("maxtriggerdelay", "15m")),
        poll_timeout_s=parse_number(
            "kafkaConsumer.pollTimeoutMs", options.get("kafkaconsumer.polltimeoutms", "120000"), least=1
        )
        / 1000,
        values=parse_value_options(options),
    )


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in _SUBSCRIPTIONS if name.lower() in options]
    if len(given) != 1:
        problem = " and ".join(given) + " exclude each other" if given else "nothing says which topics to read"
        raise OptionError("subscribe", f"{problem}; set exactly one of {', '.join(_SUBSCRIPTIONS)}")
    text = options[given[0].lower()]
    if given[0] == "assign":
        return Subscription(assigned=parse_assignment("assign", text))
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError("subscribePattern", f"{text!r} is not a regular expression: {error}") from None
        return Subscription(pattern=text)
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise OptionError("subscribe", f"{text!r} names no topic; give names separated by commas")
    return Subscription(topics=topics)


def _position(options: Mapping[str, str], side: str, default: int, *, streaming: bool) -> Position:
    """Parse a start or end. One timestamp precedes timestamps by partition, and those precede offsets."""
    if (text := options.get(f"{side}timestamp")) is not None:
        return Position(f"{side}Timestamp", time=parse_number(f"{side}Timestamp", text, least=0))
    name = f"{side}OffsetsByTimestamp"
    if (text := options.get(name.lower())) is not None:
        return Position(name, times=parse_by_partition(name, text))
    name = f"{side}Offsets"
    text = options.get(name.lower())
    if text is None:
        return Position(name, everywhere=default)
    # A batch that starts at its end, or ends at its start, is a mistake.
    forbidden = None if streaming else ("latest", LATEST) if side == "starting" else ("earliest", EARLIEST)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        if forbidden and word == forbidden[0]:
            raise OptionError(name, f"a batch query cannot use {word} here, because it would read nothing")
        return Position(name, everywhere=EARLIEST if word == "earliest" else LATEST)
    if not word.startswith("{"):
        raise OptionError(name, f'{text!r} is not earliest, latest or JSON such as {{"topic": {{"0": 23, "1": -2}}}}')
    offsets = parse_by_partition(name, text)
    for topic, numbers in offsets.items():
        for partition, offset in numbers.items():
            if offset < EARLIEST or (forbidden and offset == forbidden[1]):
                raise OptionError(name, f"topic {topic!r}, partition {partition}: offset {offset} is not allowed here")
    return Position(name, offsets=offsets)
