"""Cross-checks of a node's settings, as Kafka makes before a broker or controller starts.

Each error names one setting and the setting that it conflicts with. `doubtful_settings` yields what Kafka only logs.
"""

import re
from collections.abc import Iterator
from typing import Final

from ottla.config.listeners import ALL_INTERFACES, SecurityProtocol, SettingConflict
from ottla.config.node_settings import LISTENER_LIMITS, NodeSettings, ProcessRole
from ottla.config.settings.catalogue import broker_settings
from ottla.node.access_control import standard_authorizer
from ottla.protocol.wire.compression import Compression
from ottla.replication.replica_selector import RACK_AWARE

_host = re.compile(r"[0-9a-zA-Z\-%._:]*").fullmatch
_MIB: Final = 1 << 20
_MAX_INT32: Final = (1 << 31) - 1
_SASL: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

# The first setting of each pair must not exceed the second.
_UPPER_BOUNDS: Final = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),  # otherwise sockets time out between fetches
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),  # otherwise idle replicas leave the ISR
    *(
        (f"group.{kind}.{lower}{name}", f"group.{kind}.{upper}{name}")
        for kind in ("consumer", "share", "streams")
        for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
        for lower, upper in (("min.", "max."), ("min.", ""), ("", "max."))
    ),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    *(
        (f"group.share.{lower}{name}", f"group.share.{upper}{name}")
        for name in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms")
        for lower, upper in (("min.", ""), ("", "max."))
    ),
    ("group.share.max.size", "group.share.max.share.sessions"),
)


def check_consistency(settings: NodeSettings) -> None:
    """Raise SettingConflict for the first conflict."""
    _check_identity(settings)
    _check_logs(settings)
    _check_numbers(settings)
    _check_groups(settings)
    _check_network(settings)
    _check_quorum(settings)
    if settings.is_controller:
        _check_controller(settings)
    else:
        _check_broker_alone(settings)
    if settings.is_broker:
        _check_broker(settings)
    _check_advertised_hosts(settings)
    _check_sasl(settings)
    standard_authorizer(settings)
    for listener in settings.listeners:
        _check_limits_of(settings, listener.name)


def doubtful_settings(settings: NodeSettings) -> Iterator[str]:
    """Yield warnings about settings that work but are probably mistakes."""
    interval, timeout = settings.number("broker.heartbeat.interval.ms"), settings.number("broker.session.timeout.ms")
    if interval * 2 > timeout:
        yield (
            f"broker.heartbeat.interval.ms={interval} is more than half of broker.session.timeout.ms={timeout}: one"
            " lost heartbeat may fence the broker; use a shorter interval"
        )
    for name in _JAVA_ONLY:
        if settings[name] != broker_settings()[name].default_value:
            yield f"{name}={settings[name]} names a Java class, which Ottla does not run; the setting is ignored"
    (assignor,) = _items(settings, "group.share.assignors")
    if assignor not in _SHARE_ASSIGNORS:
        yield f"group.share.assignors={assignor} names a Java class, which Ottla does not run; simple is used instead"
    if settings.roles == {ProcessRole.BROKER}:
        if len(settings.controller_listener_names) > 1:
            yield "controller.listener.names: a broker uses only the first name"
        for name in _CONTROLLER_ONLY:
            if name in settings.given:
                yield f"{name} applies only to controllers, and this node is a broker; the setting is ignored"


_JAVA_ONLY: Final = (
    "client.quota.callback.class",
    "principal.builder.class",
)
"""Kafka's extension points that Ottla does not support."""
_SHARE_ASSIGNORS: Final = ("simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor")
_CONTROLLER_ONLY: Final = (
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
    "num.partitions",
    "default.replication.factor",
)


def _items(settings: NodeSettings, name: str) -> tuple[str, ...]:
    items = settings[name]
    assert isinstance(items, tuple)
    return items


def _require(is_valid: bool, name: str, reason: str) -> None:
    if not is_valid:
        raise SettingConflict(name, reason)


def _check_identity(settings: NodeSettings) -> None:
    broker_id = settings.number("broker.id")
    _require(broker_id == settings.node_id, "broker.id", f"must be the same as node.id, {settings.node_id}")


