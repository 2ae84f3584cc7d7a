"""Compaction against Kafka's cleaner: both clean copies of the same random logs, pass by pass.

The remaining batches must be equal, and so must the segments, the index of aborted transactions and the
offset where the next pass starts. Only Ottla keeps the header of a segment's last batch when its records are gone.
"""

import json
import shutil
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

from bench.harness.kafka_jars import class_path, java

from ottla.storage.compaction.cleanable import find_cleanable_range
from ottla.storage.compaction.cleaner import clean, install, plan
from ottla.storage.compaction.offset_map import capacity_of
from ottla.storage.disk import SystemDisk
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_environment import LogEnvironment
from tests.support.java_peer import JVM_OPTIONS
from tests.unit.storage.compaction.histories import DELETE_RETENTION_MS, SETTINGS, History, producer_states, reopened
from tests.unit.storage.compaction.naive_compaction import batches_of, without_ends

LOGS = 12
PASSES = 3
MEMORY_BYTES = (1_000, 3_000, 1 << 20)
KAFKA_SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": SETTINGS.segment_bytes,
    "index.interval.bytes": SETTINGS.index_interval_bytes,
    "segment.ms": SETTINGS.segment_ms,
    "delete.retention.ms": DELETE_RETENTION_MS,
    "file.delete.delay.ms": 0,
}


def clean_by_kafka(folder: Path, tasks: list[dict[str, Any]]) -> list[int]:
    """Let Java clean the logs, and return where the next pass of each starts, or -1 if there was nothing to clean."""
    questions, answers = folder / "tasks.json", folder / "ends.json"
    questions.write_text(json.dumps(tasks))
    main = "org.apache.kafka.storage.internals.log.CleanerJudge"
    command = [str(java()), *JVM_OPTIONS, "-cp", class_path(), main, str(questions), str(answers)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr[-4000:]
    ends: list[int] = json.loads(answers.read_text())
    return ends


def cleaning_task(history: History, copy: Path, first_dirty: int | None, memory_bytes: int) -> dict[str, Any]:
    return {
        "directory": str(copy),
        "settings": KAFKA_SETTINGS,
        "recovery_point": history.log.recovery_point,
        "high_watermark": history.log.high_watermark,
        "first_dirty": first_dirty,
        "now_ms": history.now_ms,
        "capacity": int(capacity_of(memory_bytes) * 0.9),
    }


def clean_by_ottla(history: History, first_dirty: int | None, memory_bytes: int) -> int:
    planned = plan(history.log, first_dirty_offset=first_dirty, now_ms=history.now_ms)
    if planned is None:
        return -1
    end = install(history.log, clean(planned, memory_bytes=memory_bytes))
    assert end is not None
    return end


def read_aborted_index(log: PartitionLog) -> list[Any]:
    return [segment.aborted.read() for segment in log.segments]


def test_both_cleaners_leave_the_same_log(tmp_path: Path) -> None:
    disk = SystemDisk()
    start_ms = int(time.time() * 1000) - 3_600_000  # Java expires producers after a long idle time
    homes = [LogEnvironment(disk=disk, random=Random(seed)) for seed in range(LOGS)]
    histories = [
        History(seed, environment=environment, directory=str(tmp_path / f"{seed}" / "topic-0"), start_ms=start_ms)
        for seed, environment in enumerate(homes)
    ]
    first_dirty: list[int | None] = [None] * LOGS
    passes = 0
    for number in range(PASSES):
        memory = [history.random.choice(MEMORY_BYTES) for history in histories]
        tasks = []
        for seed, history in enumerate(histories):
            history.live(history.random.randint(10, 60))
            history.now_ms += history.random.choice((0, 300, 1_500))
            history.reopen(clean=True)
            copy = tmp_path / f"kafka-{number}-{seed}" / "topic-0"
            shutil.copytree(history.directory, copy)
            tasks.append(cleaning_task(history, copy, first_dirty[seed], memory[seed]))
        ends = clean_by_kafka(tmp_path, tasks)
        for seed, history in enumerate(histories):
            limit = find_cleanable_range(history.log, first_dirty[seed], history.now_ms).end_offset
            end = clean_by_ottla(history, first_dirty[seed], memory[seed])
            assert end == ends[seed]
            theirs = reopened(
                history.environment, tasks[seed]["directory"], clean=True, recovery_point=0, now_ms=history.now_ms
            )
            assert without_ends(batches_of(history.log), limit) == without_ends(batches_of(theirs), limit)
            assert [s.base_offset for s in history.log.segments] == [s.base_offset for s in theirs.segments]
            assert read_aborted_index(history.log) == read_aborted_index(theirs)
            assert producer_states(history.log) == producer_states(theirs)
            if end >= 0:
                first_dirty[seed] = end
                passes += 1
    assert passes > LOGS * PASSES / 2
