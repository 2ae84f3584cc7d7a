"""ListOffsets while a leader is new, transactions are open, or a search takes long."""

from ottla.protocol.errors import CorruptMessage, LeaderNotAvailable, NotLeader, OffsetNotAvailable
from ottla.protocol.messages.records.metadata_records import ConfigRecord
from ottla.protocol.messages.rpc.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.wire.records import Record, build_batch
from tests.support.broker import NOW_MS, Broker, Exchange
from tests.support.logs_in_memory import ManualBackground


def batch(*delays: int, **how: object) -> bytearray:
    return build_batch([Record(n, NOW_MS + delay, b"k", b"v" * 100) for n, delay in enumerate(delays)], **how)  # type: ignore[arg-type]


def request(timestamp: int, *, isolation: int = 0, replica: int = -1, epoch: int = -1) -> ListOffsetsRequest:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    topics = [ListOffsetsTopic(name="t", partitions=[part])]
    return ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=topics)


def answer(broker: Broker, timestamp: int, version: int = 11, **how: int) -> ListOffsetsPartitionResponse:
    return _only(broker.send(request(timestamp, **how), version))


def _only(exchange: Exchange) -> ListOffsetsPartitionResponse:
    found: ListOffsetsPartitionResponse = exchange.response.topics[0].partitions[0]
    return found


class TestANewLeader:
    """Until its followers have fetched, its high watermark may be below that of its predecessor."""

    def begin(self, broker: Broker) -> None:
        broker.register(2)
        broker.create_topic("t", replicas=(1, 2))
        broker.append("t", 0, batch(1, 2), batch(3))
        broker.partition("t").on_follower_fetch(2, 2, 0, NOW_MS)
        broker.change("t", leader=2)
        broker.change("t", leader=1)
        assert (broker.log("t").high_watermark, broker.log("t").log_end_offset) == (2, 3)

    def test_hides_the_end_until_it_is_known(self, broker: Broker) -> None:
        self.begin(broker)
        assert answer(broker, -1).error_code == OffsetNotAvailable.code
        assert answer(broker, -1, 5).error_code == OffsetNotAvailable.code
        assert answer(broker, -1, 4).error_code == LeaderNotAvailable.code
        assert answer(broker, -2).offset == 0

    def test_returns_replicated_records(self, broker: Broker) -> None:
        self.begin(broker)
        assert answer(broker, NOW_MS + 2).offset == 1
        assert answer(broker, NOW_MS + 3).error_code == OffsetNotAvailable.code
        assert answer(broker, NOW_MS + 9).error_code == OffsetNotAvailable.code
        assert answer(broker, -3).error_code == OffsetNotAvailable.code

    def test_returns_the_log_end_to_followers(self, broker: Broker) -> None:
        self.begin(broker)
        assert (answer(broker, -1, replica=2).offset, answer(broker, -1, replica=-2).offset) == (3, 3)

    def test_returns_the_end_once_its_follower_has_fetched(self, broker: Broker) -> None:
        self.begin(broker)
        broker.partition("t").on_follower_fetch(2, 3, 0, NOW_MS)
        answered = answer(broker, -1)
        assert (answered.error_code, answered.offset, answered.leader_epoch) == (0, 3, 2)


def test_a_follower_answers_debugging_clients_only(broker: Broker) -> None:
    broker.register(2)
    broker.create_topic("t", replicas=(1, 2), leader=2)
    assert answer(broker, -1).error_code == NotLeader.code
    assert answer(broker, -1, replica=-2).error_code == 0


def test_read_committed_stops_at_the_first_open_transaction(broker: Broker) -> None:
    broker.create_topic("t")
    broker.append("t", 0, batch(1))
    broker.append("t", 0, batch(2, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True), batch(3))
    assert (answer(broker, -1).offset, answer(broker, -1, isolation=1).offset) == (3, 1)
    assert (answer(broker, NOW_MS + 2).offset, answer(broker, NOW_MS + 2, isolation=1).offset) == (1, -1)
    assert answer(broker, -1, isolation=1, replica=-2).offset == 3


