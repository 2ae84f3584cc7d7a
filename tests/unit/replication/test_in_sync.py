"""A leader and its followers: the ISR, the high watermark, and proposals to the controller."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.protocol.errors import (
    ApiError,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OperationNotAttempted,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
)
from ottla.protocol.messages.rpc.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partition import Partition
from tests.support.broker import BROKER_EPOCH, ME, Broker
from tests.support.logs_in_memory import batch

LAG_MS = 1000


class Bench:
    """Broker 1 leads a partition that brokers 2 and 3 have too; the test is the controller."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), partitions: int = 1) -> None:
        self.broker = Broker()
        self.broker.register(2)
        self.broker.register(3)
        self.requests: list[AlterPartitionRequest] = []
        self._answered: Callable[[Any], None] | None = None
        self._failed: Callable[[ApiError], None] | None = None
        self.changes = IsrChanges(
            ME,
            self._send,
            broker_epoch=lambda: BROKER_EPOCH,
            call_later=self.broker.clock.call_later,
            completions=self.broker.completions,
        )
        rules = self.broker.partitions.rules
        rules.propose, rules.max_lag_ms = self.changes.submit, LAG_MS
        self.broker.create_topic("t", replicas=(1, 2, 3), isr=isr, partitions=partitions)

    @property
    def partition(self) -> Partition:
        return self.broker.partition("t")

    @property
    def high_watermark(self) -> int:
        return self.partition.log.high_watermark

    def append(self, count: int = 1, number: int = 0) -> None:
        for _ in range(count):
            self.broker.append("t", number, batch(b"v"))

    def fetch(self, follower: int, offset: int, *, epoch: int = BROKER_EPOCH, number: int = 0) -> None:
        """A follower fetches, and so has everything before an offset."""
        self.broker.partition("t", number).on_follower_fetch(
            follower, offset, 0, self.broker.clock.ms, broker_epoch=epoch
        )
        self.broker.completions.run()

    def settle(self, ms: int = 0) -> None:
        self.broker.clock.pass_time(ms)

    def proposed(self) -> list[int]:
        """The ISR of the next request, which must be there."""
        self.settle()
        (topic,) = self.requests[-1].topics
        return [each.broker_id for each in topic.partitions[0].new_isr_with_epochs]

    def decide(self, *isr: int, epoch: int = 1, leader_epoch: int = 0, error: type[ApiError] | None = None) -> None:
        part = ResponsePartitionData(
            leader_id=ME,
            leader_epoch=leader_epoch,
            isr=list(isr),
            partition_epoch=epoch,
            error_code=error.code if error else 0,
        )
        topic = ResponseTopicData(topic_id=self.broker.image.topics["t"].id, partitions=[part])
        answered, self._answered = self._answered, None
        assert answered is not None, "nothing was asked"
        answered(AlterPartitionResponse(topics=[topic]))

    def refuse(self, error: ApiError) -> None:
        failed, self._answered = self._failed, None
        assert failed is not None
        failed(error)

    def _send(
        self, request: AlterPartitionRequest, answered: Callable[[Any], None], failed: Callable[[ApiError], None]
    ) -> None:
        assert self._answered is None, "one request at a time"
        self.requests.append(request)
        self._answered, self._failed = answered, failed


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.broker.close()


@pytest.fixture
def two() -> Iterator[Bench]:
    """Of three replicas, the one on broker 3 is not in sync."""
    bench = Bench(isr=(1, 2))
    yield bench
    bench.broker.close()


