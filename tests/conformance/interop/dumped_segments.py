"""The output of Kafka's DumpLogSegments for the files of a log, parsed; any complaint of the tool fails the test."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.java_peer import JavaPeer

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_batch = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: -?\d+ producerId: (-?\d+) "
    r"producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) isTransactional: (\w+) isControl: (\w+) "
    r"deleteHorizonMs: \S+ position: (\d+) (\w+): (-?\d+) size: (\d+) magic: 2 compresscodec: (\w+) crc: \d+ "
    r"isvalid: true"
).fullmatch
_record = re.compile(
    r"\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+) headerKeys: \[(.*?)\]"
    r"(?: endTxnMarker: (\w+) coordinatorEpoch: (\d+))?(?: key: (.*?))?(?: payload: (.*))?"
).fullmatch
_entry = re.compile(r"(offset|timestamp): (\d+) (position|offset): (\d+)").fullmatch
_pairs = re.compile(r"(\w+): (-?\d+|Optional\w*\.empty|Optional\w*\[\d+\])").findall


class DumpedRecord(NamedTuple):
    """A record; a marker has its type and epoch instead of key and value."""

    offset: int
    timestamp: int
    key: str | None
    value: str | None
    marker: str | None = None


class DumpedBatch(NamedTuple):
    """A batch, with the offsets and epoch that the log assigned."""

    base_offset: int
    last_offset: int
    base_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    transactional: bool
    control: bool
    timestamp_type: str
    max_timestamp: int
    compression: str
    records: tuple[DumpedRecord, ...]


@dataclass(slots=True)
class Dump:
    """The files of a log, by name where the name matters."""

    batches: list[DumpedBatch] = field(default_factory=list)
    offsets: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Offset index: offset and position."""
    times: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Time index: timestamp and offset."""
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Producer id, first, last and last stable offset."""
    producers: dict[int, list[dict[str, int | None]]] = field(default_factory=dict)
    """By the offset of the snapshot."""

    @property
    def records(self) -> list[DumpedRecord]:
        return [record for batch in self.batches for record in batch.records]


def dump_files(peer: JavaPeer, directory: Path, *, compacted: bool = False) -> Dump:
    """Check a log's files in every way that the tool supports, and return their content."""
    files = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    if indexes:
        for index, line in zip(indexes, run_tool(peer, indexes, "--index-sanity-check")[1::2], strict=True):
            assert line in (f"{index} passed sanity check.", f"{index} is empty.")
        run_tool(peer, indexes, "--verify-index-only", compacted=compacted)
    result, current = Dump(), Path()
    for line in run_tool(peer, files, "--deep-iteration", "--print-data-log", compacted=compacted):
        if line.startswith("Dumping "):
            current = Path(line.removeprefix("Dumping "))
        else:
            parse_line(result, current, line)
    return result


def run_tool(peer: JavaPeer, files: Iterable[Path], *flags: str, compacted: bool = False) -> list[str]:
    """Run the tool, and return the lines that it prints."""
    question = [*flags, "--files", ",".join(map(str, files))]
    [answer] = peer._exchange("DUMP", [[text.encode() for text in question]])
    assert isinstance(answer, list), answer
    printed, errors = (part.decode() for part in answer)
    # The tool of 4.3 reports a segment's first offset as non-consecutive. In a compacted log, missing offsets
    # are normal.
    gap = r"-?\d+" if compacted else "-1"
    errors = re.sub(rf"Non-consecutive offsets in .*\n(?:  {gap} is followed by \d+\n)+", "", errors)
    if compacted:  # the batch with the latest timestamp lost its records, but keeps it in its header, as in Kafka
        empty = r"Found timestamp mismatch in :.*\n(?:  Index timestamp: \d+, log timestamp: -1\n)+"
        errors = re.sub(empty, "", errors)
    assert not errors, errors
    assert "invalid bytes" not in printed
    return printed.splitlines()


def parse_line(result: Dump, file: Path, line: str) -> None:
    """Parse a line about a file."""
    if file.suffix == ".log":
        if not line.startswith("Log starting offset: "):
            parse_log_line(result, line)
    elif file.suffix in (".index", ".timeindex"):
        entries = (result.offsets if file.suffix == ".index" else result.times).setdefault(file.name, [])
        if line != f"{file} is empty.":
            entry = _entry(line)
            assert entry, line
            entries.append((int(entry[2]), int(entry[4])))
    elif file.suffix == ".txnindex":
        values = dict(_pairs(line))
        assert values["version"] == "0"
        names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
        result.aborted.append(tuple(int(values[name]) for name in names))  # type: ignore[arg-type]
    else:
        entries_of = result.producers.setdefault(int(file.stem), [])
        entries_of.append({name: parse_number(text) for name, text in _pairs(line)})


def parse_log_line(result: Dump, line: str) -> None:
    if batch := _batch(line):
        base, last, count, sequence, producer, epoch, leader_epoch = map(int, batch.groups()[:7])
        transactional, control, _, kind, latest, _, codec = batch.groups()[7:]
        result.batches.append(
            DumpedBatch(
                base, last, sequence, producer, epoch, leader_epoch, transactional == "true", control == "true",
                kind, int(latest), codec, (),
            )
        )  # fmt: skip
        assert count >= 0
        return
    record = _record(line)
    assert record, f"cannot parse: {line}"
    offset, timestamp, _, _, _, _, marker, coordinator_epoch, key, value = record.groups()
    marker = marker and f"{marker} {coordinator_epoch}"
    last_batch = result.batches[-1]
    dumped_record = DumpedRecord(int(offset), int(timestamp), key, value, marker)
    result.batches[-1] = last_batch._replace(records=(*last_batch.records, dumped_record))


def parse_number(text: str) -> int | None:
    """Return a number, which may be -1, or None for an empty optional."""
    digits = re.search(r"-?\d+", text)
    return int(digits[0]) if digits else None


def latest_producers(dump: Dump) -> Sequence[dict[str, int | None]]:
    """Return the producers in the newest snapshot."""
    return dump.producers[max(dump.producers)] if dump.producers else []