class TestALongSearch:
    """Records whose timestamps do not rise are in no index."""

    def fill(self, broker: Broker) -> None:
        broker.create_topic("t")
        broker.append("t", 0, batch(50))
        for _ in range(30):
            broker.append("t", 0, batch(*[10] * 500))
        broker.append("t", 0, batch(60))

    def test_continues_in_a_thread(self) -> None:
        background = ManualBackground()
        broker = Broker(background=background)
        self.fill(broker)
        background.finish()
        exchange = broker.send(request(NOW_MS + 55), 11)
        assert not exchange.outcome
        assert len(background.work) == 1
        background.finish()
        broker.settle()
        assert _only(exchange).offset == 15_001
        broker.close()

    def test_is_void_when_the_leader_has_changed(self) -> None:
        background = ManualBackground()
        broker = Broker(background=background)
        self.fill(broker)
        background.finish()
        exchange = broker.send(request(NOW_MS + 55), 11)
        broker.change("t", leader=1)
        background.finish()
        broker.settle()
        assert _only(exchange).error_code == NotLeader.code
        broker.close()

    def test_reports_corrupt_bytes(self) -> None:
        background = ManualBackground()
        broker = Broker(background=background)
        self.fill(broker)
        background.finish()
        active = broker.log("t").active
        broker.disk.pwrite(active.file.number, b"\xff" * 50, active.size - 60)
        exchange = broker.send(request(NOW_MS + 55), 11)
        background.finish()
        broker.settle()
        assert _only(exchange).error_code == CorruptMessage.code
        broker.close()

    def test_is_answered_at_once_if_the_index_suffices(self) -> None:
        background = ManualBackground()
        broker = Broker(background=background)
        broker.create_topic("t")
        for number in range(60):
            broker.append("t", 0, batch(*[number] * 500))
        assert _only(broker.send(request(NOW_MS + 55), 11)).offset == 55 * 500
        assert _only(broker.send(request(-3), 11)).offset == 59 * 500
        broker.close()


class TestManySegments:
    """Right after a start, what each one's latest timestamp is has to be read from its index."""

    def fill(self, broker: Broker) -> None:
        broker.create_topic("t")
        log = broker.log("t")
        for number in range(120):
            broker.append("t", 0, batch(number))
            log.roll(NOW_MS)
        broker.append("t", 0, batch(500))
        for segment in log.segments[:-1]:
            segment._max_timestamp = -2  # as if nobody had asked yet

    def test_other_requests_run_during_the_lookups(self, broker: Broker) -> None:
        self.fill(broker)
        exchange = broker.begin(request(NOW_MS + 100), 11)
        broker.step()
        assert not exchange.outcome
        broker.settle()
        assert _only(exchange).offset == 100
        assert not any(segment.is_cold for segment in broker.log("t").segments)
        assert answer(broker, -3).offset == 120

    def test_segments_that_are_deleted_meanwhile_are_skipped(self, broker: Broker) -> None:
        self.fill(broker)
        exchange = broker.begin(request(NOW_MS + 100), 11)
        broker.step()
        gone = broker.log("t").segments[60:63]  # as compaction does
        del broker.log("t").segments[60:63]
        broker.settle()
        assert _only(exchange).offset == 100
        assert len([segment for segment in gone if segment.is_cold]) == 3

    def test_the_answer_is_void_when_the_leader_has_changed(self, broker: Broker) -> None:
        self.fill(broker)
        exchange = broker.begin(request(NOW_MS + 100), 11)
        broker.step()
        broker.change("t", leader=1)
        broker.settle()
        assert _only(exchange).error_code == NotLeader.code


def test_the_largest_timestamp_of_the_remaining_records(broker: Broker) -> None:
    broker.apply(ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value="1048576"))
    broker.create_topic("t")
    broker.append("t", 0, batch(9, 1), batch(4, 5, 5))
    assert answer(broker, -3).offset == 0
    broker.partition("t").delete_records(1)
    assert answer(broker, -3).offset == 3
    broker.partition("t").delete_records(-1)
    assert (answer(broker, -3).offset, answer(broker, -3).error_code) == (-1, 0)
