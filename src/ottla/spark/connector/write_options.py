"""The options of a query that writes: those of Spark's Kafka connector, and the delivery guarantee."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.spark.connector.client_settings import ClientSettings, parse_client_settings
from ottla.spark.connector.option_values import OptionError, parse_choice
from ottla.spark.connector.read_options import check_names

DECISIONS_TOPIC: Final = "ottla-spark-decisions"
_GUARANTEES: Final = ("exactly-once", "at-least-once")


class WriteOptions(NamedTuple):
    """The parsed options of a query that writes."""

    client: ClientSettings
    topic: str | None
    exactly_once: bool
    id_prefix: str
    decisions_topic: str


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a query that writes; raise OptionError for the first one that is wrong."""
    options = {name.lower(): value for name, value in given.items()}
    check_names(options)
    client = parse_client_settings(options)
    exactly_once = parse_choice("guarantee", options.get("guarantee", _GUARANTEES[0]), _GUARANTEES) == _GUARANTEES[0]
    if exactly_once and client.acks != -1:
        raise OptionError("kafka.acks", "exactly-once writes require acks=all; set it, or use guarantee=at-least-once")
    if exactly_once and not client.idempotent:
        raise OptionError(
            "kafka.enable.idempotence", "exactly-once writes require true; set it, or use guarantee=at-least-once"
        )
    if (topic := options.get("topic")) is not None and not topic:
        raise OptionError("topic", "is empty; name a topic, or remove the option and add a column 'topic'")
    prefix = options.get("transactionalidprefix", "ottla-spark")
    if not prefix or "/" in prefix:
        raise OptionError(
            "transactionalIdPrefix", f"{prefix!r} is not allowed: it must not be empty or contain a slash"
        )
    return WriteOptions(
        client=client,
        topic=topic,
        exactly_once=exactly_once,
        id_prefix=prefix,
        decisions_topic=options.get("decisionstopic", DECISIONS_TOPIC),
    )