def _check_logs(settings: NodeSettings) -> None:
    for name, least in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = settings[name]
        _require(not isinstance(value, int) or value >= least, name, f"must be at least {least}")
    units = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    name = next(name for name in units if settings[name] is not None)
    _require(settings.retention_ms != 0, name, "must be at least 1, or -1 for no limit")
    threads, buffer = settings.number("log.cleaner.threads"), settings.number("log.cleaner.dedupe.buffer.size")
    _require(threads > 0, "log.cleaner.threads", "must be at least 1")
    _require(
        buffer // threads > _MIB,
        "log.cleaner.dedupe.buffer.size",
        f"must be more than 1 MiB for each of the {threads} cleaner threads",
    )
    cordoned = settings["cordoned.log.dirs"]
    assert isinstance(cordoned, tuple)
    if "*" in cordoned:
        _require(len(cordoned) == 1, "cordoned.log.dirs", "* means all directories and must be the only entry")
    else:
        given = settings["log.dirs"] or settings["log.dir"]
        assert isinstance(given, tuple)
        stray = [directory for directory in cordoned if directory not in given]
        _require(not stray, "cordoned.log.dirs", f"{', '.join(stray)} is not in log.dirs")


def _check_numbers(settings: NodeSettings) -> None:
    for name, most in _UPPER_BOUNDS:
        value, limit = settings.number(name), settings.number(most)
        if value > limit and most in settings.given and name not in settings.given:
            raise SettingConflict(
                most, f"must be at least {name}, which is {value}"
            )  # name the setting that the operator wrote
        _require(value <= limit, name, f"must not be more than {most}, which is {limit}")
    for kind in ("consumer", "share", "streams"):
        name, timeout = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        limit = settings.number(timeout)
        _require(settings.number(name) < limit, name, f"must be less than {timeout}, which is {limit}")


def _check_groups(settings: NodeSettings) -> None:
    assignors = _items(settings, "group.share.assignors")
    protocols = _items(settings, "group.coordinator.rebalance.protocols")
    _require(len(assignors) == 1, "group.share.assignors", f"must name one assignor, not {len(assignors)}")
    _require(
        "classic" in protocols,
        "group.coordinator.rebalance.protocols",
        "must include classic, which cannot be disabled",
    )
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        _require(
            settings.number(name) in {*Compression}, name, "must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)"
        )


def _check_network(settings: NodeSettings) -> None:
    queued, largest = settings.number("queued.max.request.bytes"), settings.number("socket.request.max.bytes")
    _require(
        queued <= 0 or queued >= largest,
        "queued.max.request.bytes",
        f"must be at least socket.request.max.bytes, which is {largest}",
    )
    overrides = settings.max_connections_per_ip_overrides
    _require(
        settings.number("max.connections.per.ip") > 0 or bool(overrides),
        "max.connections.per.ip",
        "can be 0 only if max.connections.per.ip.overrides allows some addresses",
    )
    invalid = [host for host in overrides if not _host(host)]
    _require(
        not invalid, "max.connections.per.ip.overrides", f"{', '.join(invalid)} is neither an address nor a host name"
    )
    delay = settings.number("connection.failed.authentication.delay.ms")
    idle = settings.number("connections.max.idle.ms")
    _require(
        idle < 0 or delay < idle,
        "connections.max.idle.ms",
        f"must be more than connection.failed.authentication.delay.ms, which is {delay}: otherwise clients are"
        " disconnected before they receive the authentication error",
    )
    early = settings["early.start.listeners"]
    names = {endpoint.name for endpoint in settings.listeners}
    stray = [name for name in early if name not in names] if isinstance(early, tuple) else []
    _require(not stray, "early.start.listeners", f"{', '.join(stray)} is not in listeners")


def _check_quorum(settings: NodeSettings) -> None:
    _require(
        bool(settings.quorum_voters or settings.quorum_bootstrap_servers),
        "controller.quorum.bootstrap.servers",
        "must name the controllers of the cluster, unless controller.quorum.voters is set",
    )


