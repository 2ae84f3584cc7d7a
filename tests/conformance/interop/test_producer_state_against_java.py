"""Producer state, aborted transactions and leader epochs against Kafka's classes.

Both sides run random scripts; after each step the answer and the whole state must be equal. Each side also reads files
that the other wrote. `PartitionStateJudge` runs all scripts of a test in one Java process.
"""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bench.harness.kafka_jars import class_path, java

from ottla.protocol.errors import ApiError
from ottla.protocol.wire.batch import MAX_INT32, read_batches
from ottla.protocol.wire.control import ControlType, control_type, coordinator_epoch, transaction_marker
from ottla.protocol.wire.records import Record, build_batch, read_records
from ottla.storage.disk import SystemDisk
from ottla.storage.log import producer_snapshot
from ottla.storage.log.aborted import Aborted, AbortedTransactions
from ottla.storage.log.epochs import EPOCHS_FILE, LeaderEpochs
from ottla.storage.log.producers import Completed, Origin, Producers
from tests.support.java_peer import JVM_OPTIONS

SCRIPTS = 400
STEPS = 40
EXPIRATION_MS = 100
DISK = SystemDisk()
KAFKA_NAMES = {
    "InvalidProducerEpochException": "INVALID_PRODUCER_EPOCH",
    "OutOfOrderSequenceException": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "InvalidTxnStateException": "INVALID_TXN_STATE",
    "TransactionCoordinatorFencedException": "TRANSACTION_COORDINATOR_FENCED",
}

Json = dict[str, Any]


