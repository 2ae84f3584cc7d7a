"""Share groups over several brokers: leaders and both coordinators are on different nodes, and some nodes die."""

import asyncio
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer

from ottla.client.cluster import Cluster
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.ottla_cluster import OttlaCluster
from tests.unit.coordinators.share.consumer import ShareConsumer, Where

TOPIC, GROUP = "t", "g"
GROUP_RESOURCE = 32
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "2000",
}
RECORDS = 200
LONGEST_S = 60.0


class Observer:
    """The deliveries and acceptances of each record."""

    def __init__(self) -> None:
        self.times: Counter[Where] = Counter()
        self.values: dict[Where, bytes] = {}
        self.accepted: set[Where] = set()
        self.too_late: list[Where] = []
        """Records delivered after a broker had confirmed their acceptance."""

    def delivered(self, where: Where, value: bytes) -> None:
        self.times[where] += 1
        self.values[where] = value
        if where in self.accepted:
            self.too_late.append(where)


async def read_all(address: str, observer: Observer, total: int) -> None:
    async def member() -> None:
        async with Cluster(address, request_timeout_s=5) as cluster:
            consumer = ShareConsumer(
                cluster, GROUP, TOPIC, delivered=observer.delivered, accepted=observer.accepted.add
            )
            await consumer.run(lambda: len(observer.accepted) >= total)

    async with asyncio.timeout(LONGEST_S):
        await asyncio.gather(*(member() for _ in range(3)))


async def read_from_the_beginning(address: str) -> None:
    async with Cluster(address) as cluster:
        config = AlterableConfig(name="share.auto.offset.reset", value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=[config])
        await cluster.send(IncrementalAlterConfigsRequest(resources=[resource]))


def produce(cluster: OttlaCluster, first: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.address, "linger.ms": 1})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=number % 3)
    assert producer.flush(30) == 0


def test_every_record_is_accepted_once_while_brokers_die(tmp_path: Path) -> None:
    observer = Observer()
    with OttlaCluster(tmp_path, settings=SETTINGS, tolerant=True).running() as cluster:
        cluster.ask(lambda admin: admin.create_topic(TOPIC, partitions=3, replicas=3))
        asyncio.run(read_from_the_beginning(cluster.address))
        produce(cluster, 0)
        asyncio.run(read_all(cluster.address, observer, RECORDS))
        victim = cluster.ask(lambda admin: admin.topic(TOPIC)).partitions[0].leader
        cluster.kill(victim)
        produce(cluster, RECORDS)
        asyncio.run(read_all(cluster.address, observer, 2 * RECORDS))
        cluster.start(victim)
    assert not observer.too_late
    assert sorted(int(value) for value in observer.values.values()) == list(range(2 * RECORDS))
