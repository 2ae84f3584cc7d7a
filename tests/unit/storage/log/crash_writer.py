"""Appends to a log until it is killed, and says on its standard output what it has written and what is synced.

    python -m tests.unit.storage.log.crash_writer <directory> <seed>

Each line is `written <base offset> <digest of the batch>` or `synced <recovery point> -`.
"""

import os
import sys
import time
from random import Random
from zlib import crc32

from ottla.storage.log.opening import create_log, open_log
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.settings import LogSettings
from ottla.storage.log_environment import LogEnvironment
from tests.support.log_workbench import FOREVER, Producer, batch

SETTINGS = LogSettings(segment_bytes=20_000, index_interval_bytes=500)


def now_ms() -> int:
    return int(time.time() * 1000)


def digest(data: bytes | bytearray) -> str:
    return f"{crc32(data):08x}"


def open_or_create(directory: str, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    """The log in the directory, or a new one."""
    if not os.path.exists(directory):  # noqa: PTH110
        return create_log(LogEnvironment(), directory, "t", 0, SETTINGS, now_ms=now_ms())
    return open_log(
        LogEnvironment(),
        directory,
        "t",
        0,
        SETTINGS,
        clean=clean,
        now_ms=now_ms(),
        recovery_point=recovery_point,
        producer_expiration_ms=FOREVER,
    )


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write_on(log: PartitionLog, random: Random) -> None:
    """Append for ever: plain batches, some of idempotent producers, some in transactions."""
    epoch = log.epochs.latest + 1
    while True:
        producer_id = random.randrange(4)
        known = log.producers.get(producer_id)
        if known is not None and known.transaction_start is not None and random.random() < 0.5:
            start = log.active.size
            appended = log.append_marker(
                producer_id=producer_id,
                producer_epoch=0,
                commit=random.random() < 0.5,
                coordinator_epoch=0,
                transaction_version=0,
                leader_epoch=epoch,
                now_ms=now_ms(),
            )
            start = start if start < log.active.size else 0
            data: bytes | bytearray = log.active.bytes_at(start, log.active.size - start)
        else:
            sequence = known.last_sequence + 1 if known is not None else 0
            producer = Producer(producer_id, sequence, transactional=producer_id >= 2) if producer_id else None
            values = [random.randbytes(random.randrange(300)) for _ in range(random.randint(1, 4))]
            data = batch(*values, timestamps=now_ms(), producer=producer)
            appended = log.append(data, leader_epoch=epoch, now_ms=now_ms())
        say("written", appended.base_offset, digest(data))
        if random.random() < 0.05:
            log.flusher.start()
            say("synced", log.recovery_point, "-")


def main(directory: str, seed: int) -> None:
    log = open_or_create(directory, clean=os.path.exists(directory))  # noqa: PTH110
    say("ready")
    write_on(log, Random(seed))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