def run_in_java(folder: Path, scripts: list[Json]) -> list[list[Json]]:
    """Let Java run the scripts, and return the answers to the steps of each."""
    questions, answers = folder / "scripts.json", folder / "answers.json"
    questions.write_text(json.dumps(scripts))
    main = "org.apache.kafka.storage.internals.log.PartitionStateJudge"
    command = [str(java()), *JVM_OPTIONS, "-cp", class_path(), main, str(questions), str(answers)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr[-4000:]
    parsed: list[list[Json]] = json.loads(answers.read_text())
    return parsed


class ProducerScript:
    """Random actions of a few producers, mostly in order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.offset = 0
        self.now_ms = 1000
        self.next_sequence: dict[int, int] = {}
        self.epoch: dict[int, int] = {}
        self.sent: list[tuple[int, int, int, int, bool]] = []

    def step(self) -> Json:
        kind = self.random.choices(["append", "high_watermark", "log_start", "expire", "reload"], [30, 4, 1, 1, 1])[0]
        self.now_ms += self.random.choice([0, 1, 1, 5, 40])
        if kind == "append":
            return self.append()
        if kind in ("high_watermark", "log_start"):
            return {"do": kind, "offset": self.random.randint(max(0, self.offset - 15), self.offset)}
        return {"do": kind, "now_ms": self.now_ms}

    def append(self) -> Json:
        origin = self.random.choices(["CLIENT", "COORDINATOR", "REPLICATION"], [6, 3, 2])[0]
        count = 1 if self.random.random() < 0.7 else self.random.randint(2, 4)
        data = b"".join(bytes(self.batch(origin)) for _ in range(count))
        version = -1 if origin == "REPLICATION" else self.random.choice([0, 1, 2, 2])
        return {"do": "append", "origin": origin, "transaction_version": version, "records": data.hex()}

    def batch(self, origin: str) -> bytearray:
        producer_id = self.random.choice([1, 1, 2, 3])
        epoch = self.epoch.setdefault(producer_id, self.random.choice([0, 0, 0, 5, 32766]))
        # Clients write no markers and number all batches, but the rules still exist.
        if self.random.random() < (0.05 if origin == "CLIENT" else 0.6):
            return self.marker(producer_id, epoch)
        if self.random.random() < 0.12:
            epoch = self.epoch[producer_id] = max(0, min(32767, epoch + self.random.choice([-1, 1, 1])))
            if self.random.random() < 0.8:
                self.next_sequence[producer_id] = 0
        start = self.random.choice([0, 0, 0, 7, MAX_INT32 - 3])
        sequence = self.next_sequence.setdefault(producer_id, start)
        if self.random.random() < 0.1:
            sequence = max(0, sequence + self.random.choice([-3, -1, 1])) & MAX_INT32
        count = self.random.randint(1, 3)
        transactional = self.random.random() < 0.6
        if self.sent and self.random.random() < 0.15:
            producer_id, epoch, sequence, count, transactional = self.random.choice(self.sent[-6:])
        self.sent.append((producer_id, epoch, sequence, count, transactional))
        self.next_sequence[producer_id] = (sequence + count) & MAX_INT32
        base_offset = self.offset
        self.offset += count
        return build_batch(
            [Record(base_offset + i, self.now_ms + i, None, b"v") for i in range(count)],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=-1 if self.random.random() < (0.5 if origin == "COORDINATOR" else 0.03) else sequence,
            transactional=transactional,
        )

    def marker(self, producer_id: int, epoch: int) -> bytearray:
        raised = max(0, min(32767, epoch + self.random.choice([-1, 0, 0, 1, 1, 1])))
        if raised > epoch and self.random.random() < 0.9:
            self.epoch[producer_id] = raised
            self.next_sequence[producer_id] = 0
        self.offset += 1
        return transaction_marker(
            commit=self.random.random() < 0.5,
            producer_id=producer_id,
            producer_epoch=raised,
            coordinator_epoch=self.random.choice([3, 3, 3, 3, 4, 2]),
            timestamp=self.now_ms,
            base_offset=self.offset - 1,
        )


class OttlaProducers:
    """Runs the same steps as the Java program."""

    def __init__(self, folder: Path, *, one_by_one: bool) -> None:
        self.state = Producers()
        self.folder = folder
        self.one_by_one = one_by_one

    def run(self, step: Json) -> Json:
        answer: Json = {"error": None}
        try:
            match step["do"]:
                case "append":
                    self.append(step, answer)
                case "high_watermark":
                    self.state.on_high_watermark(step["offset"])
                case "log_start":
                    self.state.on_log_start(step["offset"])
                case "expire":
                    self.state.expire(step["now_ms"], EXPIRATION_MS)
                case "reload":
                    self.reload(step["now_ms"], answer)
        except ApiError as error:
            answer["error"] = error.name
        return answer | state_of(self.state)

    def append(self, step: Json, answer: Json) -> None:
        data = bytes.fromhex(step["records"])
        origin = Origin[step["origin"]]
        headers = list(read_batches(data))
        position, header = headers[0]
        if self.one_by_one and len(headers) == 1 and not header.is_control:
            duplicate = self.state.check(header, origin)
            if duplicate is not None:
                answer["duplicate"] = list(duplicate)
                return
            self.state.apply(header, header.base_offset)
            answer["completed"] = []
            self.state.map_end_offset = header.next_offset
            return
        changes = self.state.begin(origin)
        for position, header in headers:
            if not header.is_control:
                duplicate = changes.add(header, header.base_offset)
                if duplicate is not None:
                    answer["duplicate"] = list(duplicate)
                    return
                continue
            (record,) = read_records(data, position, header)
            changes.add_marker(
                header,
                header.base_offset,
                commit=control_type(record) is ControlType.COMMIT,
                coordinator_epoch=coordinator_epoch(record),
                timestamp=record.timestamp,
                transaction_version=None if step["transaction_version"] == -1 else step["transaction_version"],
            )
        answer["completed"] = [self.finish(completed) for completed in changes.commit()]
        self.state.map_end_offset = headers[-1][1].next_offset

    def finish(self, completed: Completed) -> list[int]:
        stable = self.state.last_stable_offset_of(completed)
        self.state.complete(completed)
        return [*completed, stable]

    def reload(self, now_ms: int, answer: Json) -> None:
        offset = self.state.map_end_offset
        answer["file"] = producer_snapshot.snapshot_name(offset)
        answer["snapshot"] = sorted(self.state.snapshot())
        path = str(self.folder / answer["file"])
        producer_snapshot.write(DISK, path, self.state.snapshot())
        self.state = Producers()
        self.state.load(producer_snapshot.read(DISK, path), offset, now_ms=now_ms, expiration_ms=EXPIRATION_MS)


def state_of(state: Producers) -> Json:
    return {
        "producers": [
            [
                p.producer_id,
                p.epoch,
                p.coordinator_epoch,
                p.last_timestamp,
                p.transaction_start,
                list(map(list, p.batches)),
            ]
            for p in sorted(state, key=lambda p: p.producer_id)
        ],
        "map_end_offset": state.map_end_offset,
        "firsts": [next((first for first, _ in state.open_transactions()), None), state.first_unstable_offset],
    }


def to_ottla_names(answer: Json) -> Json:
    if answer["error"] is not None:
        answer["error"] = KAFKA_NAMES.get(answer["error"], answer["error"])
    if "snapshot" in answer:
        answer["snapshot"] = sorted(producer_snapshot.decode(bytes.fromhex(answer["snapshot"])))
    return answer


def test_random_appends_are_answered_as_in_kafka(tmp_path: Path) -> None:
    scripts: list[Json] = []
    for seed in range(SCRIPTS):
        story = ProducerScript(seed)
        (folder := tmp_path / str(seed)).mkdir()
        steps = [story.step() for _ in range(STEPS)]
        scripts.append({"kind": "producers", "path": str(folder), "expiration_ms": EXPIRATION_MS, "steps": steps})
    outcomes: dict[str, int] = {}
    for seed, answers in enumerate(run_in_java(tmp_path, scripts)):
        for one_by_one in (True, False):
            ottla = OttlaProducers(tmp_path / str(seed), one_by_one=one_by_one)
            for number, (step, answer) in enumerate(zip(scripts[seed]["steps"], answers, strict=True)):
                expected = to_ottla_names(dict(answer))
                assert ottla.run(step) == expected, f"script {seed}, step {number}: {step}"
                outcome = expected["error"] or ("repeat" if "duplicate" in expected else step["do"])
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
    # Every outcome must occur, otherwise the scripts do not test it.
    kinds = {"append", "high_watermark", "log_start", "expire", "reload"}
    assert set(outcomes) == {*KAFKA_NAMES.values(), "repeat", *kinds}
    assert min(outcomes.values()) > 50


def test_kafka_reads_snapshots_that_ottla_wrote(tmp_path: Path) -> None:
    state = Producers()
    for index in range(3):
        batch = build_batch(
            [Record(index, 1000, None, b"v")],
            base_offset=index,
            producer_id=index,
            producer_epoch=7,
            base_sequence=5,
            transactional=index == 1,
        )
        ((_, header),) = read_batches(batch)
        state.apply(header, index)
    state.map_end_offset = 3
    scripts: list[Json] = [{"kind": "producers", "path": str(tmp_path), "expiration_ms": 1000, "steps": []}]
    # Kafka takes its state from the file: its own, empty state would write a snapshot at offset 0.
    producer_snapshot.write(DISK, str(tmp_path / producer_snapshot.snapshot_name(3)), state.snapshot())
    scripts[0]["steps"] = [{"do": "load", "end": 3, "now_ms": 1500}, {"do": "load", "end": 3, "now_ms": 2000}]
    fresh, later = (answers for answers in run_in_java(tmp_path, scripts)[0])
    assert fresh["producers"] == state_of(state)["producers"]
    # Only the producer with an open transaction has not expired.
    assert [producer[0] for producer in later["producers"]] == [1]


@pytest.mark.parametrize("seed", range(3))
def test_aborted_transactions_are_collected_as_in_kafka(tmp_path: Path, seed: int) -> None:
    scripts: list[Json] = []
    for number in range(60):
        steps = list(aborted_steps(random.Random(seed * 1000 + number)))
        scripts.append({"kind": "aborted", "path": str(tmp_path / f"{number}.java"), "base_offset": 20, "steps": steps})
    for number, answers in enumerate(run_in_java(tmp_path, scripts)):
        ours = AbortedTransactions(DISK, str(tmp_path / f"{number}.ottla"), 20, exists=False)
        for step, answer in zip(scripts[number]["steps"], answers, strict=True):
            assert run_aborted_step(ours, step) == answer, step
        java_file = tmp_path / f"{number}.java"
        if java_file.exists():
            assert Path(ours.path).read_bytes() == java_file.read_bytes()
            theirs = AbortedTransactions(DISK, str(java_file), 20, exists=True)
            assert theirs.read() == ours.read()
        else:
            assert not ours.exists


def aborted_steps(chance: random.Random) -> list[Json]:
    offset = chance.choice([0, 25])
    steps: list[Json] = []
    for _ in range(chance.randint(0, 30)):
        kind = chance.choices(["append", "collect", "read", "truncate", "reset", "check"], [10, 5, 2, 1, 0.3, 1])[0]
        step: Json = {"do": kind}
        if kind == "append":
            offset += chance.choice([0, 1, 3, 9])
            first = chance.randint(0, offset)
            step["entry"] = [chance.randint(0, 1 << 40), first, offset, chance.randint(first, offset + 1)]
        elif kind == "collect":
            step["from"] = chance.randint(0, offset)
            step["to"] = chance.randint(step["from"], offset + 5)
        elif kind == "truncate":
            step["offset"] = chance.randint(0, offset + 3)
        steps.append(step)
    return [*steps, {"do": "read"}, {"do": "close"}]


def run_aborted_step(index: AbortedTransactions, step: Json) -> Json:
    answer: Json = {"error": None}
    try:
        match step["do"]:
            case "append":
                index.append(Aborted(*step["entry"]))
            case "truncate":
                index.truncate(step["offset"])
            case "reset":
                index.reset()
            case "check":
                index.check()
            case "read":
                answer["entries"] = list(map(list, index.read()))
            case "collect":
                entries, complete = index.collect(step["from"], step["to"])
                answer |= {"entries": list(map(list, entries)), "complete": complete}
            case "close":
                index.sync()
    except ValueError:
        answer["error"] = "IllegalArgumentException"
    except Exception as error:  # noqa: BLE001 - named and compared
        answer["error"] = f"{type(error).__name__}Exception"
    return answer


def test_leader_epochs_change_as_in_kafka(tmp_path: Path) -> None:
    scripts: list[Json] = []
    for seed in range(200):
        (folder := tmp_path / str(seed)).mkdir()
        (folder / EPOCHS_FILE).write_bytes(LeaderEpochs([(1, 0), (3, 10), (4, 30)]).encode())
        steps = [epoch_step(random.Random(seed * 100 + number)) for number in range(30)]
        scripts.append({"kind": "epochs", "path": str(folder), "steps": steps})
    for seed, answers in enumerate(run_in_java(tmp_path, scripts)):
        ours = LeaderEpochs([(1, 0), (3, 10), (4, 30)])
        for step, answer in zip(scripts[seed]["steps"], answers, strict=True):
            assert run_epoch_step(ours, step) == answer, step
        assert LeaderEpochs.read(DISK, str(tmp_path / str(seed))).entries == ours.entries
        assert (tmp_path / str(seed) / EPOCHS_FILE).read_bytes() == ours.encode()


def epoch_step(chance: random.Random) -> Json:
    kind = chance.choice(
        ["assign", "assign", "assign", "truncate_from_end", "truncate_from_start", "end_offset_for", "epoch_for_offset"]
    )
    return {"do": kind, "epoch": chance.choice([-1, *range(12)]), "offset": chance.randint(-1, 60)}


def run_epoch_step(epochs: LeaderEpochs, step: Json) -> Json:
    answer: Json = {"error": None}
    epoch, offset = step["epoch"], step["offset"]
    try:
        match step["do"]:
            case "assign":
                epochs.assign(epoch, offset)
            case "truncate_from_end":
                epochs.truncate_from_end(offset)
            case "truncate_from_start":
                epochs.truncate_from_start(offset)
            case "end_offset_for":
                answer["found"] = list(epochs.end_offset_for(epoch, offset))
            case "epoch_for_offset":
                answer["found"] = epochs.epoch_for_offset(offset)
    except ValueError:
        return {"error": "IllegalArgumentException"}
    entries = [list(entry) for entry in epochs.entries]
    return answer | {"entries": entries, "latest": epochs.latest, "previous": epochs.previous}
