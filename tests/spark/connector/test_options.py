"""Options: what is understood, and what is said of what is not."""

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
    assert [str(each) for each in batch.client.servers] == ["one:1", "two:2"]


def test_names_of_options_have_no_case() -> None:
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


def test_a_time_goes_before_offsets() -> None:
    given = BASE | {"startingOffsets": "earliest", "startingTimestamp": "5", "startingOffsetsByTimestamp": "{}"}
    assert parse_read_options(given, streaming=True).start.time == 5


def test_client_settings_of_java_are_accepted() -> None:
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
    ("given", "said"),
    [
        ({"kafka.bootstrap.servers": None}, "kafka.bootstrap.servers: is missing"),
        ({"kafka.bootstrap.servers": "host:port"}, "kafka.bootstrap.servers: 'host:port' is not a host and a port"),
        (
            {"subscribe": None},
            "subscribe: one of assign, subscribe, subscribePattern says what to read; none was given",
        ),
        ({"assign": "{}"}, "assign and subscribe were given"),
        ({"subscribe": " , "}, "subscribe: no topic was given"),
        ({"subscribe": None, "assign": '{"t": [-1]}'}, "assign: topic 't': [-1] is not a list of partitions"),
        ({"subscribe": None, "assign": "t"}, "assign: 't' is not JSON"),
        ({"subscribe": None, "subscribePattern": "("}, "subscribePattern: '(' is not a regular expression"),
        ({"startingOffset": "earliest"}, "startingoffset: there is no such option; startingOffsets is one"),
        ({"startingOffsets": "latest"}, "startingOffsets: a batch query cannot have latest here"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a batch query cannot have earliest here"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is none of earliest, latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "topic 't', partition 0: offset -1 is not allowed here"),
        ({"startingOffsets": '{"t": {"0": "x"}}'}, "topic 't', partition 0: 'x' is not a whole number"),
        ({"startingOffsets": '{"t": 3}'}, "topic 't' has no numbers by partition"),
        ({"startingOffsets": '{"t": {"a": 3}}'}, "topic 't': 'a' is not a partition"),
        ({"startingOffsets": '{"t"'}, "is not JSON"),
        ({"startingTimestamp": "noon"}, "startingTimestamp: 'noon' is not a whole number"),
        ({"minPartitions": "0"}, "minPartitions: 0 is less than 1"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is none of true, false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a time"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger: 9 is more than"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset: cannot be set: use startingOffsets"),
        ({"kafka.group.idd": "g"}, "kafka.group.idd: Kafka's clients have no such setting"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol: must be one of PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism: GSSAPI (Kafka's default"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level: 'x' is none of read_committed, read_uncommitted"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str | None], said: str) -> None:
    options = {name: value for name, value in (BASE | given).items() if value is not None}
    with pytest.raises(OptionError) as caught:
        parse_read_options(options, streaming=False)
    assert said in str(caught.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="endingTimestamp: a streaming query has no end"):
        parse_read_options(BASE | {"endingTimestamp": "5"}, streaming=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guarantee": "twice"}, "guarantee: 'twice' is none of exactly-once, at-least-once"),
        ({"kafka.acks": "1"}, "kafka.acks: exactly-once needs all"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence: exactly-once needs it"),
        ({"kafka.acks": "2"}, "kafka.acks: '2' is none of all, -1, 0, 1"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type: 'brotli' is none of none, gzip"),
        ({"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "11"}, "11 is not within 1 to 9"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id: cannot be set"),
        ({"transactionalIdPrefix": "a/b"}, "transactionalIdPrefix: 'a/b' is empty, or has a slash"),
        ({"topic": ""}, "topic: is empty"),
    ],
)
def test_what_is_wrong_with_a_sink_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_write_options({"kafka.bootstrap.servers": "one:1", "topic": "t"} | given)
    assert said in str(caught.value)
