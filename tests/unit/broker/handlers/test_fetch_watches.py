"""A fetch looks at the partitions that changed, and leaves nothing behind when it is over."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.protocol.errors import OffsetOutOfRange, UnknownTopicOrPartition
from ottla.protocol.messages.records.metadata_records import RemoveTopicRecord
from ottla.protocol.messages.rpc.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.storage.log.truncation import advance_log_start
from tests.support.broker import BROKER_EPOCH, Broker, Exchange
from tests.support.logs_in_memory import batch

VERSION = 17
WAIT_MS = 500
RECORD = batch(b"v" * 100)


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


class Reader:
    """A client that fetches one topic, with a session or without."""

    def __init__(self, broker: Broker, topic: str = "t", *, replica: int = -1, min_bytes: int = 1) -> None:
        self.broker = broker
        self.topic_id = broker.image.topics[topic].id
        self.session_id, self.epoch = 0, 0
        self.replica = replica
        self.min_bytes = min_bytes
        self.max_bytes = 1 << 20

    def open(self, offsets: dict[int, int]) -> dict[int, PartitionData]:
        """Open a session with a full fetch that does not wait."""
        answers, response = self._answers(self.send(offsets, wait_ms=0))
        self.session_id, self.epoch = response.session_id, 1
        return answers

    def send(self, offsets: dict[int, int] | None = None, *, wait_ms: int = WAIT_MS, **fields: Any) -> Exchange:
        """Send the session's next fetch, or a fetch without a session where none is open."""
        partitions = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number, offset in (offsets or {}).items()
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=partitions)] if partitions else [],
            **fields,
        )
        if self.replica >= 0:
            request.replica_state = ReplicaState(replica_id=self.replica, replica_epoch=BROKER_EPOCH)
        if self.epoch > 0:
            self.epoch += 1
        return self.broker.send(request, VERSION)

    def fetch(self, offsets: dict[int, int] | None = None, **fields: Any) -> dict[int, PartitionData]:
        """The partitions in the answer to a fetch that does not wait."""
        return self._answers(self.send(offsets, wait_ms=0, **fields))[0]

    def _answers(self, exchange: Exchange) -> tuple[dict[int, PartitionData], Any]:
        response = exchange.response
        assert not response.error_code
        return {part.partition_index: part for topic in response.responses for part in topic.partitions}, response


def steps(act: Callable[[], Any]) -> int:
    """How many functions are called in an act: what it costs, apart from noise."""
    calls = Counter[str]()

    def count(frame: Any, event: str, _: Any) -> None:
        calls[event] += 1

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls["call"]


def answered(exchange: Exchange) -> list[int]:
    return [part.partition_index for topic in exchange.response.responses for part in topic.partitions]


@pytest.mark.parametrize("replica", [-1, 2])
def test_a_session_costs_as_much_as_changed(broker: Broker, replica: int) -> None:
    costs = []
    for number, count in enumerate((3, 300)):
        broker.create_topic(f"t{number}", partitions=count, replicas=(1, 2))
        reader = Reader(broker, f"t{number}", replica=replica)
        reader.open(dict.fromkeys(range(count), 0))
        reader.fetch()

        def act(reader: Reader = reader, number: int = number) -> None:
            waiting = reader.send({1: broker.log(f"t{number}", 1).log_end_offset})
            assert not waiting.outcome
            broker.append(f"t{number}", 1, RECORD)
            broker.partition(f"t{number}", 1).on_follower_fetch(2, broker.log(f"t{number}", 1).log_end_offset, 0, 0)
            broker.completions.run()
            assert answered(waiting) == [1]

        act()
        costs.append(steps(act))
    assert costs[1] <= costs[0] * 1.05


@pytest.mark.parametrize("has_session", [False, True])
def test_fetches_that_waited_leave_nothing_behind(broker: Broker, has_session: bool) -> None:
    broker.create_topic("t", partitions=50)
    reader = Reader(broker)
    offsets = dict.fromkeys(range(50), 0)
    if has_session:
        reader.open(offsets)
    else:
        reader.epoch = -1

    def wait() -> None:
        exchange = reader.send(None if has_session else offsets)
        assert not exchange.outcome
        broker.clock.pass_time(WAIT_MS + 20)
        assert not exchange.response.error_code

    def live() -> Counter[str]:
        gc.collect()
        return Counter(type(each).__name__ for each in gc.get_objects())

    wait()
    before = live()
    for _ in range(20):
        wait()
    grown = live() - before
    for name in ("PartitionData", "CachedPartition", "FetchedPartitions", "_WaitingFetch", "_Reading", "FetchRequest"):
        assert grown[name] <= 1, f"{grown[name]} {name} more"
    assert len(broker.node.timer) == 0
    if not has_session:
        assert not any(broker.partition("t", number).consumer_watches for number in range(50))


