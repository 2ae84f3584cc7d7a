"""Admin calls have the same results with Kafka and Ottla."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from ottla.client.admin import HIGH_WATERMARK, Admin
from ottla.client.cluster import Cluster
from ottla.client.config_calls import CLUSTER_DEFAULT, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from ottla.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, NO_OFFSET
from ottla.client.producer import Producer
from ottla.protocol.errors import (
    ApiError,
    BrokerNotAvailable,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    NoReassignmentInProgress,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

T = TypeVar("T")


def ask(address: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    async def main() -> T:
        async with Cluster(address) as cluster:
            return await work(Admin(cluster))

    return asyncio.run(main())


def test_a_topic_is_created_described_extended_and_deleted(address: str, topic: str) -> None:
    async def work(admin: Admin) -> None:
        created = await admin.create_topic(topic, partitions=2, replicas=1, settings={"retention.ms": "1234"})
        assert (created.name, created.partitions, created.replicas, len(created.id)) == (topic, 2, 1, 16)
        described = await admin.topic(topic)
        assert (described.id, described.is_internal, list(described.partitions)) == (created.id, False, [0, 1])
        assert {
            (partition.leader, partition.replicas, partition.isr, partition.offline)
            for partition in described.partitions.values()
        } == {(1, (1,), (1,), ())}
        assert topic in [listed.name for listed in await admin.topics()]
        await admin.add_partitions(topic, 4)
        while len((await admin.topic(topic)).partitions) < 4:  # the broker learns of it a little later
            await asyncio.sleep(0.02)
        assert list((await admin.topic(topic)).partitions) == [0, 1, 2, 3]
        await admin.delete_topic(topic)
        while topic in [listed.name for listed in await admin.topics()]:
            await asyncio.sleep(0.02)
        with pytest.raises(UnknownTopicOrPartition, match=f"topic '{topic}': there is no such topic"):
            await admin.topic(topic)

    ask(address, work)


def test_replicas_can_be_assigned_manually(address: str, topic: str) -> None:
    async def work(admin: Admin) -> None:
        created = await admin.create_topic(topic, assignment=[[1], [1], [1]])
        assert created.partitions == 3

    ask(address, work)


def test_a_dry_run_creates_nothing(address: str, topic: str) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic(topic, validate_only=True)
        assert topic not in [listed.name for listed in await admin.topics()]

    ask(address, work)


def test_errors_name_the_topic(address: str, topic: str) -> None:
    async def refused(kind: type[ApiError], call: Awaitable[object]) -> None:
        with pytest.raises(kind, match=topic):
            await call

    async def work(admin: Admin) -> None:
        await admin.create_topic(topic)
        await refused(TopicAlreadyExists, admin.create_topic(topic))
        await refused(InvalidReplicationFactor, admin.create_topic(topic + "-2", replicas=2))
        await refused(InvalidConfig, admin.create_topic(topic + "-2", settings={"retention.ms": "soon"}))
        await refused(InvalidTopic, admin.create_topic(topic + "/"))
        await refused(InvalidPartitions, admin.add_partitions(topic, 1))
        await refused(UnknownTopicOrPartition, admin.delete_topic(topic + "-none"))
        await refused(UnknownTopicOrPartition, admin.offsets({(topic, 3): LATEST}))
        await refused(OffsetOutOfRange, admin.delete_records({(topic, 0): 5}))

    ask(address, work)


def test_settings_are_changed_incrementally(address: str, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)

    async def work(admin: Admin) -> None:
        await admin.create_topic(topic, settings={"retention.ms": "1234"})
        await admin.change_settings(
            resource,
            [("max.message.bytes", ConfigOperation.SET, "5000"), ("cleanup.policy", ConfigOperation.APPEND, "compact")],
        )
        settings = {setting.name: setting for setting in await admin.settings(resource)}
        assert settings["retention.ms"][1:3] == ("1234", ConfigSource.TOPIC)
        assert settings["max.message.bytes"][1:3] == ("5000", ConfigSource.TOPIC)
        assert settings["cleanup.policy"][1:3] == ("delete,compact", ConfigSource.TOPIC)
        assert settings["segment.bytes"].source is ConfigSource.DEFAULT
        await admin.change_settings(
            resource,
            [("retention.ms", ConfigOperation.UNSET, None), ("cleanup.policy", ConfigOperation.SUBTRACT, "delete")],
        )
        chosen = await admin.settings(resource, names=["retention.ms", "cleanup.policy"])
        assert [(setting.name, setting.value) for setting in chosen] == [
            ("cleanup.policy", "compact"),
            ("retention.ms", "604800000"),
        ]
        with pytest.raises(InvalidConfig, match=topic):
            await admin.change_settings(resource, [("segment.bytes", ConfigOperation.SET, "-3")])
        with pytest.raises(UnknownTopicOrPartition):
            await admin.settings(ConfigResource(ResourceType.TOPIC, topic + "-none"))

    ask(address, work)


def test_settings_of_brokers_come_from_file_cluster_or_broker(address: str) -> None:
    broker = ConfigResource(ResourceType.BROKER, "1")

    async def work(admin: Admin) -> None:
        (setting,) = await admin.settings(broker, names=["auto.create.topics.enable"])
        assert setting[1:4] == ("false", ConfigSource.FILE, True)
        await admin.change_settings(CLUSTER_DEFAULT, [("log.retention.ms", ConfigOperation.SET, "777000")])
        for _ in range(50):  # a broker learns of it a little later
            (setting,) = await admin.settings(broker, names=["log.retention.ms"])
            if setting.value == "777000":
                break
            await asyncio.sleep(0.1)
        assert setting[1:3] == ("777000", ConfigSource.CLUSTER)
        await admin.change_settings(CLUSTER_DEFAULT, [("log.retention.ms", ConfigOperation.UNSET, None)])
        with pytest.raises(BrokerNotAvailable, match="broker 9 is not running"):
            await admin.settings(ConfigResource(ResourceType.BROKER, "9"))

    ask(address, work)


def test_offsets_are_listed_by_end_and_timestamp_and_records_deleted(address: str, topic: str) -> None:
    async def work(admin: Admin) -> None:
        # The timestamps are old: without this setting, retention would delete the records.
        await admin.create_topic(topic, partitions=2, settings={"retention.ms": "-1"})
        async with Producer(admin.cluster) as producer:
            for number in range(10):
                await producer.send(topic, b"x", partition=0, timestamp_ms=1_000_000 + number * 10)
                await producer.flush()
        key, empty = (topic, 0), (topic, 1)

        async def offsets_at(timestamp: int) -> list[int]:
            offsets = await admin.offsets({key: timestamp, empty: timestamp})
            return [offsets[key].offset, offsets[empty].offset]

        assert await offsets_at(EARLIEST) == [0, 0]
        assert await offsets_at(LATEST) == [10, 0]
        assert await offsets_at(MAX_TIMESTAMP) == [9, NO_OFFSET]
        assert await offsets_at(1_000_000) == [0, NO_OFFSET]
        assert await offsets_at(1_000_041) == [5, NO_OFFSET]
        assert await offsets_at(2_000_000) == [NO_OFFSET, NO_OFFSET]
        assert await admin.delete_records({key: 4}) == {key: 4}
        assert await offsets_at(EARLIEST) == [4, 0]
        assert await admin.delete_records({key: HIGH_WATERMARK, empty: HIGH_WATERMARK}) == {key: 10, empty: 0}

    ask(address, work)


def test_the_cluster_describes_itself(address: str, topic: str) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic(topic)
        description = await admin.describe_cluster()
        assert description.cluster_id == "b3R0bGEtaW50ZXJvcC0xMA"
        assert [(str(broker.address), broker.id, broker.is_fenced) for broker in description.brokers] == [
            (address, 1, False)
        ]
        levels = {feature.name: feature.level for feature in await admin.features()}
        assert levels["metadata.version"] >= 25
        quorum = await admin.quorum()
        assert (quorum.leader_id, [member.id for member in quorum.members if member.is_voter]) == (1, [1])
        (directory,) = (await admin.log_dirs(topics=[topic]))[1]
        assert directory.error is None
        assert [replica.partition for replica in directory.replicas] == [(topic, 0)]
        assert directory.total_bytes > directory.usable_bytes > 0

    ask(address, work)


def test_an_election_does_not_move_replicas(address: str, topic: str) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic(topic)
        assert await admin.elect_leaders([(topic, 0)]) == {(topic, 0): None}
        assert await admin.reassign({(topic, 0): [1]}) == {(topic, 0): None}
        assert await admin.reassignments() == {}
        cancelled = await admin.reassign({(topic, 0): None})
        assert isinstance(cancelled[topic, 0], NoReassignmentInProgress)

    ask(address, work)