class TestTheHighWatermark:
    def test_is_what_all_in_sync_replicas_have(self, bench: Bench) -> None:
        bench.append(3)
        assert bench.high_watermark == 0
        bench.fetch(2, 3)
        assert bench.high_watermark == 0
        bench.fetch(3, 2)
        assert bench.high_watermark == 2

    def test_does_not_wait_for_replicas_far_behind(self, two: Bench) -> None:
        two.append(3)
        two.fetch(2, 3)
        assert two.high_watermark == 3

    def test_waits_for_replicas_that_have_nearly_caught_up(self, two: Bench) -> None:
        two.append()
        two.fetch(2, 1)
        two.fetch(3, 1)  # it has caught up, and is proposed
        two.settle()
        two.decide(error=IneligibleReplica)
        two.append()
        two.fetch(2, 2)
        assert two.high_watermark == 1, "or the one that is about to join would never get in"
        two.settle(LAG_MS + 1)
        two.fetch(2, 2)
        two.append()
        two.fetch(2, 3)
        assert two.high_watermark == 3

    def test_counts_proposed_replicas_until_the_controller_decides(self, two: Bench) -> None:
        two.fetch(3, 0)
        assert two.proposed() == [1, 2, 3]
        two.append()
        two.settle(LAG_MS + 1)
        two.fetch(2, 1)
        assert two.high_watermark == 0, "the controller may have taken it in already"
        two.decide(1, 2, 3)
        assert two.partition.isr == (1, 2, 3)
        two.fetch(3, 1)
        assert two.high_watermark == 1

    def test_counts_leaving_replicas_until_the_controller_decides(self, bench: Bench) -> None:
        bench.append()
        bench.fetch(2, 1)
        bench.settle(LAG_MS + 1)
        bench.fetch(2, 1)
        bench.broker.partitions.shrink(bench.broker.clock.ms)
        assert bench.proposed() == [1, 2]
        assert bench.high_watermark == 0
        bench.decide(1, 2)
        assert bench.high_watermark == 1

    def test_stays_where_it_is_with_too_few_in_sync(self, two: Bench) -> None:
        two.broker.apply(ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="3"))
        two.append()
        two.fetch(2, 1)
        assert two.high_watermark == 0
        two.broker.change("t", isr=[1, 2, 3])
        two.fetch(3, 1)
        assert two.high_watermark == 1

    def test_needs_no_more_replicas_than_there_are(self, bench: Bench) -> None:
        bench.broker.create_topic("single")
        bench.broker.apply(ConfigRecord(resource_type=2, resource_name="single", name="min.insync.replicas", value="2"))
        bench.broker.partition("single").append(batch(b"v"), acks=-1, now_ms=bench.broker.clock.ms)
        assert bench.broker.log("single").high_watermark == 1


class TestAcknowledgements:
    def test_too_few_in_sync_refuse_before_the_append(self, two: Bench) -> None:
        two.broker.apply(ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="3"))
        with pytest.raises(NotEnoughReplicas):
            two.partition.append(batch(b"v"), acks=-1, now_ms=two.broker.clock.ms)
        two.partition.append(batch(b"v"), acks=1, now_ms=two.broker.clock.ms)

    def test_too_few_in_sync_replicas_are_reported_after_the_append(self, bench: Bench) -> None:
        bench.append()
        bench.fetch(2, 1)
        bench.fetch(3, 1)
        assert bench.partition.has_replicated(1)
        bench.broker.apply(ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="3"))
        bench.broker.change("t", isr=[1, 2])
        with pytest.raises(NotEnoughReplicasAfterAppend):
            bench.partition.has_replicated(1)

    def test_a_dead_broker_leaves_the_isr_by_the_metadata(self, bench: Bench) -> None:
        bench.append()
        bench.fetch(2, 1)
        assert not bench.partition.has_replicated(1)
        bench.broker.change("t", isr=[1, 2])
        assert bench.partition.has_replicated(1)


