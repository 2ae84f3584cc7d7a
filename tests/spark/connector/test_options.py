"""Options are parsed, and a wrong one is reported with its name and value."""

import pytest

from ottla.protocol.wire.compression import Compression
from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.read_options import EARLIEST, LATEST, parse_read_options
from ottla.spark.connector.write_options import parse_write_options

BASE = {"kafka.bootstrap.servers": "one:1,two:2", "subscribe": "orders, payments"}


def test_defaults_are_those_of_sparks_connector_but_for_the_isolation_level() -> None:
    batch, stream = parse_read_options(BASE, streaming=False), parse_read_options(BASE, streaming=True)
    assert batch.subscription.topics == ("orders", "payments")
    assert (batch.start.everywhere, batch.end.everywhere, stream.start.everywhere) == (EARLIEST, LATEST, LATEST)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.max_delay_s == 900
    assert batch.client.committed
    assert [str(address) for address in batch.client.servers] == ["one:1", "two:2"]


def test_option_names_ignore_case() -> None:
    given = {
        "KAFKA.Bootstrap.Servers": "one:1",
        "SubscribePattern": "a.*",
        "FAILONDATALOSS": "False",
        "MinPartitions": "9",
    }
    options = parse_read_options(given, streaming=False)
    assert options.subscription.pattern == "a.*"
    assert not options.fail_on_data_loss
    assert options.min_partitions == 9


def test_a_timestamp_takes_precedence_over_offsets() -> None:
    given = BASE | {"startingOffsets": "earliest", "startingTimestamp": "5", "startingOffsetsByTimestamp": "{}"}
    assert parse_read_options(given, streaming=True).start.time == 5


def test_settings_of_the_java_client_are_accepted() -> None:
    given = BASE | {"kafka.max.poll.records": "7", "kafka.security.protocol": "PLAINTEXT", "kafka.group.id": "g"}
    assert parse_read_options(given, streaming=True).client.group_id == "g"
    writing = {
        "kafka.bootstrap.servers": "one:1",
        "kafka.compression.type": "zstd",
        "kafka.compression.zstd.level": "9",
    }
    client = parse_write_options(writing).client
    assert (client.compression, client.compression_level) == (Compression.ZSTD, 9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.bootstrap.servers": None}, "kafka.bootstrap.servers: is missing"),
        ({"kafka.bootstrap.servers": "host:port"}, "kafka.bootstrap.servers: 'host:port' is not an address"),
        (
            {"subscribe": None},
            "subscribe: nothing says which topics to read; set exactly one of assign, subscribe, subscribePattern",
        ),
        ({"assign": "{}"}, "subscribe: assign and subscribe exclude each other"),
        ({"subscribe": " , "}, "subscribe: ' , ' names no topic"),
        ({"subscribe": None, "assign": '{"t": [-1]}'}, "assign: topic 't': [-1] is not a list of partitions"),
        ({"subscribe": None, "assign": "t"}, "assign: 't' is not JSON"),
        ({"subscribe": None, "subscribePattern": "("}, "subscribePattern: '(' is not a regular expression"),
        ({"startingOffset": "earliest"}, "startingoffset: there is no such option; did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, "startingOffsets: a batch query cannot use latest here"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a batch query cannot use earliest here"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is not earliest, latest or JSON such as"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "topic 't', partition 0: offset -1 is not allowed here"),
        ({"startingOffsets": '{"t": {"0": "x"}}'}, "topic 't', partition 0: 'x' is not a whole number"),
        ({"startingOffsets": '{"t": 3}'}, "topic 't': 3 is not an object by partition"),
        ({"startingOffsets": '{"t": {"a": 3}}'}, "topic 't': 'a' is not the number of a partition"),
        ({"startingOffsets": '{"t"'}, "is not JSON"),
        ({"startingTimestamp": "noon"}, "startingTimestamp: 'noon' is not a whole number"),
        ({"minPartitions": "0"}, "minPartitions: 0 is too small: it must be at least 1"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is not allowed; use one of true, false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a duration"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger: 9 is more than maxOffsetsPerTrigger=8",
        ),
        (
            {"kafka.auto.offset.reset": "earliest"},
            "kafka.auto.offset.reset: cannot be set: the query keeps its own offsets; use startingOffsets",
        ),
        ({"kafka.group.idd": "g"}, "kafka.group.idd: Kafka's clients have no such setting"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol: must be one of PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism: GSSAPI (Kafka's default"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level: 'x' is not allowed; use one of read_committed"),
    ],
)
def test_a_wrong_source_option_is_reported(given: dict[str, str | None], message: str) -> None:
    options = {name: value for name, value in (BASE | given).items() if value is not None}
    with pytest.raises(OptionError) as caught:
        parse_read_options(options, streaming=False)
    assert message in str(caught.value)


def test_a_streaming_query_rejects_an_end() -> None:
    with pytest.raises(OptionError, match="endingTimestamp: a streaming query has no end"):
        parse_read_options(BASE | {"endingTimestamp": "5"}, streaming=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"guarantee": "twice"}, "guarantee: 'twice' is not allowed; use one of exactly-once, at-least-once"),
        ({"kafka.acks": "1"}, "kafka.acks: exactly-once writes require acks=all"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence: exactly-once writes require true"),
        ({"kafka.acks": "2"}, "kafka.acks: '2' is not allowed; use one of all, -1, 0, 1"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type: 'brotli' is not allowed; use one of none"),
        (
            {"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "11"},
            "11 is out of range; it must be from 1 to 9",
        ),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id: cannot be set"),
        ({"transactionalIdPrefix": "a/b"}, "transactionalIdPrefix: 'a/b' is not allowed"),
        ({"topic": ""}, "topic: is empty"),
    ],
)
def test_a_wrong_sink_option_is_reported(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_write_options({"kafka.bootstrap.servers": "one:1", "topic": "t"} | given)
    assert message in str(caught.value)