def test_an_ended_session_is_not_notified(broker: Broker) -> None:
    broker.create_topic("t", partitions=3)
    reader, other = Reader(broker), Reader(broker)
    reader.open({0: 0, 1: 0, 2: 0})
    assert [len(broker.partition("t", number).consumer_watches) for number in range(3)] == [1, 1, 1]
    reader.fetch(forgotten_topics_data=[ForgottenTopic(topic_id=reader.topic_id, partitions=[1])])
    assert [len(broker.partition("t", number).consumer_watches) for number in range(3)] == [1, 0, 1]
    other.session_id, other.epoch = reader.session_id, -1
    other.fetch({0: 0})
    assert [len(broker.partition("t", number).consumer_watches) for number in range(3)] == [0, 0, 0]


def test_what_happens_to_a_partition_is_in_the_next_answer(broker: Broker) -> None:
    broker.create_topic("t", partitions=5, replicas=(1, 2), isr=(1,))
    broker.register(2)
    broker.append("t", 1, RECORD, RECORD)
    reader = Reader(broker)
    reader.open({0: 0, 1: 2, 2: 0, 3: 0, 4: 0})
    assert reader.fetch() == {}
    broker.append("t", 0, RECORD)
    assert list(reader.fetch()) == [0]
    assert list(reader.fetch()) == [0], "for as long as the client does not ask for what follows"
    assert reader.fetch({0: 1}) == {}
    advance_log_start(broker.log("t", 1), 1)
    assert {number: part.log_start_offset for number, part in reader.fetch().items()} == {1: 1}
    assert reader.fetch() == {}
    broker.change("t", 2, leader=2, isr=[1, 2])
    broker.change("t", 2, leader=1)
    assert reader.fetch() == {}, "it was led elsewhere in between, which is nothing to the client"
    broker.append("t", 2, RECORD)
    assert reader.fetch() == {}, "the follower does not have it"
    broker.partition("t", 2).on_follower_fetch(2, 1, 0, broker.clock.ms)
    broker.completions.run()
    assert list(reader.fetch()) == [2]


def test_a_waiting_fetch_learns_of_new_leaders_and_deleted_topics(broker: Broker) -> None:
    broker.create_topic("t", partitions=3)
    reader = Reader(broker)
    reader.open({0: 0, 1: 0, 2: 0})
    waiting = reader.send()
    assert not waiting.outcome
    broker.change("t", 1, leader=-1)
    broker.clock.pass_time(WAIT_MS + 20)
    assert waiting.outcome, "a consumer may read from a replica that does not lead, so it waits its time"
    waiting = reader.send()
    broker.apply(RemoveTopicRecord(topic_id=reader.topic_id))
    assert {part.error_code for part in waiting.response.responses[0].partitions} == {UnknownTopicOrPartition.code}
    assert {part.error_code for part in reader.fetch().values()} == {UnknownTopicOrPartition.code}, "each time"


def test_bytes_of_several_partitions_are_counted_together(broker: Broker) -> None:
    broker.create_topic("t", partitions=10)
    for has_session in (True, False):
        reader = Reader(broker, min_bytes=3 * len(RECORD))
        offsets = {number: broker.log("t", number).log_end_offset for number in range(10)}
        if has_session:
            reader.open(offsets)
        else:
            reader.epoch = -1
        waiting = reader.send(None if has_session else offsets)
        broker.append("t", 1, RECORD)
        broker.append("t", 5, RECORD)
        assert not waiting.outcome, "two thirds of what it waits for"
        broker.append("t", 1, RECORD)
        assert sorted(answered(waiting)) == ([1, 5] if has_session else list(range(10)))


def test_bytes_of_an_earlier_wait_are_not_counted_again(broker: Broker) -> None:
    broker.create_topic("t", partitions=5)
    reader = Reader(broker, min_bytes=3 * len(RECORD))
    reader.open(dict.fromkeys(range(5), 0))
    reader.fetch()
    broker.append("t", 3, RECORD)
    waiting = reader.send()
    for _ in range(2):
        assert not waiting.outcome
        broker.append("t", 1, RECORD)
    assert sorted(answered(waiting)) == [1, 3]
    broker.append("t", 2, RECORD, RECORD, RECORD)
    broker.append("t", 4, RECORD)
    assert sorted(reader.fetch({1: 2, 3: 1})) == [2, 4], "an answer at once, which leaves the first partition out"
    waiting = reader.send({2: 3})
    for _ in range(2):
        assert not waiting.outcome
        broker.append("t", 1, RECORD)
    assert sorted(answered(waiting)) == [1, 4]