class TestJoining:
    def test_a_follower_joins_at_the_high_watermark_and_the_epoch_start(self, two: Bench) -> None:
        two.append(2)
        two.fetch(2, 2)
        two.fetch(3, 1)
        two.settle()
        assert two.requests == []
        two.fetch(3, 2)
        assert two.proposed() == [1, 2, 3]
        (topic,) = two.requests[0].topics
        (part,) = topic.partitions
        assert [each.broker_epoch for each in part.new_isr_with_epochs] == [BROKER_EPOCH] * 3
        assert (part.leader_epoch, part.partition_epoch) == (0, 0)

    def test_the_epoch_start_counts_even_if_it_is_not_committed(self, two: Bench) -> None:
        two.append(2)
        two.broker.change("t", leader=1)
        two.fetch(3, 1)
        two.settle()
        assert two.requests == []
        two.fetch(3, 2)
        assert two.proposed() == [1, 2, 3]

    @pytest.mark.parametrize("change", [{"fenced": 1}, {"in_controlled_shutdown": 1}])
    def test_a_fenced_broker_does_not_join(self, two: Bench, change: dict[str, Any]) -> None:
        two.broker.apply(BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=BROKER_EPOCH, **change))
        two.fetch(3, 0)
        two.settle()
        assert two.requests == []

    def test_an_unfenced_broker_joins_without_another_fetch(self, two: Bench) -> None:
        two.broker.apply(BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=BROKER_EPOCH, fenced=1))
        two.fetch(3, 0)
        two.broker.apply(BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=BROKER_EPOCH, fenced=-1))
        assert two.proposed() == [1, 2, 3]

    def test_a_broker_joins_only_in_the_life_in_which_it_fetched(self, two: Bench) -> None:
        two.fetch(3, 0, epoch=BROKER_EPOCH + 1)  # its registration has not come here yet
        two.settle()
        assert two.requests == []
        with pytest.raises(NotLeader):
            two.fetch(3, 0, epoch=BROKER_EPOCH - 1)

    def test_an_unknown_replica_is_rejected(self, two: Bench) -> None:
        ask = {"max_bytes": 1000, "last_fetched_epoch": -1, "whole_first": True}
        with pytest.raises(UnknownLeaderEpoch):
            two.partition.read_for_follower(9, 0, leader_epoch=0, **ask)  # type: ignore[arg-type]
        with pytest.raises(NotLeader):
            two.partition.read_for_follower(9, 0, leader_epoch=-1, **ask)  # type: ignore[arg-type]


