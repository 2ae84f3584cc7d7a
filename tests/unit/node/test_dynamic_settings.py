"""Dynamic broker settings: which changes are accepted, and what they change."""

import asyncio
import weakref
from collections.abc import Mapping

import pytest

from ottla.broker.network.listener import ConnectionCounts, Listener
from ottla.broker.requests.request_workers import RequestWorkers
from ottla.config.listeners import ConnectionLimits
from ottla.config.node_settings import NodeSettings
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.values import ResourceType
from ottla.node.dynamic_settings import DynamicSettings
from ottla.node.maintenance import Maintenance
from ottla.node.reconfiguration import Reconfiguration
from ottla.node.settings_loader import load_settings
from ottla.protocol.errors import InvalidRequest
from ottla.protocol.messages.records.metadata_records import ConfigRecord, RemoveTopicRecord, TopicRecord
from ottla.replication.runtime import Runtime
from ottla.storage.compaction.scheduler import Compaction
from tests.support.logs_in_memory import NOW_MS, TOPIC_ID, make_logs
from tests.support.simulated_disk import SimulatedDisk

ME, ALL = "1", ""
FILE = {"num.io.threads": "8", "background.threads": "4", "log.retention.hours": "24", "log.dirs": "/one"}


def image_with(image: Image, broker: str, settings: Mapping[str, str | None]) -> Image:
    delta = Delta(image)
    for name, value in settings.items():
        delta.apply(ConfigRecord(resource_type=ResourceType.BROKER, resource_name=broker, name=name, value=value))
    return delta.finish(offset=image.offset + 1, epoch=1, timestamp=0)


class Running:
    """The dynamic settings of a node, and its current image."""

    def __init__(self, settings: NodeSettings) -> None:
        self.dynamic = DynamicSettings(settings)
        self.image = EMPTY
        self.changes: list[tuple[NodeSettings, NodeSettings]] = []
        self.dynamic.on_change.append(lambda old, new: self.changes.append((old, new)))

    def set(self, broker: str, settings: Mapping[str, str | None]) -> NodeSettings:
        old, self.image = self.image, image_with(self.image, broker, settings)
        self.dynamic.apply(Changes.between(old, self.image))
        return self.dynamic.current


@pytest.fixture
def running() -> Running:
    return Running(load_settings(None, FILE))


def test_a_brokers_own_setting_overrides_the_cluster_default(running: Running) -> None:
    assert running.set(ALL, {"num.io.threads": "6"}).num_io_threads == 6
    assert running.set(ME, {"num.io.threads": "10"}).num_io_threads == 10
    assert running.set(ME, {"num.io.threads": None}).num_io_threads == 6
    assert running.set(ALL, {"num.io.threads": None}).num_io_threads == 8
    assert [(old.num_io_threads, new.num_io_threads) for old, new in running.changes] == [
        (8, 6),
        (6, 10),
        (10, 6),
        (6, 8),
    ]


def test_settings_of_other_brokers_are_ignored(running: Running) -> None:
    assert running.set("2", {"num.io.threads": "6"}).num_io_threads == 8
    assert running.changes == []


def test_a_dynamic_setting_in_a_coarser_unit_overrides_the_file() -> None:
    running = Running(load_settings(None, {**FILE, "log.retention.ms": "5000"}))
    assert running.set(ALL, {"log.retention.hours": "1"}).retention_ms == 3_600_000