def test_no_partition_starves_behind_a_busy_one(broker: Broker) -> None:
    broker.create_topic("t", partitions=4)
    reader = Reader(broker)
    reader.max_bytes = len(RECORD)
    offsets = dict.fromkeys(range(4), 0)
    for number in range(4):
        broker.append("t", number, *[RECORD] * 10)
    first = [number for number, part in reader.open(offsets).items() if part.records]
    served = Counter(first)
    for number in first:
        offsets[number] += 1
    for _ in range(19):
        taken = [number for number, part in reader.fetch({number: offsets[number] for number in first}).items()]
        taken = [number for number in taken if offsets[number] < 10]
        first = taken[:1]
        for number in first:
            offsets[number] += 1
            served[number] += 1
    assert min(served[number] for number in range(4)) >= 4


def test_a_second_fetch_of_a_session_ends_the_first(broker: Broker) -> None:
    broker.create_topic("t", partitions=2)
    reader = Reader(broker)
    reader.open({0: 0, 1: 0})
    first = reader.send(wait_ms=30_000)
    second = reader.send(wait_ms=30_000)
    assert (first.outcome, second.outcome) == ("answered", "")
    broker.append("t", 1, RECORD)
    assert answered(second) == [1]
    assert len(broker.node.timer) == 0


def test_an_evicted_session_answers_the_fetch_that_waits(broker: Broker) -> None:
    broker.create_topic("t", partitions=2)
    reader = Reader(broker)
    reader.open({0: 0, 1: 0})
    waiting = reader.send()
    broker.node.sessions._end(reader.session_id)
    broker.append("t", 1, RECORD)
    assert answered(waiting) == [1]
    assert not broker.partition("t", 0).consumer_watches


def test_another_isolation_level_or_client_reads_everything_again(broker: Broker) -> None:
    broker.create_topic("t", partitions=2)
    reader = Reader(broker)
    reader.open({0: 0, 1: 0})
    reader.fetch()
    session = broker.node.sessions.sessions[reader.session_id]
    assert session.fetched.changed == []
    waiting = reader.send(isolation_level=1)
    assert not waiting.outcome
    assert session.reader is not None
    before = session.reader
    reader.fetch()
    assert session.reader != before


def test_a_truncated_offset_is_an_error_at_the_next_fetch(broker: Broker) -> None:
    broker.create_topic("t", partitions=2)
    broker.append("t", 0, RECORD, RECORD)
    reader = Reader(broker)
    reader.open({0: 2, 1: 0})
    assert reader.fetch() == {}
    broker.logs.truncate({("t", 0): 1}, now_ms=broker.clock.ms)
    broker.partition("t", 0).mark_watches()
    assert {number: part.error_code for number, part in reader.fetch().items()} == {0: OffsetOutOfRange.code}


def test_a_follower_that_idles_in_sync_is_not_late_when_records_come(broker: Broker) -> None:
    rules = broker.partitions.rules
    proposals: list[tuple[int, ...]] = []
    rules.max_lag_ms, rules.propose = 1000, lambda _, proposal: proposals.append(proposal.isr)
    broker.create_topic("t", partitions=3, replicas=(1, 2))
    follower = Reader(broker, replica=2)
    follower.open({0: 0, 1: 0, 2: 0})
    for _ in range(20):
        waiting = follower.send()
        broker.clock.pass_time(WAIT_MS + 20)
        assert waiting.outcome
    broker.append("t", 1, RECORD)
    broker.partitions.shrink(broker.clock.ms)
    assert proposals == [], "it had everything half a second ago"
    broker.clock.pass_time(900)
    broker.partitions.shrink(broker.clock.ms)
    assert proposals == [(1,)], "and has not fetched since"


@pytest.mark.parametrize("has_session", [False, True])
def test_records_at_the_end_of_a_segment_do_not_wait_for_more(broker: Broker, has_session: bool) -> None:
    broker.create_topic("t", partitions=2)
    reader = Reader(broker, min_bytes=1 << 19)
    if has_session:
        reader.open({0: 0, 1: 0})
    else:
        reader.epoch = -1
    broker.append("t", 0, RECORD)
    waiting = reader.send({0: 0, 1: 0})
    assert not waiting.outcome, "the active segment may grow"
    broker.log("t").roll(broker.clock.ms)
    broker.append("t", 0, RECORD)
    assert 0 in answered(waiting)
    assert 0 in answered(reader.send({0: 0, 1: 0})), "nor does a later fetch"