class TestLeaving:
    def test_a_replica_that_lags_for_too_long_leaves(self, bench: Bench) -> None:
        bench.append()
        bench.fetch(2, 1)
        bench.fetch(3, 0)
        bench.settle(LAG_MS + 1)
        bench.fetch(3, 0)
        bench.broker.partitions.shrink(bench.broker.clock.ms)
        assert bench.proposed() == [1, 2]

    def test_a_silent_replica_that_has_everything_stays(self, bench: Bench) -> None:
        bench.append()
        for follower in (2, 3):
            bench.fetch(follower, 1)
        bench.settle(10 * LAG_MS)
        bench.broker.partitions.shrink(bench.broker.clock.ms)
        bench.settle()
        assert bench.requests == []

    def test_a_replica_that_had_everything_at_its_previous_fetch_stays(self, bench: Bench) -> None:
        for offset in range(10):
            bench.append()
            bench.fetch(2, offset)
            bench.fetch(3, offset)
            bench.settle(LAG_MS // 2)
            bench.broker.partitions.shrink(bench.broker.clock.ms)
        assert bench.requests == []

    def test_a_new_leader_gives_its_followers_time(self, bench: Bench) -> None:
        bench.append()
        bench.settle(10 * LAG_MS)
        bench.broker.change("t", leader=2)
        bench.broker.change("t", leader=1)
        bench.broker.partitions.shrink(bench.broker.clock.ms)
        bench.settle()
        assert bench.requests == []


class TestProposals:
    @pytest.mark.parametrize("error", [OperationNotAttempted, IneligibleReplica])
    def test_a_refusal_leaves_things_as_they_were(self, two: Bench, error: type[ApiError]) -> None:
        two.fetch(3, 0)
        two.settle()
        two.decide(error=error)
        assert (two.partition.proposal, two.partition.isr) == (None, (1, 2))
        two.settle(1000)
        assert len(two.requests) == 1, "the next fetch may propose again"
        two.fetch(3, 0)
        two.settle()
        assert len(two.requests) == 2

    @pytest.mark.parametrize(
        "error",
        [
            FencedLeaderEpoch,
            InvalidUpdateVersion,
            InvalidRequest,
            NewLeaderElected,
            UnknownTopicId,
            UnknownTopicOrPartition,
        ],
    )
    def test_newer_metadata_replaces_outdated_proposals(self, two: Bench, error: type[ApiError]) -> None:
        two.fetch(3, 0)
        two.settle()
        two.decide(error=error)
        two.fetch(3, 0)
        two.settle(1000)
        assert len(two.requests) == 1
        assert two.partition.proposal is not None
        two.broker.change("t", isr=[1, 2, 3])
        assert two.partition.proposal is None

    @pytest.mark.parametrize("error", [NotController, UnknownServerError])
    def test_other_errors_are_retried(self, two: Bench, error: type[ApiError]) -> None:
        two.fetch(3, 0)
        two.settle()
        two.decide(error=error)
        two.settle(1000)
        assert len(two.requests) == 2
        two.decide(1, 2, 3)
        assert two.partition.isr == (1, 2, 3)

    @pytest.mark.parametrize("error", [NotController(""), StaleBrokerEpoch("")])
    def test_a_failed_request_is_retried(self, two: Bench, error: ApiError) -> None:
        two.fetch(3, 0)
        two.settle()
        two.refuse(error)
        two.settle(1000)
        assert len(two.requests) == 2

    def test_a_withdrawn_proposal_is_not_sent(self, two: Bench) -> None:
        two.fetch(3, 0)
        two.broker.change("t", leader=2)
        two.settle(1000)
        assert (two.requests, len(two.changes)) == ([], 0)

    def test_an_answer_may_be_ahead_of_the_metadata(self, two: Bench) -> None:
        two.fetch(3, 0)
        two.settle()
        two.decide(1, 2, 3, epoch=2)
        two.broker.change("t", isr=[1])  # partition epoch 1, which is older
        assert two.partition.isr == (1, 2, 3)
        two.broker.change("t", isr=[1, 2, 3])
        assert two.partition.assignment.partition_epoch == 2

    def test_an_answer_that_comes_too_late_changes_nothing(self, two: Bench) -> None:
        two.fetch(3, 0)
        two.settle()
        two.broker.change("t", isr=[1])
        two.decide(1, 2, 3, epoch=1)
        assert two.partition.isr == (1,)

    def test_metadata_of_an_answered_proposal_does_not_end_the_next_one(self, bench: Bench) -> None:
        bench.append()
        bench.settle(LAG_MS + 1)
        bench.broker.partitions.shrink(bench.broker.clock.ms)
        assert bench.proposed() == [1]
        bench.decide(1, epoch=1)
        bench.fetch(2, 1)
        assert bench.proposed() == [1, 2]
        bench.broker.change("t", isr=[1])
        assert bench.partition.proposal is not None
        bench.decide(1, 2, epoch=2)
        assert bench.partition.isr == (1, 2)

    def test_proposals_of_one_step_share_a_request(self) -> None:
        bench = Bench(isr=(1, 2), partitions=3)
        for number in range(3):
            bench.fetch(3, 0, number=number)
        bench.settle()
        (request,) = bench.requests
        assert [len(topic.partitions) for topic in request.topics] == [3]
        bench.broker.close()


def test_followers_keep_their_place_when_the_leader_is_elected_again(bench: Bench) -> None:
    bench.append(2)
    bench.fetch(2, 2)
    bench.fetch(3, 2)
    topic_id = bench.broker.image.topics["t"].id
    bench.broker.apply(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    bench.append()
    bench.fetch(2, 3)
    assert bench.high_watermark == 2
    bench.fetch(3, 3)
    assert bench.high_watermark == 3
