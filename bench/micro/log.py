"""The log: append batches, open 10,000 partitions, recover a gigabyte."""

import gc
import os
import shutil
import tempfile
import time
from pathlib import Path

from ottla.protocol.wire.records import Record, build_batch
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.node_files import NodeMeta
from ottla.storage.disk import SystemDisk
from ottla.storage.log.opening import create_log, open_log
from ottla.storage.log.partition_log import Isolation, PartitionLog
from ottla.storage.log.reading import read
from ottla.storage.log.settings import DEFAULT_LOG_SETTINGS
from ottla.storage.log_environment import LogEnvironment

PARTITIONS = 10_000
RECOVERED_BYTES = 1_000_000_000


def run() -> None:
    """Print the figures."""
    folder = tempfile.mkdtemp(prefix="ottla-bench-")
    try:
        append(folder)
        recover(folder)
        open_many(folder)
    finally:
        shutil.rmtree(folder)


def append(folder: str) -> None:
    """Append batches to one partition, and compare with a plain write of the same bytes."""
    now_ms = int(time.time() * 1000)
    print("append                    batches/s   CPU µs  plain write, CPU µs   read back, CPU µs")
    for name, batch, count in (
        ("200 B", make_batch(1, 130), 200_000),
        ("200 B, idempotent", make_batch(1, 130, producer_id=7), 200_000),
        ("64 KiB", make_batch(64, 1000), 8_000),
    ):
        log = new_log(f"{folder}/{name}", now_ms)
        time_s, cpu = time.perf_counter(), time.process_time()
        for number in range(count):
            data = bytearray(batch)
            if data[43] == 0:  # it has a producer id, so its sequence must rise
                data = make_batch(1, 130, producer_id=7, sequence=number)
            log.append(data, leader_epoch=1, now_ms=now_ms)
        time_s, cpu = time.perf_counter() - time_s, time.process_time() - cpu
        building = _cost_of_building(batch, count)
        writing = _cost_of_writing(f"{folder}/plain", batch, count)
        log.advance_high_watermark(log.log_end_offset)
        reading = _cost_of_reading(log)
        print(
            f"{name:24} {count / (time_s - building):10,.0f} {(cpu - building) / count * 1e6:8.1f} "
            f"{writing / count * 1e6:20.1f} {reading * 1e6:19.1f}"
        )
        shutil.rmtree(log.directory)


def recover(folder: str) -> None:
    """Recover a log of a gigabyte after an unclean shutdown, which reads and checks every batch."""
    now_ms = int(time.time() * 1000)
    for name, batch in (
        ("64 KiB", make_batch(64, 1000)),
        ("16 KiB", make_batch(16, 1000)),
        ("1 KiB", make_batch(1, 950)),
    ):
        log = new_log(f"{folder}/recovered", now_ms)
        for _ in range(RECOVERED_BYTES // len(batch)):
            log.append(bytearray(batch), leader_epoch=1, now_ms=now_ms)
        size, end = log.size, log.log_end_offset
        del log
        time_s = time.perf_counter()
        log = open_log(
            LogEnvironment(), f"{folder}/recovered", "topic", 0, DEFAULT_LOG_SETTINGS, clean=False, now_ms=now_ms
        )
        time_s = time.perf_counter() - time_s
        assert log.log_end_offset == end
        print(f"recovery of {size / 1e9:.1f} GB in batches of {name:7} {time_s:6.2f} s {size / time_s / 1e9:6.2f} GB/s")
        shutil.rmtree(log.directory)


def open_many(folder: str) -> None:
    """Start a node with many partitions after a clean shutdown."""
    now_ms = int(time.time() * 1000)
    meta = NodeMeta("cluster", 1)
    path = f"{folder}/many"
    Path(path).mkdir()
    directory = LogDirectory(path, meta, disk=_UnsyncedDisk())
    batch = make_batch(10, 100, producer_id=3)
    for partition in range(PARTITIONS):
        log = directory.create("topic", partition, DEFAULT_LOG_SETTINGS, topic_id=bytes(15) + b"\x01", now_ms=now_ms)
        log.append(bytearray(batch), leader_epoch=1, now_ms=now_ms)
    directory.close(broker_epoch=1)
    del directory, log
    gc.collect()
    before = resident_bytes()
    reopened = LogDirectory(path, meta)
    time_s, cpu = time.perf_counter(), time.process_time()
    reopened.load(lambda _: DEFAULT_LOG_SETTINGS, now_ms)
    time_s, cpu = time.perf_counter() - time_s, time.process_time() - cpu
    assert len(reopened.logs) == PARTITIONS
    assert all(log.log_end_offset == 10 for log in reopened.logs.values())
    kib = (resident_bytes() - before) / PARTITIONS / 1024
    print(f"open {PARTITIONS:,} partitions after a clean stop: {time_s:.2f} s ({cpu:.2f} s CPU), {kib:.1f} KiB each")


class _UnsyncedDisk(SystemDisk):
    """A disk without fsync, because the creation of the partitions is not measured."""

    @staticmethod
    def sync(fd: object) -> None:
        """Do nothing."""

    @staticmethod
    def sync_dir(path: str) -> None:
        """Do nothing."""


def make_batch(records: int, value_bytes: int, *, producer_id: int = -1, sequence: int = 0) -> bytearray:
    """Build a batch of records with random values."""
    now_ms = int(time.time() * 1000)
    batch_records = [Record(number, now_ms, b"key-%d" % number, os.urandom(value_bytes)) for number in range(records)]
    if producer_id < 0:
        return build_batch(batch_records)
    return build_batch(batch_records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def new_log(path: str, now_ms: int) -> PartitionLog:
    """Create an empty log with default settings."""
    return create_log(LogEnvironment(), path, "topic", 0, DEFAULT_LOG_SETTINGS, now_ms=now_ms)


def resident_bytes() -> int:
    """Return the RSS of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _cost_of_building(batch: bytearray, count: int) -> float:
    cpu = time.process_time()
    for number in range(count):
        data = bytearray(batch)
        if data[43] == 0:
            make_batch(1, 130, producer_id=7, sequence=number)
    return time.process_time() - cpu


def _cost_of_writing(path: str, batch: bytearray, count: int) -> float:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    cpu = time.process_time()
    for number in range(count):
        os.pwrite(file, bytearray(batch), number * len(batch))
    cpu = time.process_time() - cpu
    os.close(file)
    Path(path).unlink()
    return cpu


def _cost_of_reading(log: PartitionLog) -> float:
    count = 5_000
    step = log.log_end_offset // count
    cpu = time.process_time()
    for number in range(count):
        read(log, number * step, 1 << 20, Isolation.HIGH_WATERMARK)
    return (time.process_time() - cpu) / count
