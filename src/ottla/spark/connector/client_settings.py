"""The `kafka.*` options: settings of Kafka's clients, as Spark's connector passes them on.

The connector uses some of them. It accepts those that only tune the Java client without effect, so that a job can move
unchanged. It rejects those that would break a query or that this client cannot support.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.addresses import Address, InvalidAddress, parse_addresses
from ottla.protocol.wire.compression import LEVELS, Compression
from ottla.security.errors import InvalidSecurity
from ottla.security.settings import SECURITY_SETTINGS as SECURITY
from ottla.security.settings import Security, load_security
from ottla.spark.connector.option_values import OptionError, parse_boolean, parse_choice, parse_number

PREFIX: Final = "kafka."

_NO_EFFECT: Final = frozenset(
    [
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "buffer.memory",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    ]
)

_REFUSED: Final = {
    "auto.offset.reset": "the query keeps its own offsets; use startingOffsets",
    "enable.auto.commit": "the query commits offsets for kafka.group.id when a batch is finished",
    "key.deserializer": "keys are read as bytes; cast the column",
    "value.deserializer": "values are read as bytes; cast the column, or use value.format",
    "key.serializer": "keys are written as bytes; convert the column key",
    "value.serializer": "values are written as bytes; convert the column value",
    "interceptor.classes": "Java classes cannot be loaded here; remove the option",
    "partitioner.class": "Java classes cannot be loaded here; use the column partition",
    "partitioner.ignore.keys": "the partitioner cannot be changed; use the column partition",
    "transactional.id": "exactly-once writes choose their own ids; use transactionalIdPrefix",
}


_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
_COMPRESSIONS: Final = tuple(codec.name.lower() for codec in Compression)
_USED: Final = frozenset(
    [
        "acks",
        "batch.size",
        "bootstrap.servers",
        "client.id",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "default.api.timeout.ms",
        "delivery.timeout.ms",
        "enable.idempotence",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.request.size",
        "request.timeout.ms",
        "socket.connection.setup.timeout.ms",
        "transaction.timeout.ms",
    ]
)


class ClientSettings(NamedTuple):
    """The settings that the connector uses from the `kafka.*` options."""

    servers: tuple[Address, ...]
    security: Security
    client_id: str
    group_id: str | None
    committed: bool
    request_timeout_s: float
    api_timeout_s: float
    connect_timeout_s: float
    fetch_max_bytes: int
    partition_fetch_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_s: float
    acks: int
    compression: Compression
    compression_level: int | None
    batch_bytes: int
    max_request_bytes: int
    idempotent: bool
    delivery_timeout_s: float
    transaction_timeout_s: float


def parse_client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Parse the `kafka.*` options; raise OptionError for one that is unknown, unsupported or has an invalid value."""
    given = {name[len(PREFIX) :]: value for name, value in options.items() if name.startswith(PREFIX)}
    _refuse(given)
    if "bootstrap.servers" not in given:
        raise OptionError("kafka.bootstrap.servers", "is missing; give a broker's address, such as localhost:9092")
    try:
        servers = parse_addresses(given["bootstrap.servers"])
    except InvalidAddress as error:
        raise OptionError("kafka.bootstrap.servers", str(error)) from None

    def milliseconds(name: str, default: int) -> float:
        return parse_number(PREFIX + name, given.get(name, str(default)), least=0) / 1000

    def number(name: str, default: int, least: int = 1) -> int:
        return parse_number(PREFIX + name, given.get(name, str(default)), least=least)

    def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
        return parse_choice(PREFIX + name, given.get(name, default), allowed)

    compression = Compression[choice("compression.type", "none", tuple(_COMPRESSIONS)).upper()]
    return ClientSettings(
        servers=servers,
        security=_security(given),
        client_id=given.get("client.id", "ottla-spark"),
        group_id=given.get("group.id"),
        committed=choice("isolation.level", "read_committed", ("read_committed", "read_uncommitted"))
        == "read_committed",
        request_timeout_s=milliseconds("request.timeout.ms", 30_000),
        api_timeout_s=milliseconds("default.api.timeout.ms", 60_000),
        connect_timeout_s=milliseconds("socket.connection.setup.timeout.ms", 10_000),
        fetch_max_bytes=number("fetch.max.bytes", 50 << 20),
        partition_fetch_bytes=number("max.partition.fetch.bytes", 8 << 20),
        fetch_min_bytes=number("fetch.min.bytes", 1, 0),
        fetch_max_wait_s=milliseconds("fetch.max.wait.ms", 500),
        acks=_ACKS[choice("acks", "all", tuple(_ACKS))],
        compression=compression,
        compression_level=_level(given, compression),
        batch_bytes=number("batch.size", 256 << 10),
        max_request_bytes=number("max.request.size", 1 << 20),
        idempotent=parse_boolean("kafka.enable.idempotence", given.get("enable.idempotence", "true")),
        delivery_timeout_s=milliseconds("delivery.timeout.ms", 120_000),
        transaction_timeout_s=milliseconds("transaction.timeout.ms", 900_000),
    )


def _refuse(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _REFUSED:
            raise OptionError(PREFIX + name, f"cannot be set: {_REFUSED[name]}")
        if name not in _USED and name not in _NO_EFFECT and name not in SECURITY:
            raise OptionError(PREFIX + name, "Kafka's clients have no such setting; check its name")


def _security(given: Mapping[str, str]) -> Security:
    try:
        return load_security(given)
    except InvalidSecurity as error:
        raise OptionError(PREFIX + error.setting, error.reason) from None


def _level(given: Mapping[str, str], compression: Compression) -> int | None:
    name = f"compression.{compression.name.lower()}.level"
    if compression not in LEVELS or name not in given:
        return None
    least, most, default = LEVELS[compression]
    level = parse_number(PREFIX + name, given[name])
    if level != default and not least <= level <= most:
        raise OptionError(PREFIX + name, f"{level} is out of range; it must be from {least} to {most}")
    return level
