"""Replication throttles: which replicas they hold back, and when."""

from collections.abc import Iterator

import pytest

from ottla.metadata.image.changes import Changes
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.image import EMPTY, Image
from ottla.protocol.messages.records.metadata_records import ConfigRecord
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.replication.throttles import Rate, ReplicationThrottle
from tests.support.broker import BROKER_EPOCH, Broker
from tests.support.logs_in_memory import batch

TOPIC, BROKER = 2, 4


def changes(old: Image, *settings: tuple[int, str, str, str | None]) -> Changes:
    delta = Delta(old)
    for kind, resource, name, value in settings:
        delta.apply(ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))
    delta.finish(offset=old.offset + 1, epoch=1, timestamp=0)
    return delta.changes


class TestARate:
    def test_is_counted_over_the_time_that_passed(self) -> None:
        rate = Rate(windows=3, window_ms=1000)
        rate.add(500, 0)
        assert rate.per_second(0) == 500
        assert rate.per_second(2000) == 250

    def test_forgets_old_windows(self) -> None:
        rate = Rate(windows=3, window_ms=1000)
        rate.add(500, 0)
        rate.add(100, 1000)
        assert rate.per_second(3000) == 50
        assert rate.per_second(4000) == 0


class TestAThrottle:
    def throttle(self, *settings: tuple[int, str, str, str | None]) -> ReplicationThrottle:
        throttle = ReplicationThrottle("leader", 1, now_ms=lambda: 0)
        throttle.apply(changes(EMPTY, *settings))
        return throttle

    def test_holds_back_listed_replicas_of_this_broker_above_the_rate(self) -> None:
        throttle = self.throttle(
            (TOPIC, "t", "leader.replication.throttled.replicas", "0:1,1:2, 2:1"),
            (BROKER, "1", "leader.replication.throttled.rate", "1000"),
        )
        throttle.count("t", 0, 1000)
        throttle.count("t", 1, 1_000_000)  # that is not counted, as it is not listed
        assert not throttle.holds_back("t", 0)
        throttle.count("t", 2, 1)
        assert [throttle.holds_back("t", index) for index in range(3)] == [True, False, True]
        assert not throttle.holds_back("other", 0)

    def test_a_star_is_for_all_partitions(self) -> None:
        throttle = self.throttle(
            (TOPIC, "t", "leader.replication.throttled.replicas", "*"),
            (BROKER, "", "leader.replication.throttled.rate", "10"),
        )
        throttle.count("t", 77, 100)
        assert throttle.holds_back("t", 5)

    def test_without_a_rate_nobody_waits(self) -> None:
        throttle = self.throttle((TOPIC, "t", "leader.replication.throttled.replicas", "*"))
        throttle.count("t", 0, 1 << 40)
        assert not throttle.holds_back("t", 0)

    def test_settings_can_be_taken_back(self) -> None:
        first = changes(
            EMPTY,
            (TOPIC, "t", "leader.replication.throttled.replicas", "*"),
            (BROKER, "1", "leader.replication.throttled.rate", "1"),
        )
        throttle = ReplicationThrottle("leader", 1, now_ms=lambda: 0)
        throttle.apply(first)
        throttle.count("t", 0, 100)
        assert throttle.holds_back("t", 0)
        throttle.apply(changes(first.new, (TOPIC, "t", "leader.replication.throttled.replicas", None)))
        assert not throttle.holds_back("t", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


def test_a_throttled_follower_gets_nothing_until_it_is_in_sync(broker: Broker) -> None:
    broker.register(2)
    topic_id = broker.create_topic("t", replicas=(1, 2), isr=(1,))
    broker.append("t", 0, batch(b"v" * 100), batch(b"v" * 100))
    throttle = broker.node.leader_throttle = ReplicationThrottle("leader", 1, now_ms=broker.clock.now_ms)
    throttle.apply(
        changes(
            EMPTY,
            (TOPIC, "t", "leader.replication.throttled.replicas", "0:1"),
            (BROKER, "1", "leader.replication.throttled.rate", "50"),
        )
    )
    part = FetchPartition(partition=0, current_leader_epoch=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=BROKER_EPOCH),
        max_wait_ms=100,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[part])],
    )
    assert broker.send(request, 18).outcome == "answered", "the limit is not reached yet"
    waiting = broker.send(request, 18)
    assert waiting.outcome == "", "too much has gone out"
    broker.append("t", 0, batch(b"v"))
    assert waiting.outcome == ""
    broker.clock.pass_time(200)
    assert len(waiting.response.responses[0].partitions[0].records) == 0
    broker.change("t", isr=[1, 2])
    assert broker.send(request, 18).outcome == "answered", "who is in sync is never held back"