def test_an_invalid_stored_setting_is_ignored(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    settings = running.set(ALL, {"num.io.threads": "many", "background.threads": "5", "what.is.this": "x"})
    assert settings.num_io_threads == 8
    assert settings.number("background.threads") == 5
    assert not caplog.text


def test_conflicting_settings_change_nothing(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    assert running.set(ALL, {"log.cleaner.threads": "500", "num.io.threads": "9"}).num_io_threads == 8
    assert "log.cleaner.dedupe.buffer.size" in caplog.text


@pytest.mark.parametrize(
    ("broker", "settings", "words"),
    [
        (ME, {"broker.id": "2"}, "Cannot update these configs dynamically: [broker.id]"),
        (ALL, {"log.dirs": "/x", "process.roles": "broker"}, "dynamically: [log.dirs, process.roles]"),
        (ME, {"log.initial.task.delay.ms": "1"}, "Cannot update these configs dynamically"),
        (ME, {"ssl.keystore.location": "/x"}, "only per-listener"),
        (ALL, {"listener.name.plaintext.ssl.keystore.location": "/x"}, "broker id must be specified"),
        (ALL, {"listeners": "PLAINTEXT://:1"}, "broker id must be specified"),
        (ME, {"num.io.threads": "x"}, "Invalid value x for configuration num.io.threads: Not a number of type INT"),
        (ME, {"listener.name.plaintext.max.connections": "x"}, "Not a number"),
        (ME, {"num.io.threads": "0"}, "at least 1"),
        (ME, {"num.io.threads": "17"}, "not be greater than double the current value 8"),
        (ME, {"num.io.threads": "3"}, "at least half the current value 8"),
        (ALL, {"background.threads": "9"}, "double the current value 4"),
        (ALL, {"log.cleaner.threads": "0"}, "log.cleaner.threads"),
        (ALL, {"max.connections": "-1"}, "at least 0"),
        (ALL, {"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        (ALL, {"max.connections.per.ip.overrides": "bad"}, "max.connections.per.ip.overrides"),
        (ALL, {"max.connection.creation.rate": "0"}, "max.connection.creation.rate"),
        (ALL, {"log.local.retention.ms": "-1"}, "log.local.retention.ms"),
        (ALL, {"log.local.retention.bytes": "5", "log.retention.bytes": "4"}, "log.local.retention.bytes"),
        (ALL, {"metric.reporters": "no.such.Reporter"}, "metric.reporters"),
        (ME, {"cordoned.log.dirs": "/elsewhere"}, "cordoned.log.dirs"),
        (ME, {"leader.replication.throttled.rate": "-1"}, "at least 0"),
        (ME, {"log.roll.ms": "0"}, "log.roll.ms"),
    ],
)
def test_invalid_changes_are_refused(running: Running, broker: str, settings: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        running.dynamic.check(running.image, broker, settings)
    assert words in refusal.value.message


@pytest.mark.parametrize(
    ("broker", "settings"),
    [
        (ME, {"num.io.threads": "16"}),
        (ALL, {"num.io.threads": "4"}),
        (ALL, {"message.max.bytes": "2000000", "log.retention.ms": "1000", "min.insync.replicas": "2"}),
        (ALL, {"unclean.leader.election.enable": "true", "background.threads": "8"}),
        (ALL, {"max.connections": "10", "max.connection.creation.rate": "10"}),
        (ALL, {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"}),
        (ALL, {"listener.name.plaintext.max.connections": "10"}),
        (ME, {"listener.name.plaintext.ssl.keystore.location": "/x"}),
        (ME, {"follower.replication.throttled.rate": "1000", "nobody.knows.this": "x"}),
        (ME, {"cordoned.log.dirs": "*"}),
        (ALL, {"log.local.retention.ms": "1000"}),
        (ME, {}),
    ],
)
def test_valid_changes_are_accepted(running: Running, broker: str, settings: dict[str, str]) -> None:
    running.dynamic.check(running.image, broker, settings)


def test_a_change_is_checked_against_the_current_settings(running: Running) -> None:
    running.set(ALL, {"num.io.threads": "16"})
    running.dynamic.check(running.image, ME, {"num.io.threads": "32"})
    with pytest.raises(InvalidRequest):
        running.dynamic.check(running.image, ME, {"num.io.threads": "7"})


def test_a_brokers_own_setting_hides_an_invalid_default(running: Running) -> None:
    running.set(ME, {"num.io.threads": "8"})
    running.dynamic.check(running.image, ALL, {"num.io.threads": "1000"})


def test_changed_settings_reach_the_parts_of_a_node() -> None:
    loop = asyncio.new_event_loop()
    try:
        settings = load_settings(None, FILE)
        runtime = Runtime(loop, now_ms=lambda: NOW_MS)
        logs = make_logs(SimulatedDisk(seed=0), "/one")
        pools = [
            RequestWorkers(lambda request: None, role=role, workers=8, capacity=500, runtime=runtime)
            for role in ("broker", "controller")
        ]
        listener = Listener(
            loop,
            "PLAINTEXT",
            pools[0].request_channel,
            limits=ConnectionLimits(),
            counts=ConnectionCounts(),
            on_sent=lambda _: None,
        )
        compaction = Compaction(logs)
        upkeep = Maintenance(settings, runtime, logs, compaction, [listener])
        parts = Reconfiguration(pools, [listener], logs, compaction, upkeep)
        running = Running(settings)
        running.dynamic.on_change.append(parts.apply)
        running.set(
            ALL,
            {
                "num.io.threads": "5",
                "max.connections": "7",
                "max.connections.per.ip": "6",
                "max.connections.per.ip.overrides": "10.0.0.1:3",
                "max.connection.creation.rate": "9",
                "log.cleaner.dedupe.buffer.size": "5000000",
                "log.cleaner.io.max.bytes.per.second": "1000.0",
                "log.cleaner.io.buffer.load.factor": "0.5",
                "producer.id.expiration.ms": "1234",
            },
        )
        assert [pool.request_channel.workers for pool in pools] == [5, 5]
        assert listener.limits.max_connections == 7
        assert listener.limits.max_connections_per_ip == 6
        assert listener.limits.max_connections_per_ip_overrides == {"10.0.0.1": 3}
        assert listener.limits.max_creation_rate == 9
        assert (compaction.memory_bytes, compaction.bytes_per_second, compaction.load) == (5_000_000, 1000.0, 0.5)
        assert logs.directories[0].producer_expiration_ms == 1234
        running.set(ALL, dict.fromkeys(["log.cleaner.io.max.bytes.per.second", "max.connections"]))
        assert compaction.bytes_per_second == float("inf")
        assert listener.limits.max_connections == 2_147_483_647
    finally:
        loop.close()


def test_a_chore_runs_at_its_new_interval() -> None:
    async def scenario() -> int:
        runtime = Runtime(asyncio.get_running_loop(), now_ms=lambda: NOW_MS)
        passes = 0

        class Counted(Compaction):
            def start_next(self, now_ms: int) -> bool:
                nonlocal passes
                passes += 1
                return False

        logs = make_logs(SimulatedDisk(seed=0), "/one")
        upkeep = Maintenance(load_settings(None, FILE), runtime, logs, Counted(logs), [])
        upkeep.start()
        upkeep.change_interval("compaction", 0.005)
        await asyncio.sleep(0.1)
        upkeep.stop()
        return passes

    assert asyncio.run(scenario()) > 2


def test_settings_of_deleted_topics_are_not_cached(running: Running) -> None:
    """The cache is dropped with the image: an idle node must not hold the settings of thousands of deleted topics."""
    delta = Delta(EMPTY)
    delta.apply(TopicRecord(name="t", topic_id=TOPIC_ID))
    delta.apply(ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name="retention.ms", value="5"))
    with_topic = delta.finish(offset=1, epoch=1, timestamp=0)
    running.dynamic.apply(Changes.between(EMPTY, with_topic))
    assert running.dynamic.log_settings(with_topic, "t").retention_ms == 5
    delta = Delta(with_topic)
    delta.apply(RemoveTopicRecord(topic_id=TOPIC_ID))
    without = delta.finish(offset=2, epoch=1, timestamp=0)
    running.dynamic.apply(Changes.between(with_topic, without))
    kept = weakref.ref(with_topic.configs)
    del delta, with_topic
    assert kept() is None
    assert running.dynamic.log_settings(without, "t").retention_ms == 24 * 3_600_000