def _check_broker_alone(settings: NodeSettings) -> None:
    """Check a node that is only a broker."""
    node_id, names = settings.node_id, settings.controller_listener_names
    _require(
        node_id not in settings.quorum_voters,
        "controller.quorum.voters",
        f"must not include this node, {node_id}, which is not a controller",
    )
    here = [endpoint.name for endpoint in settings.controller_listeners]
    _require(
        not here,
        "controller.listener.names",
        f"{', '.join(here)} must not be in listeners, because this node is not a controller",
    )
    unmapped = [name for name in names if name.upper() not in settings.protocols]
    _require(
        not unmapped,
        "listener.security.protocol.map",
        f"must have the security protocol of {', '.join(unmapped)} in controller.listener.names",
    )
    _require(
        not settings.flag("controller.quorum.auto.join.enable"),
        "controller.quorum.auto.join.enable",
        "applies only to controllers, and this node is a broker",
    )


def _check_controller(settings: NodeSettings) -> None:
    voters, names = settings.quorum_voters, settings.controller_listener_names
    if not settings.is_broker:
        _require(
            len(settings.advertised_controllers) == len(settings.listeners),
            "listeners",
            "must be exactly those of controller.listener.names, because this node is not a broker",
        )
        _require(
            settings["inter.broker.listener.name"] is None or settings.inter_broker_listener_name not in names,
            "inter.broker.listener.name",
            "must not be a controller listener",
        )
    _require(
        not voters or settings.node_id in voters,
        "controller.quorum.voters",
        f"must include this node, {settings.node_id}, which is a controller",
    )
    here = [endpoint.name for endpoint in settings.listeners]
    missing = [name for name in names if name not in here]
    _require(
        not missing,
        "controller.listener.names",
        f"{', '.join(missing)} must be in listeners, which has {', '.join(here)}",
    )


def _check_broker(settings: NodeSettings) -> None:
    advertised = [endpoint.name for endpoint in settings.advertised]
    here = [endpoint.name for endpoint in settings.listeners]
    _require(
        bool(advertised),
        "advertised.listeners" if "advertised.listeners" in settings.given else "listeners",
        "a broker needs a listener for clients; all of these are controller listeners",
    )
    name = "inter.broker.listener.name"
    _require(
        settings.inter_broker_listener_name in advertised,
        name if settings[name] is not None else "security.inter.broker.protocol",
        f"{settings.inter_broker_listener_name} must be an advertised listener, one of {', '.join(advertised)};"
        " set inter.broker.listener.name",
    )
    _require(
        settings["replica.selector.class"] in (None, RACK_AWARE),
        "replica.selector.class",
        f"the only supported replica selector is {RACK_AWARE}",
    )
    stray = [name for name in advertised if name not in here]
    _require(
        not stray,
        "advertised.listeners",
        f"{', '.join(stray)} must be in listeners, which has {', '.join(here)}",
    )


def _check_advertised_hosts(settings: NodeSettings) -> None:
    everywhere = [
        endpoint.name
        for endpoint in (*settings.advertised, *settings.advertised_controllers)
        if endpoint.host == ALL_INTERFACES
    ]
    _require(
        not everywhere,
        "advertised.listeners",
        f"clients cannot connect to {ALL_INTERFACES}: give {', '.join(everywhere)} a host that they can reach",
    )


def _check_sasl(settings: NodeSettings) -> None:
    name = settings.inter_broker_listener_name
    if settings.protocols.get(name) not in _SASL:
        return
    enabled = settings["sasl.enabled.mechanisms"]
    own = settings.listener_settings.get(name, {}).get("sasl.enabled.mechanisms")
    if own is not None:
        enabled = tuple(mechanism.strip() for mechanism in own.split(","))
    mechanism = settings.text("sasl.mechanism.inter.broker.protocol")
    assert isinstance(enabled, tuple)
    _require(
        mechanism in enabled,
        "sasl.mechanism.inter.broker.protocol",
        f"{mechanism} is not enabled on {name}, so brokers could not connect to each other: add it to"
        " sasl.enabled.mechanisms",
    )


def _check_limits_of(settings: NodeSettings, listener: str) -> None:
    for name in LISTENER_LIMITS.values():
        text = settings.listener_settings.get(listener, {}).get(name)
        if text is not None and not (text.isdecimal() and 0 < int(text) <= _MAX_INT32):
            raise SettingConflict(
                f"listener.name.{listener.lower()}.{name}", f"must be a number from 1 to {_MAX_INT32}, not {text!r}"
            )
