"""Random histories of a compacted log: plain, idempotent and transactional producers, deletions, time."""

from random import Random

from ottla.protocol.wire.batch import TimestampType, read_batches
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.control import ControlType, control_type
from ottla.protocol.wire.records import Record, build_batch, read_records
from ottla.storage.log.opening import create_log, open_log
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.reading import read
from ottla.storage.log.settings import LogSettings
from ottla.storage.log_environment import LogEnvironment
from tests.support.simulated_disk import SimulatedDisk

DIRECTORY = "/logs/topic-0"
START_MS = 1_700_000_000_000
DELETE_RETENTION_MS = 1_000
NEVER_MS = 1 << 60
SETTINGS = LogSettings(
    compact=True,
    delete=False,
    segment_bytes=900,
    index_interval_bytes=200,
    segment_ms=1 << 40,
    delete_retention_ms=DELETE_RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
)


class History:
    """A log on some disk, and one random source for all that happens to it."""

    def __init__(
        self,
        seed: int,
        *,
        environment: LogEnvironment | None = None,
        directory: str = DIRECTORY,
        start_ms: int = START_MS,
    ) -> None:
        self.random = Random(seed)
        self.environment = environment or LogEnvironment(disk=SimulatedDisk(seed), random=Random(seed))
        self.directory = directory
        self.now_ms = start_ms
        self.settings = SETTINGS
        self.log = create_log(self.environment, directory, "topic", 0, self.settings, now_ms=self.now_ms)
        self.epochs = dict.fromkeys(range(1, 6), 0)
        self.sequences = dict.fromkeys(range(1, 6), 0)
        self.open: set[int] = set()
        self.keys = [b"%d" % number for number in range(self.random.choice((3, 8, 20)))]
        self.keys += [b"a key of more than sixteen bytes, %d" % number for number in range(4)]
        self.compressions = self.random.choice(((Compression.NONE,), tuple(Compression)))

    def live(self, steps: int) -> None:
        """Let some things happen."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        roll = self.random.random()
        self.now_ms += self.random.choice((0, 1, 1, 10, 100))
        if roll < 0.35:
            self.append()
        elif roll < 0.5:
            self.append(producer_id=self.random.choice((1, 2)))
        elif roll < 0.75:
            producer_id = self.random.choice((3, 4, 5))
            self.append(producer_id=producer_id, transactional=True)
            self.open.add(producer_id)
        elif roll < 0.93 and self.open:
            self.end(self.random.choice(sorted(self.open)), commit=self.random.random() < 0.5)
        elif roll < 0.95 and self.log.active.size:
            self.log.roll(self.now_ms)
        if self.random.random() < 0.8:
            self.log.advance_high_watermark(self.log.log_end_offset)

    def append(self, producer_id: int = -1, *, transactional: bool = False) -> None:
        count = self.random.choice((1, 1, 2, 5))
        log_append = self.random.random() < 0.1
        made = build_batch(
            [Record(number, self.now_ms - self.random.choice((0, 5)), *self.content()) for number in range(count)],
            compression=self.random.choice(self.compressions),
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, -1),
            base_sequence=self.sequences.get(producer_id, -1),
            transactional=transactional,
        )
        if producer_id in self.sequences:
            self.sequences[producer_id] += count
        if log_append:
            self.log.settings = LogSettings(
                compact=True, segment_bytes=900, message_timestamp_type=TimestampType.LOG_APPEND
            )
        self.log.append(made, leader_epoch=0, now_ms=self.now_ms)
        self.log.settings = self.settings

    def content(self) -> tuple[bytes, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        value = None if self.random.random() < 0.25 else self.random.randbytes(self.random.choice((0, 5, 60)))
        headers = (("trace", b"id"), ("none", None)) if self.random.random() < 0.2 else ()
        return self.random.choice(self.keys), value, headers

    def end(self, producer_id: int, *, commit: bool) -> None:
        version = self.random.choice((0, 2))
        if version == 2:
            self.epochs[producer_id] += 1
            self.sequences[producer_id] = 0
        self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
            commit=commit,
            coordinator_epoch=0,
            transaction_version=version,
            leader_epoch=0,
            now_ms=self.now_ms,
        )
        self.open.discard(producer_id)

    def finish(self) -> None:
        """End all transactions, and close the segment: everything may be cleaned then."""
        for producer_id in sorted(self.open):
            self.end(producer_id, commit=self.random.random() < 0.5)
        self.log.advance_high_watermark(self.log.log_end_offset)
        if self.log.active.size:
            self.log.roll(self.now_ms)

    def reopen(self, *, clean: bool) -> PartitionLog:
        """Open the log again, after a stop in order or without one."""
        high_watermark, recovery_point = self.log.high_watermark, self.log.recovery_point
        if clean:
            self.log.close()
        self.log = reopened(
            self.environment, self.directory, clean=clean, recovery_point=recovery_point, now_ms=self.now_ms
        )
        self.log.advance_high_watermark(high_watermark)
        return self.log


def reopened(
    environment: LogEnvironment, directory: str, *, clean: bool, recovery_point: int, now_ms: int = START_MS
) -> PartitionLog:
    return open_log(
        environment,
        directory,
        "topic",
        0,
        SETTINGS,
        clean=clean,
        now_ms=now_ms,
        recovery_point=recovery_point,
        producer_expiration_ms=NEVER_MS,
    )


def producer_states(log: PartitionLog) -> dict[int, tuple[int, int, int | None, int | None]]:
    """Of each producer its epoch, last sequence, last offset and where its open transaction began."""
    return {
        p.producer_id: (p.epoch, p.last_sequence, p.batches[-1].last_offset if p.batches else None, p.transaction_start)
        for p in log.producers
    }


def consume_committed(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a consumer of committed records gets: it goes by the aborted transactions that come with the records."""
    got: list[tuple[int, bytes | None, bytes | None]] = []
    offset = log.log_start_offset
    while True:
        fetched = read(log, offset, 400, Isolation.LAST_STABLE)
        if fetched.records is None:
            return got
        assert fetched.aborted is not None
        coming = sorted(fetched.aborted, key=lambda entry: entry.first_offset)
        aborting: set[int] = set()
        place = fetched.records
        data = log.environment.disk.pread(place.file.number, place.size, place.position)
        for position, header in read_batches(data, partial_tail=True):
            while coming and coming[0].first_offset <= header.last_offset:
                aborting.add(coming.pop(0).producer_id)
            for record in read_records(data, position, header):
                if header.is_control:
                    if control_type(record) is ControlType.ABORT:
                        aborting.discard(header.producer_id)
                elif record.offset >= offset and not (header.is_transactional and header.producer_id in aborting):
                    got.append((record.offset, record.key, record.value))
            offset = header.next_offset
